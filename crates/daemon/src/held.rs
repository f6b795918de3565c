//! A directory that is held open.

use crate::Result;
use crate::error::io_error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A directory that stays the same one, whatever becomes of its path: disks are unmounted lazily, and others mounted over them.
pub(crate) struct Held(File);

impl Held {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        File::open(path).map(Self).map_err(io_error("open", path))
    }

    /// The path of a file in it, for as long as it is held.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }
}

/// What people know as the path of a file in a directory that is held.
pub(crate) fn shown(path: &Path) -> PathBuf {
    let mut parts = path.components();
    let held: PathBuf = parts.by_ref().take("/proc/self/fd/N".split('/').count()).collect();
    std::fs::read_link(held).map_or_else(|_| path.to_owned(), |dir| dir.join(parts.as_path()))
}
