//! Moving processes into groups, and holding those.

use crate::error::{Error, Result};
use crate::system::processes;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a group is asked for before it counts as another's.
const HOLD_TRIES: usize = 30;

/// The directories a contributed process is a member of.
#[derive(Clone, Debug)]
pub struct Members {
    /// One per hierarchy; the first holds the memory controller.
    pub directories: Vec<PathBuf>,
}

impl Members {
    /// Whether a process is in already.
    pub fn has(&self, pid: i32) -> bool {
        let first = self.directories.first();
        first.is_some_and(|group| processes::below(group, None).is_ok_and(|members| members.contains(&pid)))
    }

    /// Puts a process in.
    pub fn admit(&self, pid: i32) -> Result<()> {
        processes::check(pid)?;
        self.directories.iter().try_for_each(|directory| enter(directory, pid))
    }
}

/// Bits of what v1 moves with a process: its anonymous memory, and file pages that it maps.
const ANONYMOUS_AND_FILE: &str = "3";

/// Has memory come with those that enter a group of v1. Newer kernels refuse: there it stays charged where it was.
pub fn bring_memory(group: &Path) {
    let _kernel_cannot = move_charges(group, ANONYMOUS_AND_FILE);
}

fn move_charges(group: &Path, bits: &str) -> Result<()> {
    crate::system::write(group.join("memory.move_charge_at_immigrate"), bits)
}

/// Puts one process in one group.
pub fn enter(directory: &Path, pid: i32) -> Result<()> {
    let enter = || crate::system::write(directory.join("cgroup.procs"), &pid.to_string());
    let entered = match enter() {
        // Its memory does not fit into what is lent: then it comes without.
        Err(error) if error.errno() == Some(libc::ENOMEM) && move_charges(directory, "0").is_ok() => {
            let entered = enter();
            bring_memory(directory);
            entered
        }
        other => other,
    };
    entered.map_err(|error| match error.errno() {
        Some(libc::ESRCH) => Error::NoSuchProcess(pid),
        Some(libc::ENOENT | libc::ENODEV) => Error::GroupVanished(directory.to_owned()),
        Some(libc::EACCES | libc::EPERM) => Error::Invalid(format!(
            "process {pid} cannot be moved into {}: the kernel asks for write permission on the cgroup.procs of the \
             closest common ancestor; start it with 'ullage memory run', inside the delegated part",
            directory.display()
        )),
        _ => error,
    })
}

/// The groups directly below `base`, without one.
pub fn children(base: &Path, without: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    groups.filter(|path| path != without).collect()
}

/// Creates a group's directory, or takes the one that a killed controller left, but not one that is
/// held: a group has one controller. It is held as long as the file stays open.
pub fn create(directory: &Path) -> Result<File> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::io("creating the cgroup", directory)(error));
        }
        _ => {}
    }
    let held = hold(directory)?.ok_or_else(|| Error::BoxTaken(directory.to_owned()))?;
    thaw(directory)?;
    Ok(held)
}

/// Who left a group may have been killed while it was frozen: who enters would wait for ever.
fn thaw(directory: &Path) -> Result<()> {
    let states =
        [("freezer.state", "THAWED"), ("cgroup.freeze", "0")].map(|(file, state)| (directory.join(file), state));
    states.iter().filter(|(file, _)| file.exists()).try_for_each(|(file, state)| crate::system::write(file, state))
}

/// Holds a group; `None` where another controller does.
pub fn hold(directory: &Path) -> Result<Option<File>> {
    let file = File::open(directory).map_err(Error::io("opening", directory))?;
    for _ in 0..HOLD_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            // A process that was about to become another program when its holder ended has it still.
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(Error::io("locking", directory)(error)),
        }
    }
    Ok(None)
}

/// A missing file in a group that is gone means that the group vanished.
pub fn vanished(directory: &Path) -> impl Fn(Error) -> Error {
    move |error| match error.errno() {
        Some(libc::ENOENT | libc::ENODEV) if !directory.exists() => Error::GroupVanished(directory.to_owned()),
        Some(libc::ENODEV) => Error::GroupVanished(directory.to_owned()),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a group that was left frozen was taken over as it was, and who was put in stood still.
    #[test]
    fn what_was_left_frozen_is_thawed() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["freezer.state", "cgroup.freeze"].map(|name| dir.path().join(name));
        for (file, frozen) in files.iter().zip(["FROZEN", "1"]) {
            std::fs::write(file, frozen).unwrap();
        }
        create(dir.path()).unwrap();
        assert_eq!(files.map(|file| std::fs::read_to_string(file).unwrap()), ["THAWED", "0"]);
    }
}
