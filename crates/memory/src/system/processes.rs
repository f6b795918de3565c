//! Which processes there are, and whose.

use crate::error::{Error, Result};
use crate::sys;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// All processes this user may look into, kernel threads aside.
pub fn all() -> Result<Vec<i32>> {
    let user = sys::effective_user();
    let entries = fs::read_dir("/proc").map_err(Error::io("listing", "/proc"))?;
    let mine = |entry: &fs::DirEntry| user == 0 || entry.metadata().is_ok_and(|meta| meta.uid() == user);
    Ok(entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry)))
        .filter(|(_, entry)| mine(entry))
        .map(|(pid, _)| pid)
        .collect())
}

/// Processes in a cgroup directory and all below it, except below `without`.
pub fn below(group: &Path, without: Option<&Path>) -> Result<Vec<i32>> {
    let mut found = members(group)?;
    // A group may go while its siblings are read; the one asked for may not.
    for directory in groups_below(group).iter().filter(|group| !without.is_some_and(|one| group.starts_with(one))) {
        found.extend(members(directory).unwrap_or_default());
    }
    Ok(found)
}

/// The groups below one, each after its parent.
pub fn groups_below(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let groups: Vec<PathBuf> =
            entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect();
        found.extend(groups);
        next += 1;
    }
    found.split_off(1)
}

/// Processes directly in a cgroup.
pub fn members(group: &Path) -> Result<Vec<i32>> {
    let path = group.join("cgroup.procs");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 0).collect()),
        // ENODEV: the group was removed while its file was open.
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => {
            Err(Error::GroupVanished(group.to_owned()))
        }
        Err(error) => Err(Error::io("reading", path)(error)),
    }
}

/// Checks that a process exists and that the caller may decide over it.
pub fn check(pid: i32) -> Result<()> {
    if pid <= 0 {
        return Err(Error::NoSuchProcess(pid));
    }
    let meta = fs::metadata(format!("/proc/{pid}")).map_err(|_| Error::NoSuchProcess(pid))?;
    let user = sys::effective_user();
    if user != 0 && meta.uid() != user { Err(Error::NotYours(pid)) } else { Ok(()) }
}

/// The process of a thread, which has a number, and a directory in `/proc`, as its process has.
pub fn of_thread(number: i32) -> Result<i32> {
    let status = super::text(format!("/proc/{number}/status")).map_err(|_| Error::NoSuchProcess(number))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.ok_or(Error::NoSuchProcess(number))
}

/// Children of a process, theirs, and so on, as they are now; without some and what descends from them.
pub fn descendants(pid: i32, without: &[i32]) -> Result<Vec<i32>> {
    let parents: Vec<(i32, i32)> = all()?.into_iter().filter_map(|child| Some((child, parent(child)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&one) = found.get(next) {
        let children = parents.iter().filter(|(child, parent)| *parent == one && !without.contains(child));
        found.extend(children.map(|(child, _)| child));
        next += 1;
    }
    Ok(found.split_off(1))
}

/// Who started a process, or has inherited it; 0 where nobody has.
pub fn parent(pid: i32) -> Option<i32> {
    fields(pid)?.get(1)?.parse().ok()
}

/// What a process does: `R`, `S`, `T` when it is stopped, and so on.
pub fn state(pid: i32) -> Option<char> {
    fields(pid)?.first()?.chars().next()
}

/// When a process started, in clock ticks since boot: with the pid, its identity.
pub fn started(pid: i32) -> Option<u64> {
    fields(pid)?.get(19)?.parse().ok()
}

/// CPU time used so far, in clock ticks (hundredths of a second).
pub fn cpu_ticks(pid: i32) -> Option<u64> {
    let fields = fields(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Major faults so far: pages that had to be read.
pub fn major_faults(pid: i32) -> Option<u64> {
    fields(pid)?.get(9)?.parse().ok()
}

/// Fields of `/proc/PID/stat` after the command name, which may itself hold blanks and brackets.
fn fields(pid: i32) -> Option<Vec<String>> {
    let text = super::text(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_pid_that_is_gone_is_named() {
        assert!(matches!(check(0), Err(Error::NoSuchProcess(0))));
        assert!(matches!(check(i32::MAX), Err(Error::NoSuchProcess(i32::MAX))));
        check(std::process::id() as i32).unwrap();
    }

    #[test]
    fn children_of_children_are_found() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let me = std::process::id() as i32;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let sleep = loop {
            assert!(std::time::Instant::now() < until, "no grandchild appeared");
            if let [sleep] = descendants(shell.id() as i32, &[]).unwrap()[..] {
                break sleep;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert!(descendants(me, &[]).unwrap().contains(&sleep));
        assert!(!descendants(me, &[shell.id() as i32]).unwrap().contains(&sleep));
        sys::signal(sleep, libc::SIGKILL).unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_name_that_is_cut_within_a_letter_hides_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("программа");
        // No copy: what another thread starts meanwhile would have it open for writing, and it could not be run.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg0("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        // The kernel lets the parent of a vfork(2) go on before it names the child after its program.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while String::from_utf8(fs::read(format!("/proc/{pid}/comm")).unwrap()).is_ok() {
            assert!(std::time::Instant::now() < until, "fifteen bytes of letters of two");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let identity = (started(pid), parent(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(identity.0.is_some() && identity.1 == Some(std::process::id() as i32), "{identity:?}");
    }

    #[test]
    fn this_process_has_an_identity_and_cpu_time() {
        let me = std::process::id() as i32;
        assert!(started(me).is_some() && cpu_ticks(me).is_some() && major_faults(me).is_some());
        assert!(all().unwrap().contains(&me));
    }
}
