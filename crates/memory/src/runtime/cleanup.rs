//! Undoing: limits lifted, the frozen thawed, processes moved back, groups removed.

use super::origins::{returning_to, score_of};
use super::{RuntimeDir, others};
use crate::backend::{GROUP_NAME, Lowered, disable, hold};
use crate::error::{Error, Result};
use crate::sys;
use crate::system::{oom, processes, write};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a controller has made, written down before it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The controller.
    pub pid: i32,
    /// The groups created, in every hierarchy.
    #[serde(with = "super::paths::many")]
    pub directories: Vec<PathBuf>,
    /// It has stopped the processes in them by signals. Else those that are stopped were by others.
    #[serde(default)]
    pub stopped: bool,
    /// The groups whose children it has given the memory controller.
    #[serde(default, with = "super::paths::many")]
    pub enabled: Vec<PathBuf>,
}

impl Undo {
    /// Reads it.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_str(&others::read(path).ok()?).ok()
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|error| Error::Invalid(error.to_string()))?;
        super::replace(path, text.as_bytes())
    }

    /// The same where what was written down since is lost: where there is no freezer, processes that stand still may have been stopped.
    #[must_use]
    pub fn unaided(mut self) -> Self {
        let freezers = ["freezer.state", "cgroup.freeze"];
        self.stopped |= !self.directories.iter().any(|group| freezers.iter().any(|file| group.join(file).exists()));
        self
    }

    /// Undoes it, given what is known of where processes came from.
    pub fn lift(&self, origins: &[u8]) -> Vec<Error> {
        let mut failed = Vec::new();
        for directory in self.directories.iter().filter(|directory| is_ours(directory)) {
            failed.extend(release(directory, origins, self.stopped));
        }
        for base in self.enabled.iter().filter(|base| sys::is_cgroup(base)) {
            failed.extend(disable(base).err());
        }
        failed
    }
}

/// Undoes all that `undo.json` in the runtime directory names. Goes on past errors: the next step may
/// still help. Gives what could not be undone; a group somebody else removed needs no undoing.
pub fn lift(runtime: &RuntimeDir) -> Vec<Error> {
    lift_known(runtime, None)
}

/// The same of who knows what it has made, which may have been removed from the directory since (with the whole of it, when
/// its user has left).
pub fn lift_known(runtime: &RuntimeDir, made: Option<Undo>) -> Vec<Error> {
    let mut failed = Vec::new();
    let noted = fs::read(runtime.journal()).ok();
    if let Some(lowered) = noted.and_then(|note| Lowered::noted(&note)) {
        failed.extend(lowered.set_back().err());
    }
    if let Some(undo) = Undo::read(&runtime.undo()).or(made) {
        failed.extend(undo.lift(&fs::read(runtime.origins()).unwrap_or_default()));
    }
    failed
}

/// Whether it is a group such as a controller creates: whatever else a file names is left alone.
fn is_ours(directory: &Path) -> bool {
    let named = directory.file_name().is_some_and(|name| name.as_bytes().starts_with(GROUP_NAME.as_bytes()));
    named && directory.is_dir() && sys::is_cgroup(directory)
}

fn release(directory: &Path, origins: &[u8], stopped: bool) -> Vec<Error> {
    // One that another controller has taken since is none of ours.
    let Ok(Some(_held)) = hold(directory) else { return Vec::new() };
    let mut failed = Vec::new();
    let lifted =
        [("memory.limit_in_bytes", "-1"), ("memory.high", "max"), ("freezer.state", "THAWED"), ("cgroup.freeze", "0")];
    for (file, value) in lifted {
        let path = directory.join(file);
        if path.exists() {
            failed.extend(write(&path, value).err());
        }
    }
    // Processes may fork while they are moved: a few rounds, then what is left stays, unlimited.
    for _ in 0..20 {
        for pid in &processes::below(directory, None).unwrap_or_default() {
            if stopped {
                let _gone = sys::signal(*pid, libc::SIGCONT);
            }
            restore_score(origins, *pid);
            let enter = |target: PathBuf| write(target.join("cgroup.procs"), &pid.to_string());
            let _else_gone_or_stays_unlimited =
                returning_to(origins, *pid, directory).into_iter().any(|target| enter(target).is_ok());
        }
        for group in processes::groups_below(directory).iter().rev() {
            let _not_empty_yet = fs::remove_dir(group);
        }
        match fs::remove_dir(directory) {
            Ok(()) => return failed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return failed,
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    failed.push(Error::Invalid(format!(
        "{} still has processes and stays, without limits, until they end",
        directory.display()
    )));
    failed
}

/// Has the kernel end a process no earlier than before it was moved. Of who was born inside and has no kin left nobody
/// knows: as late as who cleans up, which has what the session has. What somebody has set since stays.
fn restore_score(origins: &[u8], pid: i32) {
    if oom::score(pid) == Some(oom::FIRST) {
        let mine = || oom::score(std::process::id() as i32);
        let _gone_or_not_lowered_but_by_root =
            score_of(origins, pid).or_else(mine).map(|score| oom::set_score(pid, score));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    /// Regression: what a controller in a box of such a name had made could not be written down.
    #[test]
    fn groups_of_any_names_are_remembered() {
        let ground = tempfile::tempdir().unwrap();
        let file = ground.path().join("undo.json");
        let directories = [b"/box/\xff\xfe".as_slice(), b"/box/plain"].map(|path| OsStr::from_bytes(path).into());
        let undo = Undo { pid: 1, directories: directories.into(), stopped: false, enabled: Vec::new() };
        undo.write(&file).unwrap();
        assert_eq!(Undo::read(&file), Some(undo));
        fs::write(&file, r#"{"pid":1,"directories":["/box/plain"]}"#).unwrap();
        assert_eq!(Undo::read(&file).unwrap().directories, [Path::new("/box/plain")], "as earlier versions wrote it");
    }

    /// Regression: who was stopped by signals stayed so for ever where the directory that says so was gone before the controller was killed.
    #[test]
    fn where_it_is_not_known_who_stopped_what_stands_still_it_goes_on_unless_a_freezer_did() {
        let ground = tempfile::tempdir().unwrap();
        let made = || Undo { directories: vec![ground.path().to_owned()], ..Undo::default() };
        assert!(made().unaided().stopped);
        fs::write(ground.path().join("freezer.state"), "").unwrap();
        assert!(!made().unaided().stopped);
    }

    #[test]
    fn only_groups_and_limits_of_the_kernel_are_undone() {
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        let _lock = runtime.claim().unwrap();
        let group = ground.path().join(GROUP_NAME);
        fs::create_dir(&group).unwrap();
        let (plain, limit) = (ground.path().join("precious"), group.join("memory.limit_in_bytes"));
        for file in [&plain, &limit, &group.join("memory.high")] {
            fs::write(file, "precious").unwrap();
        }
        Undo { pid: 1, directories: vec![group.clone()], stopped: false, enabled: Vec::new() }
            .write(&runtime.undo())
            .unwrap();
        for named in [&plain, &limit] {
            fs::write(runtime.journal(), named.as_os_str().as_bytes()).unwrap();
            assert!(lift(&runtime).is_empty());
        }
        for file in [plain, limit, group.join("memory.high")] {
            assert_eq!(fs::read(&file).unwrap(), b"precious", "{}", file.display());
        }
    }
}
