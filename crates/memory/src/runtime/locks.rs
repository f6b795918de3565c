//! Who is the controller, and the door by which processes come in.
//!
//! The *lock* is the controller's for its life. The *door* is held by who puts processes into the
//! group, and by who takes the group down: nobody enters what goes, and nobody takes down what was
//! just entered. Only who has the lock makes the door, so that who removes both leaves nothing.

use super::{Held, RuntimeDir, Undo, cleanup};
use crate::error::{Error, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

/// How long is waited at the door: whoever came in last may be frozen on its threshold for some time.
const AT_THE_DOOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// How often a controller that starts or ends at that moment is met on the way, and how long it is left alone then.
const TRIES: usize = 10;
const BETWEEN: Duration = Duration::from_millis(1);

impl RuntimeDir {
    /// Creates the directory, takes its lock, which the kernel releases when its holder dies, and
    /// undoes what a controller that was killed left. Gives what of that failed too.
    pub fn claim(&self) -> Result<(Held, Vec<Error>)> {
        for _ in 0..TRIES {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(self.path());
            made.map_err(Error::io("creating", self.path()))?;
            match self.take_over(true) {
                Err(error) if gone(&error) => std::thread::sleep(BETWEEN),
                other => return other,
            }
        }
        Err(self.taken())
    }

    /// The same of what a controller left, where one left something: nothing is created.
    pub fn inherit(&self) -> Result<(Held, Vec<Error>)> {
        self.take_over(false)
    }

    fn take_over(&self, create: bool) -> Result<(Held, Vec<Error>)> {
        self.check()?;
        let lock = match Held::take(&self.lock_file(), create)? {
            Some(lock) => lock,
            None => {
                // Who ends, or cleans up, is at the door.
                let _door = self.wait_at_the_door(false)?;
                Held::take(&self.lock_file(), create)?.ok_or_else(|| self.taken())?
            }
        };
        if !lock.keep_earlier_versions_out() {
            return Err(self.taken());
        }
        let _door = self.wait_at_the_door(true)?;
        let failed = cleanup::lift(self);
        self.forget();
        Ok((lock, failed))
    }

    /// Who was frozen on the threshold goes on when the group is lifted: the lock says whether somebody else will do that.
    fn wait_at_the_door(&self, create: bool) -> Result<Option<Held>> {
        match Held::wait_for(&self.door_file(), create, AT_THE_DOOR) {
            Ok(door) => Ok(Some(door)),
            Err(Error::DoorHeld(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn taken(&self) -> Error {
        Error::AlreadyRunning(Undo::read(&self.undo()).map_or(0, |undo| undo.pid))
    }

    /// Process number of the controller that runs here, if one does. Asking is in nobody's way.
    pub fn running(&self) -> Option<i32> {
        if Held::is(&self.lock_file()) {
            return Some(Undo::read(&self.undo()).map_or(0, |undo| undo.pid));
        }
        self.earlier_version()
    }

    /// Process number of the controller that runs here if it is of an earlier version, which has another lock and no door.
    fn earlier_version(&self) -> Option<i32> {
        let undo = Undo::read(&self.undo())?;
        Held::is_by_an_earlier_version(&self.lock_file()).then_some(undo.pid)
    }

    /// Waits for the door of the controller that runs here.
    pub fn door(&self) -> Result<Held> {
        if let Some(pid) = self.earlier_version() {
            return Err(Error::EarlierVersion(pid));
        }
        let door = Held::wait_for(&self.door_file(), false, AT_THE_DOOR);
        door.map_err(|error| if gone(&error) { self.not_running() } else { error })
    }

    /// The door, unless somebody is at it.
    pub fn door_if_free(&self) -> Result<Option<Held>> {
        Held::take(&self.door_file(), false)
    }

    pub(super) fn not_running(&self) -> Error {
        Error::NotRunning(self.path().to_owned())
    }
}

fn gone(error: &Error) -> bool {
    matches!(error, Error::NotRunning(_)) || error.errno() == Some(libc::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    fn ground() -> (tempfile::TempDir, RuntimeDir) {
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        (ground, runtime)
    }

    /// What a controller writes down before it makes anything.
    fn write_undo(runtime: &RuntimeDir) {
        Undo { pid: 4711, directories: Vec::new(), stopped: false, enabled: Vec::new() }
            .write(&runtime.undo())
            .unwrap();
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
            // As after an end in order, and as after a kill: then the lock of earlier versions is asked for too.
            let failed = |killed: bool| {
                let claim = || {
                    if killed {
                        write_undo(&runtime);
                    }
                    runtime.claim()
                };
                (0..300).filter(|_| claim().is_err()).count()
            };
            let failed = failed(false) + failed(true);
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
        let _frozen = Held::take(&runtime.door_file(), true).unwrap().unwrap();
        assert!(matches!(runtime.door(), Err(Error::DoorHeld(_))));
        runtime.claim().unwrap();
    }

    /// Only who started a controller saw it: whoever asked was told that none runs.
    #[test]
    fn a_controller_of_an_earlier_version_is_seen() {
        let (_ground, runtime) = ground();
        drop(runtime.claim().unwrap());
        fs::remove_file(runtime.door_file()).unwrap();
        write_undo(&runtime);
        assert_eq!(runtime.running(), None);
        let earlier = File::open(runtime.lock_file()).unwrap();
        earlier.lock().unwrap();
        assert_eq!(runtime.running(), Some(4711));
        assert!(matches!(runtime.door(), Err(Error::EarlierVersion(4711))));
        assert!(matches!(runtime.claim(), Err(Error::AlreadyRunning(4711))));
        assert!(!runtime.door_file().exists());
        earlier.unlock().unwrap();
        assert_eq!(runtime.running(), None);
        runtime.claim().unwrap();
    }

    /// The guard, or who started another controller, made the door anew behind the back of one that removed it,
    /// and the directory stayed.
    #[test]
    fn nobody_makes_a_door_while_a_controller_ends() {
        let (_ground, runtime) = ground();
        let (lock, _) = runtime.claim().unwrap();
        fs::remove_file(runtime.door_file()).unwrap();
        assert!(runtime.inherit().is_err());
        assert!(matches!(runtime.claim(), Err(Error::AlreadyRunning(_))));
        assert!(!runtime.door_file().exists());
        runtime.remove();
        drop(lock);
        assert!(runtime.inherit().is_err());
        assert!(!runtime.path().exists());
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
            let late = scope.spawn(|| {
                std::iter::repeat_with(|| runtime.door()).find(|door| !matches!(door, Err(Error::DoorHeld(_)))).unwrap()
            });
            std::thread::sleep(Duration::from_millis(50));
            runtime.remove();
            drop((door, lock));
            assert!(matches!(late.join().unwrap(), Err(Error::NotRunning(_))));
        });
    }
}
