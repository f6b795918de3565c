//! Symbolic links, fifos, sockets and devices of the tree. No attribute can say of them that they are ours, so each is a hard
//! link, as files are: to a *first name* in `.ullage/.names`, which is the number of its inode. Nothing else gets that number
//! as long as the first name is there.

use super::ours::{disown, is_backing};
use super::{Directory, NAMES, Tree};
use crate::dir::own_directory;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;
use std::io;
use ullage_types::Kind;

/// What is being made, until its number is known.
const NEW: &str = "new";

impl Tree {
    /// Where first names are, made where there is none: then what is in the tree has none yet, whatever is said of it.
    pub(super) fn first_names(&self) -> rustix::io::Result<&OwnedFd> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        if rustix::fs::accessat(&self.files, NAMES, Access::EXISTS, AtFlags::empty()) == Err(Errno::NOENT) {
            disown(&self.limbo)?;
        }
        let made = own_directory(&self.files, NAMES)?;
        Ok(self.names.get_or_init(|| made))
    }

    /// Makes `name` a symbolic link.
    pub fn symlink(&self, above: &Directory, name: &[u8], target: &[u8]) -> io::Result<()> {
        if rustix::fs::readlinkat(above, name, Vec::new()).is_ok_and(|now| now.as_bytes() == target) {
            self.adopt(above, name);
            return Ok(());
        }
        self.clear(above, name)?;
        Ok(self.make_name(above, name, |names| rustix::fs::symlinkat(target, names, NEW))?)
    }

    /// Makes `name` a fifo, a socket or a device. Only root can make devices; others go without.
    pub fn special(&self, above: &Directory, name: &[u8], kind: Kind, rdev: u32) -> io::Result<()> {
        let file_type = FileType::from_raw_mode(kind.mode_bits());
        let now = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| FileType::from_raw_mode(now.st_mode) == file_type && now.st_rdev == u64::from(rdev)) {
            self.adopt(above, name);
            return Ok(());
        }
        self.clear(above, name)?;
        let made = self.make_name(above, name, |names| {
            rustix::fs::mknodat(names, NEW, file_type, Mode::from_raw_mode(0o600), u64::from(rdev))
        });
        match made {
            Err(Errno::PERM) if !self.privileged => Ok(()),
            other => Ok(other?),
        }
    }

    /// Takes away what is no directory, if it is ours.
    pub(super) fn remove(&self, above: impl AsFd, name: &[u8], now: &Stat) -> rustix::io::Result<bool> {
        if FileType::from_raw_mode(now.st_mode) == FileType::RegularFile {
            let ours = is_backing(&above, name, self.space)? && self.save(&above, name, now)?;
            if ours {
                rustix::fs::unlinkat(above, name, AtFlags::empty())?;
            }
            return Ok(ours);
        }
        let first = first_name(now);
        let ours = self.is_first(&first, now);
        if ours {
            rustix::fs::unlinkat(above, name, AtFlags::empty())?;
            // An imported link may have more names. Last, so that no crash leaves one that nobody knows to be ours; what is left is
            // swept.
            if now.st_nlink <= 2 {
                let _ = rustix::fs::unlinkat(self.first_names()?, &*first, AtFlags::empty());
            }
        }
        Ok(ours)
    }

    /// Removes first names of what is no more in the tree, and those in a copy of the pool, where all have other numbers.
    pub fn sweep(&self) -> io::Result<()> {
        let Some(names) = self.names.get() else { return Ok(()) };
        for entry in Dir::read_from(names)? {
            let entry = entry?;
            let name = entry.file_name();
            let now = match rustix::fs::statat(names, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            let is_directory = FileType::from_raw_mode(now.st_mode) == FileType::Directory;
            let in_use = now.st_nlink > 1 && name.to_bytes() == first_name(&now).as_bytes();
            if !is_directory && !in_use {
                rustix::fs::unlinkat(names, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn make_name(
        &self,
        above: &OwnedFd,
        name: &[u8],
        how: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let names = self.first_names()?;
        self.floor.admit(names)?;
        match rustix::fs::unlinkat(names, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => how(names)?,
            Err(errno) => return Err(errno),
        }
        let first = first_name(&rustix::fs::statat(names, NEW, AtFlags::SYMLINK_NOFOLLOW)?);
        rustix::fs::renameat(names, NEW, names, &*first)?;
        rustix::fs::linkat(names, &*first, above, name, AtFlags::empty())
    }

    /// What stands where it belongs, and was made by an earlier version, imported or copied with the pool, is ours from now on.
    fn adopt(&self, above: &OwnedFd, name: &[u8]) {
        let Ok(now) = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let first = first_name(&now);
        if self.is_first(&first, &now) {
            return;
        }
        let linked =
            self.first_names().and_then(|names| rustix::fs::linkat(above, name, names, &*first, AtFlags::empty()));
        if let Err(error) = linked {
            tracing::debug!(%error, "'{}' stays in the plain tree when it is removed", name.escape_ascii());
        }
    }

    /// Whether the first name is that of this inode.
    fn is_first(&self, first: &str, now: &Stat) -> bool {
        self.first_names()
            .and_then(|names| rustix::fs::statat(names, first, AtFlags::SYMLINK_NOFOLLOW))
            .is_ok_and(|first| (first.st_dev, first.st_ino) == (now.st_dev, now.st_ino))
    }
}

fn first_name(now: &Stat) -> String {
    format!("{:x}", now.st_ino)
}

#[cfg(test)]
mod tests {
    use super::super::{FILES, testing::tree};
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn first_names(dir: &Path) -> usize {
        std::fs::read_dir(dir.join(FILES).join(super::super::NAMES)).unwrap().count()
    }

    #[test]
    fn only_what_the_tree_made_is_taken_away() {
        let (dir, tree, root) = tree();
        tree.symlink(&root, b"link", b"target").unwrap();
        tree.special(&root, b"fifo", Kind::Fifo, 0).unwrap();
        for name in ["copy", "theirs"] {
            symlink("target", dir.path().join(name)).unwrap();
        }
        assert!(tree.clear(&root, b"theirs").is_err());
        assert!(
            tree.symlink(&root, b"theirs", b"other").is_err() && tree.special(&root, b"theirs", Kind::Fifo, 0).is_err()
        );
        // What is there already need not be made.
        tree.symlink(&root, b"copy", b"target").unwrap();
        assert_eq!(first_names(dir.path()), 3);
        tree.symlink(&root, b"link", b"other").unwrap();
        assert_eq!(std::fs::read_link(dir.path().join("link")).unwrap(), Path::new("other"));
        std::fs::hard_link(dir.path().join("link"), dir.path().join("second")).unwrap();
        for name in [&b"link"[..], b"fifo", b"copy", b"second"] {
            tree.clear(&root, name).unwrap();
        }
        assert_eq!(tree.names(&root).unwrap(), [b"theirs"]);
        assert_eq!(first_names(dir.path()), 0);
    }

    #[test]
    fn first_names_of_nothing_are_swept() {
        let (dir, tree, root) = tree();
        for name in [&b"here"[..], b"gone", b"copied"] {
            tree.symlink(&root, name, b"target").unwrap();
        }
        let names = dir.path().join(FILES).join(super::super::NAMES);
        symlink("half made", names.join(NEW)).unwrap();
        std::fs::remove_file(dir.path().join("gone")).unwrap();
        let copied = rustix::fs::statat(&root, "copied", AtFlags::SYMLINK_NOFOLLOW).unwrap();
        std::fs::rename(names.join(first_name(&copied)), names.join("0")).unwrap();
        tree.sweep().unwrap();
        assert_eq!(first_names(dir.path()), 1);
        assert!(tree.clear(&root, b"copied").is_err());
        tree.symlink(&root, b"copied", b"target").unwrap();
        tree.clear(&root, b"copied").unwrap();
        tree.clear(&root, b"here").unwrap();
        assert_eq!(first_names(dir.path()), 0);
    }
}
