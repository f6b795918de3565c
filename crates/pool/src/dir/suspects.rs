//! Looking through a leaf after an unclean end.

use super::core::Core;
use super::{leaf, name, record};
use crate::{Binding, Error, Suspect, sys};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

impl Core {
    /// Visits every file of a leaf. A leaf that was never made holds none. The worker may take files out of it meanwhile.
    pub fn suspects(&self, leaf: &[u8], visit: &mut dyn FnMut(Suspect)) -> Result<(), Error> {
        let path = str::from_utf8(leaf).map_err(|_| Error::Unusable(format!("a leaf is called {leaf:?}")))?;
        let fail = |errno| Error::io("look through", self.path.join(path))(errno);
        let dir = match leaf::open_directory(self.root(), path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(fail(errno)),
        };
        for entry in Dir::read_from(&dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if leaf::kind_of(&dir, &entry).map_err(fail)? == FileType::RegularFile {
                if name::is_draft(name) {
                    // A copy that was not finished, under no name that it would be known by.
                    match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                        Err(errno) if errno != Errno::NOENT => return Err(fail(errno)),
                        _ => continue,
                    }
                }
                let (binding, unreadable) = match self.binding_of(&dir, path, name) {
                    Ok(binding) => (binding, false),
                    Err(Errno::NOENT) => continue,
                    Err(errno) if sys::is_damage(errno) => {
                        tracing::warn!(
                            "{} cannot be read ({errno}) and is left as it is: take the space down and run fsck on the pool's disk",
                            self.full_path(path, name).display()
                        );
                        (None, true)
                    }
                    Err(errno) => return Err(Error::io("open", self.full_path(path, name))(errno)),
                };
                visit(Suspect { binding, unreadable, locator: name::locator(path, name) });
            }
        }
        Ok(())
    }

    /// The last leaf of every series that has any.
    pub fn newest_leaves(&self) -> Result<Vec<Box<[u8]>>, Error> {
        let mut newest = Vec::new();
        for series in 0..self.series.len() {
            if let Some(last) = self.count_leaves(series)?.checked_sub(1) {
                newest.push(self.config.sparse.leaf(series, last).into_bytes().into());
            }
        }
        Ok(newest)
    }

    /// By its attribute where there are attributes, else by its name. A file without any attribute was being made when power
    /// went: its name is its first one, since a recycled file gets its attribute before its name, so the name says whose it is,
    /// and the attribute is made up for.
    fn binding_of(&self, dir: &OwnedFd, leaf: &str, name: &str) -> rustix::io::Result<Option<Binding>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(dir, name, flags, Mode::empty());
        let file = match open() {
            Err(Errno::ACCESS) => self.let_in(dir, leaf, name).and_then(|()| open())?,
            opened => opened?,
        };
        let numbers = if self.abilities.xattrs {
            match self.read_record(&file)? {
                Some(record) => Some((record.file, record.generation)),
                None if rustix::fs::fgetxattr(&file, record::NAME, &mut [0u8; 0][..]) == Err(Errno::NODATA) => {
                    let numbers = name::parse(name);
                    if let Some((id, generation)) = numbers {
                        self.write_record(&file, &self.record(id, generation))?;
                    }
                    numbers
                }
                None => None,
            }
        } else {
            name::parse(name)
        };
        Ok(numbers.map(|(file, generation)| Binding { file, generation, locator: name::locator(leaf, name) }))
    }

    /// An ordinary user may have taken in what he may not read himself. It gets the bits that its owner needs: when it is shown it has them
    /// anyway.
    fn let_in(&self, dir: &OwnedFd, leaf: &str, name: &str) -> rustix::io::Result<()> {
        let file = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let mode = rustix::fs::fstat(&file)?.st_mode & 0o7777;
        let lent = sys::chmod(&file, mode | 0o600);
        if let Err(error) = lent {
            tracing::warn!("{} cannot be opened ({error})", self.full_path(leaf, name).display());
        }
        lent
    }

    /// All that is in the file system's journal. Where the last change of what is flushed was written out before, what came after that is not
    /// waited for: so there is one more.
    pub fn write_journal(&self) -> Result<(), Error> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let written = rustix::fs::futimens(self.root(), &times).and_then(|()| rustix::fs::fsync(self.root()));
        written.map_err(Error::io("flush", &self.path))
    }

    /// Everything on disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.written.out(|| rustix::fs::syncfs(self.root())).map_err(Error::io("flush", &self.path))
    }
}
