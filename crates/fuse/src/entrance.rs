//! The ways into a mount.
//!
//! By its path first. But that leads elsewhere once the mount was detached, something was mounted over it, or a directory above was renamed,
//! while those who have files open there go on. Nothing is kept open to be independent of that: it would keep the mount busy, or alive. The
//! kernel's list of mounts knows the new path then, and of one that has none who has a file open is himself a way to it: whoever opened it
//! most likely, and only then all others, whose descriptors take long to look at.

use crate::mounts::list_mounts;
use crate::sys;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How a mount is entered.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// Where it was found last.
    mountpoint: PathBuf,
    /// Major and minor number.
    device: (u32, u32),
    /// Where a file was found last that is not to be found by the path.
    last: Option<PathBuf>,
}

impl Entrance {
    pub(crate) fn new(mountpoint: &Path, device: (u32, u32)) -> Self {
        Self { mountpoint: mountpoint.to_owned(), device, last: None }
    }

    /// The root of the mount, opened by its path.
    ///
    /// # Errors
    /// ENXIO where that leads elsewhere.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        self.directory(&self.mountpoint)
    }

    /// Looks at the root of the mount by its path.
    ///
    /// # Errors
    /// ENXIO where that leads elsewhere.
    pub(crate) fn look(&self) -> io::Result<()> {
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statx(CWD, &self.mountpoint, flags, StatxFlags::BASIC_STATS)?;
        if self.holds(&stat) { Ok(()) } else { Err(Errno::NXIO.into()) }
    }

    /// The file behind a node, as O_PATH, without asking who answers. This process, 0 if none is known, is the first to be looked at for it.
    ///
    /// # Errors
    /// ESTALE when nobody has it open; ENXIO when there is no way in, so that it is not known who has.
    pub(crate) fn file(&mut self, node: u64, opener: u32) -> io::Result<OwnedFd> {
        match self.root().or_else(|_| self.root_anew()) {
            Ok(root) => sys::open_node(root.as_fd(), node),
            Err(_) => self.file_of_others(node, opener),
        }
    }

    /// A directory of the mount by a path that it has now.
    fn root_anew(&mut self) -> io::Result<OwnedFd> {
        for mount in list_mounts(None)?.into_iter().filter(|mount| mount.device == self.device) {
            if let Ok(root) = self.directory(&mount.point) {
                self.mountpoint = mount.point;
                return Ok(root);
            }
        }
        Err(Errno::NXIO.into())
    }

    fn file_of_others(&mut self, node: u64, opener: u32) -> io::Result<OwnedFd> {
        if let Some(file) = self.last.as_ref().and_then(|last| self.file_at(last, node)) {
            return Ok(file);
        }
        let mut directory = None;
        let likely = open_files_of(&Path::new("/proc").join(opener.to_string()));
        for path in likely.chain(open_files()) {
            let Some(stat) = look(CWD, &path).filter(|stat| self.holds(stat)) else { continue };
            if stat.stx_ino == node
                && let Some(file) = self.file_at(&path, node)
            {
                self.last = Some(path);
                return Ok(file);
            }
            if directory.is_none() && u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR {
                directory = self.directory(&path).ok();
            }
        }
        // A file may be open without a descriptor: in a ring, or on its way to another process.
        sys::open_node(directory.ok_or(Errno::NXIO)?.as_fd(), node)
    }

    fn file_at(&self, path: &Path, node: u64) -> Option<OwnedFd> {
        let file = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        look(&file, Path::new("")).filter(|stat| self.holds(stat) && stat.stx_ino == node)?;
        Some(file)
    }

    /// A directory of the mount, opened.
    fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        // Not O_PATH, which cannot stand for a mount; directories of ours are opened without asking.
        let directory = rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        look(&directory, Path::new("")).filter(|stat| self.holds(stat)).ok_or(Errno::NXIO)?;
        Ok(directory)
    }

    fn holds(&self, stat: &Statx) -> bool {
        (stat.stx_dev_major, stat.stx_dev_minor) == self.device
    }
}

fn look(at: impl AsFd, path: &Path) -> Option<Statx> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    rustix::fs::statx(at, path, flags, StatxFlags::INO | StatxFlags::TYPE).ok()
}

/// What every process has open; then the same of every thread, of which some have descriptors of their own.
fn open_files() -> impl Iterator<Item = PathBuf> {
    let processes = || list("/proc".into()).filter(|path| is_number(path));
    let threads = processes().flat_map(|process| list(process.join("task")));
    processes().chain(threads).flat_map(|owner| open_files_of(&owner))
}

fn open_files_of(owner: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    [owner.join("cwd"), owner.join("root")].into_iter().chain(list(owner.join("fd")))
}

fn list(directory: PathBuf) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_number(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn device_of(path: &Path) -> (u32, u32) {
        let stat = look(CWD, path).unwrap();
        (stat.stx_dev_major, stat.stx_dev_minor)
    }

    /// It was taken for the mount, and a file that was not found there for one that nobody has open.
    #[test]
    fn what_lies_at_the_path_instead_is_no_way_in() {
        let directory = tempfile::tempdir().unwrap();
        let own = device_of(directory.path());
        assert!(Entrance::new(directory.path(), own).root().is_ok());
        let mut elsewhere = Entrance::new(directory.path(), (own.0 ^ 0xfff, own.1));
        assert_eq!(elsewhere.root().unwrap_err().raw_os_error(), Some(libc::ENXIO));
        assert_eq!(elsewhere.file(1, 0).unwrap_err().raw_os_error(), Some(libc::ENXIO));
    }

    #[test]
    fn a_file_is_found_with_who_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let mut entrance = Entrance::new(Path::new("/no/such/place"), device_of(directory.path()));
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let node = file.metadata().unwrap().ino();
        for opener in [std::process::id(), 0] {
            let found = File::from(entrance.file_of_others(node, opener).unwrap());
            assert_eq!(found.metadata().unwrap().ino(), node);
        }
        drop(file);
        assert!(entrance.file_at(&entrance.last.clone().unwrap(), node).is_none());
    }
}
