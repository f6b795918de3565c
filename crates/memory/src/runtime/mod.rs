//! The runtime directory: who runs, what must be undone, what is known.

mod cleanup;
mod held;
mod locks;
mod origins;
mod others;
mod paths;
mod status;

pub use cleanup::{Undo, lift, lift_known};
pub use held::Held;
pub use origins::{record as record_origin, returning_to, score_of};
pub use status::{Cost, Status, TimelinePoint};

use crate::error::{Error, Result};
use crate::sys;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where a file is written before it takes the place of the one before.
fn draft(file: &Path) -> PathBuf {
    file.with_extension("new")
}

/// Writes a file whole or not at all, and never through a link.
fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let draft = draft(file);
    let _left_by_who_was_killed = fs::remove_file(&draft);
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    open.and_then(|mut new| new.write_all(text)).map_err(Error::io("writing", &draft))?;
    fs::rename(&draft, file).map_err(Error::io("renaming", &draft))
}

/// The directory and the names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// The given one, or `/run/ullage/memory` for root and `$XDG_RUNTIME_DIR/ullage/memory` for users.
    pub fn new(given: Option<PathBuf>) -> Self {
        Self(given.unwrap_or_else(|| match std::env::var_os("XDG_RUNTIME_DIR") {
            // The XDG specification has any other taken for none.
            Some(directory) if sys::effective_user() != 0 && Path::new(&directory).is_absolute() => {
                Path::new(&directory).join("ullage/memory")
            }
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

    /// What stands in that, which may be another user's.
    pub fn read_timeline(&self) -> Result<String> {
        others::read(&self.timeline())
    }

    fn door_file(&self) -> PathBuf {
        self.0.join("door")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Refuses a directory in which others can write: the files in it name what is written to.
    pub fn check(&self) -> Result<()> {
        let meta = match fs::symlink_metadata(&self.0) {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.not_running()),
            Err(error) => return Err(Error::io("looking at", &self.0)(error)),
        };
        let why = if !meta.is_dir() {
            "is no directory"
        } else if meta.uid() != sys::effective_user() {
            "is not yours"
        } else if meta.mode() & 0o022 != 0 {
            "can be written by others"
        } else {
            return Ok(());
        };
        Err(Error::NotTrusted { directory: self.0.clone(), why })
    }

    /// As long as the file stays open, who clears directories of files that have not changed for days (systemd-tmpfiles) passes
    /// this one over. Where it cannot be locked it is used all the same.
    pub fn shelter(&self) -> Option<File> {
        let directory = File::open(&self.0).ok()?;
        directory.try_lock_shared().is_ok().then_some(directory)
    }

    /// Removes what a controller wrote down.
    fn forget(&self) {
        for file in [self.undo(), self.journal(), self.origins(), self.status(), self.timeline()] {
            // Who was killed while he wrote one left its draft.
            let _never_there = fs::remove_file(draft(&file));
            let _gone_already = fs::remove_file(file);
        }
    }

    /// Removes everything in it that is ours, and the directory if that leaves it empty. The lock goes
    /// last: once it is gone the directory may be another's. Who holds it alone makes files here.
    pub fn remove(&self) {
        self.forget();
        for file in [self.door_file(), self.lock_file()] {
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
        drop(runtime.claim().unwrap());
        for file in [runtime.status(), runtime.undo()] {
            fs::write(draft(&file), "{").unwrap();
            fs::write(file, "{}").unwrap();
        }
        runtime.remove();
        assert!(!runtime.path().exists());
    }

    #[test]
    fn a_directory_that_others_could_have_filled_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let ground = tempfile::tempdir().unwrap();
        let real = ground.path().join("real");
        fs::create_dir(&real).unwrap();
        let refused = |runtime: &RuntimeDir, why: &str| {
            let error = runtime.claim().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("--runtime-dir"), "{error}");
            assert!(fs::read_dir(&real).unwrap().next().is_none(), "nothing was written");
        };
        let link = ground.path().join("link");
        symlink(&real, &link).unwrap();
        refused(&RuntimeDir::new(Some(link)), "no directory");
        let runtime = RuntimeDir::new(Some(real.clone()));
        for mode in [0o777, 0o1777, 0o775] {
            fs::set_permissions(&real, fs::Permissions::from_mode(mode)).unwrap();
            refused(&runtime, "by others");
        }
        fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
        if std::os::unix::fs::chown(&real, Some(65534), None).is_ok() && sys::effective_user() == 0 {
            refused(&runtime, "not yours");
        }
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        let _lock = runtime.claim().unwrap();
        assert_eq!(fs::metadata(runtime.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let ground = tempfile::tempdir().unwrap();
        let (mine, state) = (ground.path().join("mine"), ground.path().join("state.json"));
        fs::write(&mine, "precious").unwrap();
        std::os::unix::fs::symlink(&mine, draft(&state)).unwrap();
        replace(&state, b"{}").unwrap();
        assert_eq!(fs::read(&mine).unwrap(), b"precious");
        assert_eq!(fs::read(&state).unwrap(), b"{}");
    }
}
