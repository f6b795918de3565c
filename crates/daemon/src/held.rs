//! A directory that is held open.

use crate::Result;
use crate::error::io_error;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use ullage_pool::by_descriptor;

/// A directory that stays the same one, whatever becomes of its path: disks are unmounted lazily, and others mounted over them.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        File::open(path).map(Self).map_err(io_error("open", path))
    }

    /// One that is ours alone, made where there is none.
    pub(crate) fn own(path: &Path) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let own = Self::own_there(path)?;
        own.0.set_permissions(fs::Permissions::from_mode(0o700))?;
        Ok(own)
    }

    /// The same where there is one; through no link, which may be somebody's who can write beside it.
    pub(crate) fn own_there(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?.into()))
    }

    /// The way to it, for as long as it is held.
    pub(crate) fn path(&self) -> PathBuf {
        by_descriptor(&self.0)
    }

    /// The path of a file in it, for as long as it is held.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}
