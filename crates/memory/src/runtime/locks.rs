//! Who is the controller, and the door by which processes come in.
//!
//! The *lock* is the controller's for its life. The *door* is held by who puts processes into the
//! group, and by who takes the group down: nobody enters what goes, and nobody takes down what was
//! just entered.

use super::{RuntimeDir, Undo, cleanup};
use crate::error::{Error, Result};
use crate::sys;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long is waited at the door: whoever came in last may be frozen on its threshold for some time.
const AT_THE_DOOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// How often a directory is made that a controller ending at that moment removes.
const TRIES: usize = 10;

impl RuntimeDir {
    /// Creates the directory, takes its lock, which the kernel releases when its holder dies, and
    /// undoes what a controller that was killed left. Gives what of that failed too.
    pub fn claim(&self) -> Result<(File, Vec<Error>)> {
        let mut tried = 0;
        loop {
            match self.try_claim() {
                Err(error) if gone(&error) && tried < TRIES => tried += 1,
                other => return other,
            }
        }
    }

    fn try_claim(&self) -> Result<(File, Vec<Error>)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.path())
            .map_err(Error::io("creating", self.path()))?;
        self.check()?;
        let _door = match wait_for(&self.door_file(), true) {
            Ok(door) => Some(door),
            // Who was frozen on the threshold goes on when the group is lifted: the lock says whether somebody else will do that.
            Err(Error::DoorHeld(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(lock) = take(&self.lock_file(), true)? else {
            return Err(Error::AlreadyRunning(self.running().unwrap_or(0)));
        };
        // Controllers and guards of earlier versions know this one only.
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Error::AlreadyRunning(Undo::read(&self.undo()).map_or(0, |undo| undo.pid)));
        }
        let failed = cleanup::lift(self);
        self.forget();
        Ok((lock, failed))
    }

    /// Process number of the controller that runs here, if one does.
    pub fn running(&self) -> Option<i32> {
        let file = File::open(self.lock_file()).ok()?;
        sys::is_locked(&file).then(|| Undo::read(&self.undo()).map_or(0, |undo| undo.pid))
    }

    /// Waits for the door of the controller that runs here.
    pub fn door(&self) -> Result<File> {
        wait_for(&self.door_file(), false).map_err(|error| if gone(&error) { self.not_running() } else { error })
    }

    /// The door, unless somebody is at it.
    pub fn door_if_free(&self) -> Result<Option<File>> {
        take(&self.door_file(), false)
    }

    pub(super) fn not_running(&self) -> Error {
        Error::NotRunning(self.path().to_owned())
    }
}

fn gone(error: &Error) -> bool {
    matches!(error, Error::NotRunning(_)) || error.errno() == Some(libc::ENOENT)
}

fn wait_for(path: &Path, create: bool) -> Result<File> {
    let until = Instant::now() + AT_THE_DOOR;
    loop {
        if let Some(door) = take(path, create)? {
            return Ok(door);
        }
        if Instant::now() >= until {
            return Err(Error::DoorHeld(path.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Locks a file; `None` while somebody else has it.
fn take(path: &Path, create: bool) -> Result<Option<File>> {
    loop {
        let mut options = OpenOptions::new();
        options.create(create).truncate(false).read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).map_err(Error::io("opening", path))?;
        if !sys::lock(&file).map_err(Error::io("locking", path))? {
            return Ok(None);
        }
        // Who had it may have removed it since it was opened: then others lock another one.
        let locked = file.metadata().map_err(Error::io("looking at", path))?;
        if fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (locked.dev(), locked.ino())) {
            return Ok(Some(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> (tempfile::TempDir, RuntimeDir) {
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        (ground, runtime)
    }

    #[test]
    fn asking_who_runs_is_in_no_starting_controllers_way() {
        let (_ground, runtime) = ground();
        drop(runtime.claim().unwrap());
        assert_eq!(runtime.running(), None);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    runtime.running();
                }
            });
            let failed = (0..300).filter(|_| runtime.claim().is_err()).count();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
        let lock = runtime.claim().unwrap();
        assert_eq!(runtime.running(), Some(0));
        drop(lock);
    }

    #[test]
    fn who_is_frozen_on_the_threshold_keeps_nobody_from_cleaning_up() {
        let (_ground, runtime) = ground();
        drop(runtime.claim().unwrap());
        let _frozen = take(&runtime.door_file(), true).unwrap().unwrap();
        assert!(matches!(runtime.door(), Err(Error::DoorHeld(_))));
        runtime.claim().unwrap();
    }

    #[test]
    fn a_controller_of_an_earlier_version_is_seen() {
        let (_ground, runtime) = ground();
        drop(runtime.claim().unwrap());
        let earlier = File::open(runtime.lock_file()).unwrap();
        earlier.lock().unwrap();
        assert!(matches!(runtime.claim(), Err(Error::AlreadyRunning(_))));
        drop(earlier);
        runtime.claim().unwrap();
    }

    #[test]
    fn there_is_one_controller_though_another_removes_its_directory() {
        let (_ground, runtime) = ground();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok((lock, _)) = runtime.claim() else { continue };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        let _door = runtime.door();
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        runtime.remove();
                        drop(lock);
                    }
                });
            }
        });
    }

    #[test]
    fn what_ends_is_entered_by_nobody() {
        let (_ground, runtime) = ground();
        assert!(matches!(runtime.door(), Err(Error::NotRunning(_))));
        let (lock, _) = runtime.claim().unwrap();
        let door = runtime.door().unwrap();
        assert!(runtime.door_if_free().unwrap().is_none());
        std::thread::scope(|scope| {
            let late = scope.spawn(|| runtime.door());
            std::thread::sleep(Duration::from_millis(50));
            runtime.remove();
            drop((door, lock));
            assert!(matches!(late.join().unwrap(), Err(Error::NotRunning(_))));
        });
    }
}
