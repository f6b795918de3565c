//! Room on the disk that is held for records and snapshots: others fill the disk, and what makes room there is a record too.

use rustix::fs::{FallocateFlags, StatVfs};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most that is held.
const MOST_BYTES: u64 = 64 << 20;
/// No more of the whole disk than one part in so many.
const PART: u64 = 16;

/// The file that holds it.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    /// Growth is allowed: the room is held, or cannot be on this file system.
    whole: AtomicBool,
}

impl Reserve {
    /// That of the journal in `directory`, given up: whoever redoes the records may need it.
    pub(crate) fn open(directory: &Path) -> Self {
        let reserve = Self { path: directory.join("reserve"), whole: AtomicBool::new(false) };
        reserve.release();
        reserve
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Gives the room up; whether there was any.
    pub(crate) fn release(&self) -> bool {
        self.whole.store(false, Relaxed);
        fs::remove_file(&self.path).is_ok()
    }

    /// Holds the room if it is free twice over.
    pub(crate) fn hold(&self) {
        match self.try_hold() {
            Ok(()) => self.whole.store(true, Relaxed),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => {
                tracing::info!(%error, path = %self.path.display(), "no room can be held for the journal");
                self.whole.store(true, Relaxed);
            }
        }
    }

    fn try_hold(&self) -> io::Result<()> {
        let StatVfs { f_blocks, f_bavail, f_frsize, .. } =
            rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path))?;
        let bytes = (f_blocks * f_frsize / PART).min(MOST_BYTES);
        if f_bavail * f_frsize < 2 * bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let held = File::create(&self.path)
            .and_then(|file| Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?));
        held.inspect_err(|_| {
            let _ = fs::remove_file(&self.path);
        })
    }

    /// Does `work`, and once more with the room given up if the disk is full.
    pub(crate) fn or_with_it<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.release() => {
                tracing::warn!(path = %self.path.display(), "the disk is full: the room held for the journal is used; make room");
                work()
            }
            done => done,
        }
    }
}
