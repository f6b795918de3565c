//! The runtime directory: who runs, what must be undone, what is known.

mod cleanup;
mod origins;
mod status;

pub use cleanup::{Undo, lift};
pub use origins::{record as record_origin, returning_to};
pub use status::{Cost, Status, TimelinePoint};

use crate::error::{Error, Result};
use crate::sys;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// Where a file is written before it takes the place of the one before.
fn draft(file: &Path) -> PathBuf {
    file.with_extension("new")
}

/// The directory and the names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// The given one, or `/run/ullage/memory` for root and `$XDG_RUNTIME_DIR/ullage/memory` for users.
    pub fn new(given: Option<PathBuf>) -> Self {
        Self(given.unwrap_or_else(|| match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) if sys::effective_user() != 0 => Path::new(&directory).join("ullage/memory"),
            _ if sys::effective_user() == 0 => "/run/ullage/memory".into(),
            _ => format!("/tmp/ullage-memory-{}", sys::effective_user()).into(),
        }))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What must be undone after a death.
    pub fn undo(&self) -> PathBuf {
        self.0.join("undo.json")
    }

    /// The eviction in progress.
    pub fn journal(&self) -> PathBuf {
        self.0.join("eviction")
    }

    /// Where contributed processes came from.
    pub fn origins(&self) -> PathBuf {
        self.0.join("origins")
    }

    /// The latest status.
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// One line of JSON a second.
    pub fn timeline(&self) -> PathBuf {
        self.0.join("timeline.jsonl")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Creates the directory and takes its lock, which the kernel releases when its holder dies.
    pub fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.0).map_err(Error::io("creating", &self.0))?;
        let path = self.lock_file();
        let open = fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let file = open.map_err(Error::io("opening", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Error::AlreadyRunning(self.running().unwrap_or(0))),
            Err(TryLockError::Error(error)) => Err(Error::io("locking", path)(error)),
        }
    }

    /// Process number of the controller that runs here, if one does.
    pub fn running(&self) -> Option<i32> {
        let file = File::open(self.lock_file()).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(Undo::read(&self.undo()).map_or(0, |undo| undo.pid)),
            _ => None,
        }
    }

    /// Removes everything in it that is ours, and the directory if that leaves it empty.
    pub fn remove(&self) {
        for file in [self.undo(), self.journal(), self.origins(), self.status(), self.timeline(), self.lock_file()] {
            // Who was killed while he wrote one left its draft.
            let _never_there = fs::remove_file(draft(&file));
            let _gone_already = fs::remove_file(file);
        }
        let _shared_with_others = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_killed_while_it_wrote_leaves_nothing() {
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        drop(runtime.lock().unwrap());
        for file in [runtime.status(), runtime.undo()] {
            fs::write(draft(&file), "{").unwrap();
            fs::write(file, "{}").unwrap();
        }
        runtime.remove();
        assert!(!runtime.path().exists());
    }
}
