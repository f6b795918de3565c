//! A lock in a file, held.

use super::others;
use crate::error::{Error, Result};
use crate::sys;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often, and how long apart, the lock of earlier versions is asked for: who asks whether it is held holds it for a moment.
const TRIES: usize = 100;
const BETWEEN: Duration = Duration::from_millis(10);

/// Given up when it is dropped, also where a process that is being started still has a copy of the
/// descriptor; and when its holder dies.
#[derive(Debug)]
pub struct Held(File);

impl Held {
    /// Locks a file; `None` while somebody else has it.
    pub(super) fn take(path: &Path, create: bool) -> Result<Option<Self>> {
        loop {
            let mut options = OpenOptions::new();
            options.create(create).truncate(false).read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(path).map_err(Error::io("opening", path))?;
            if !sys::lock(&file).map_err(Error::io("locking", path))? {
                return Ok(None);
            }
            let held = Self(file);
            // Who had it may have removed it since it was opened: then others lock another one.
            let locked = held.0.metadata().map_err(Error::io("looking at", path))?;
            if fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (locked.dev(), locked.ino())) {
                return Ok(Some(held));
            }
        }
    }

    /// Waits until nobody else has it.
    pub(super) fn wait_for(path: &Path, create: bool, patience: Duration) -> Result<Self> {
        let until = Instant::now() + patience;
        loop {
            if let Some(held) = Self::take(path, create)? {
                return Ok(held);
            }
            if Instant::now() >= until {
                return Err(Error::DoorHeld(path.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes the lock that controllers and guards of earlier versions know, too; `false` while one of them has it.
    pub(super) fn keep_earlier_versions_out(&self) -> bool {
        (0..TRIES).any(|n| {
            if n > 0 {
                std::thread::sleep(BETWEEN);
            }
            !matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
        })
    }

    /// Whether somebody has locked a file.
    pub(super) fn is(path: &Path) -> bool {
        others::open(path).is_ok_and(|file| sys::is_locked(&file))
    }

    /// Whether somebody of an earlier version has: its lock cannot be seen but by asking for it.
    pub(super) fn is_by_an_earlier_version(path: &Path) -> bool {
        let Ok(file) = others::open(path) else { return false };
        let free = || !sys::is_locked(&file);
        let held = free() && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let _never_held = file.unlock();
        // One of this version takes both, and this lock last.
        held && free()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        sys::unlock(&self.0);
        let _by_earlier_versions = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another thread was just starting kept it, and the next controller was told that one runs.
    #[test]
    fn a_copy_of_its_descriptor_does_not_keep_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Held::take(&path, true).unwrap().unwrap();
        assert!(held.keep_earlier_versions_out());
        let _copy = held.0.try_clone().unwrap();
        assert!(Held::is(&path));
        drop(held);
        assert!(!Held::is(&path) && !Held::is_by_an_earlier_version(&path));
        assert!(Held::take(&path, false).unwrap().unwrap().keep_earlier_versions_out());
    }
}
