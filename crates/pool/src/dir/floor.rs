//! Inodes of its file system that a pool leaves to others: to the catalog, where that lies on the same disk.

use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many are taken at most before it is looked again how many there are.
const AHEAD: u64 = 1024;
/// One part in so many of those that nobody claims: several may take them at the same time.
const PART: u64 = 8;

/// How many are left, and how many may be taken until that is looked at again.
#[derive(Debug, Default)]
pub struct Floor {
    least: AtomicU64,
    ahead: AtomicU64,
}

impl Floor {
    /// Leaves so many from now on.
    pub fn set(&self, least: u64) {
        self.least.store(least, Relaxed);
        self.ahead.store(0, Relaxed);
    }

    /// How many are left.
    pub fn least(&self) -> u64 {
        self.least.load(Relaxed)
    }

    /// To be asked before an inode is taken of the file system that this lies on: ENOSPC where it would be one of those that are left.
    pub fn admit(&self, on: impl AsFd) -> rustix::io::Result<()> {
        let least = self.least();
        if least == 0 || self.ahead.fetch_update(Relaxed, Relaxed, |ahead| ahead.checked_sub(1)).is_ok() {
            return Ok(());
        }
        let stat = rustix::fs::fstatvfs(on)?;
        // Some file systems make inodes as they need them, and say that there are none.
        if stat.f_files == 0 {
            return Ok(());
        }
        let free = stat.f_favail.checked_sub(least).filter(|free| *free > 0).ok_or(Errno::NOSPC)?;
        self.ahead.store((free / PART).min(AHEAD), Relaxed);
        Ok(())
    }
}
