//! Room on the disk, and inodes, that are held for records and snapshots: others fill the disk, and what makes room there is a record too.

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, StatVfs};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most that is held.
const MOST_BYTES: u64 = 64 << 20;
/// No more of the whole disk than one part in so many.
const PART: u64 = 16;
/// Empty files that are held for new ones: segments, snapshots, and what is written again at a start.
const INODES: u64 = 16;

/// The files that hold it.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    /// Growth is allowed: the room is held, or cannot be on this file system.
    whole: AtomicBool,
    /// It was held when this journal was opened, and may be held again if it is free once.
    was_held: AtomicBool,
    /// Whoever finds the disk full while another gives the room up waits until it has.
    change: Mutex<()>,
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Reserve {
    /// That of the journal in `directory`, given up: whoever redoes the records may need it.
    pub(crate) fn open(directory: &Path) -> Self {
        let reserve = Self {
            path: directory.join("reserve"),
            whole: AtomicBool::default(),
            was_held: AtomicBool::default(),
            change: Mutex::default(),
        };
        reserve.was_held.store(reserve.release(), Relaxed);
        reserve
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Gives the room up; whether there was any.
    pub(crate) fn release(&self) -> bool {
        let _one = self.change.lock();
        self.whole.store(false, Relaxed);
        self.remove()
    }

    fn remove(&self) -> bool {
        let inodes = (0..INODES).filter(|&number| fs::remove_file(self.inode(number)).is_ok()).count();
        fs::remove_file(&self.path).is_ok() || inodes > 0
    }

    /// One of the empty files.
    fn inode(&self, number: u64) -> PathBuf {
        self.path.with_extension(format!("{number:02}"))
    }

    /// Holds the room if it is free twice over, or once where it was held before this journal was opened.
    pub(crate) fn hold(&self) {
        let _one = self.change.lock();
        match self.try_hold() {
            Ok(()) => self.whole.store(true, Relaxed),
            Err(error) if is_full(&error) => {}
            Err(error) => {
                tracing::info!(%error, path = %self.path.display(), "no room can be held for the journal");
                self.whole.store(true, Relaxed);
            }
        }
    }

    fn try_hold(&self) -> io::Result<()> {
        let StatVfs { f_blocks, f_bavail, f_frsize, f_files, f_favail, .. } =
            rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path))?;
        let bytes = (f_blocks * f_frsize / PART).min(MOST_BYTES);
        let times = if self.was_held.swap(false, Relaxed) { 1 } else { 2 };
        // Some file systems have as many as there is room for, and count none.
        let few = f_files > 0 && f_favail < times * (INODES + 1);
        if few || f_bavail * f_frsize < times * bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inodes = (0..INODES).try_for_each(|number| File::create(self.inode(number)).map(drop));
        let held = inodes
            .and_then(|()| File::create(&self.path))
            .and_then(|file| Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?));
        held.inspect_err(|_| {
            self.remove();
        })
    }

    /// Whether no file can be made for want of inodes alone.
    pub(crate) fn lacks_inodes(&self) -> bool {
        let found = rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path));
        found.is_ok_and(|found| found.f_files > 0 && found.f_favail == 0)
    }

    fn settle(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(self.path.parent().unwrap_or(&self.path))?)?)
    }

    /// Does `work`, and once more with the room given up if the disk is full.
    pub(crate) fn or_with_it<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_full(&error) => {
                if self.release() {
                    tracing::warn!(path = %self.path.display(), "the disk is full: the room held for the journal is used; make room");
                }
                // Another thread may have given it up meanwhile.
                match work() {
                    // Some file systems have it back only once they have written that it is.
                    Err(error) if is_full(&error) && self.settle().is_ok() => work(),
                    done => done,
                }
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: only blocks were held: where others had taken all inodes no segment was made, and a store or bank never started again.
    #[test]
    fn inodes_are_held_and_given_up_with_the_room() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(directory.path());
        let files = || fs::read_dir(directory.path()).unwrap().count() as u64;
        reserve.hold();
        assert_eq!(files(), INODES + 1);
        assert!(reserve.release());
        assert_eq!(files(), 0);
        assert!(!reserve.release());
    }
}
