//! The kernel's caches, brought to the same state before every sample.

use anyhow::{Context, Result};

/// Writes everything dirty back, so that no sample pays for the one before it.
pub fn settle() {
    rustix::fs::sync();
}

/// Empties the page, dentry and inode caches. Needs root.
pub fn drop_all() -> Result<()> {
    settle();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("drop the kernel's caches")
}
