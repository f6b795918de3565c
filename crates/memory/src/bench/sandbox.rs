//! A box: a cgroup v1 memory group with a limit, for one trial, removed when dropped.

use crate::backend::GROUP_NAME;
use crate::error::{Error, Result};
use crate::system::mounts::Mounts;
use crate::system::{read_number, write};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the names of boxes begin with; the number of the bench's process follows.
const PREFIX: &str = "ullage-bench-";

/// The bench that a box belongs to, if it is one.
pub(super) fn owner(path: &Path) -> Option<i32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// The box and what runs in it.
pub(super) struct Sandbox {
    pub path: PathBuf,
    children: Vec<Child>,
}

impl Sandbox {
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let root = Mounts::read()?.v1_memory.ok_or_else(|| {
            Error::NoController("  the bench divides a box of its own and needs a cgroup v1 memory hierarchy".into())
        })?;
        let path = root.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&path).map_err(Error::io("creating", &path))?;
        // From here on it goes with what fails.
        let made = Self { path, children: Vec::new() };
        for directory in ["user", "hog"].map(|group| made.path.join(group)) {
            fs::create_dir(&directory).map_err(Error::io("creating", &directory))?;
        }
        write(made.path.join("memory.limit_in_bytes"), &bytes.to_string())?;
        Ok(made)
    }

    /// Starts a command in a group of the box.
    pub fn start(&mut self, group: &str, command: &[OsString], nice: i32) -> Result<&mut Child> {
        let procs = self.path.join(group).join("cgroup.procs");
        let mut shell = Command::new("sh");
        // The shell enters the group, then becomes the command.
        shell.args(["-c", "echo $$ > \"$0\" && exec nice -n \"$@\""]).arg(procs).arg(nice.to_string()).args(command);
        self.spawn(&mut shell)
    }

    /// Starts a command outside the box.
    pub fn beside(&mut self, command: &[OsString]) -> Result<&mut Child> {
        let Some((program, arguments)) = command.split_first() else { return Err(Error::Invalid("no command".into())) };
        self.spawn(Command::new(program).args(arguments))
    }

    fn spawn(&mut self, command: &mut Command) -> Result<&mut Child> {
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(Error::io("starting", "a load"))?;
        self.children.push(child);
        self.children.last_mut().ok_or_else(|| Error::Invalid("no child".into()))
    }

    /// Bytes held by a group of the box; 0 if there is none.
    pub fn usage(&self, group: &str) -> u64 {
        read_number(self.path.join(group).join("memory.usage_in_bytes")).unwrap_or(0)
    }

    pub fn limit(&self, group: &str, bytes: u64) -> Result<()> {
        write(self.path.join(group).join("memory.limit_in_bytes"), &bytes.to_string())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ended_already = child.kill();
            let _nothing_to_tell = child.wait();
        }
        remove(&self.path);
    }
}

/// Groups empty some time after their last process ended.
pub(super) fn remove(path: &Path) {
    for _ in 0..100 {
        for group in ["user", "hog", GROUP_NAME] {
            let _not_empty_yet = fs::remove_dir(path.join(group));
        }
        if fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_says_whose_it_is() {
        assert_eq!(owner(Path::new("/sys/fs/cgroup/memory/ullage-bench-412-0-small")), Some(412));
        assert_eq!(owner(Path::new("/sys/fs/cgroup/memory/ullage-bench-x")), None);
        assert_eq!(owner(Path::new("/sys/fs/cgroup/memory/user.slice")), None);
    }
}
