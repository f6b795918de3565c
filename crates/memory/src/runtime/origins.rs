//! Where a contributed process came from, so that it can be put back.

use crate::error::{Error, Result};
use crate::system::{oom, processes, read};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Begins what a line says of when the kernel would have ended a process; what it says of groups has colons.
const SCORE: &str = "oom_score_adj ";

/// Notes the groups a process is in before it is moved: a line of `pid start line-of-/proc/PID/cgroup`
/// per hierarchy, and one of `pid start oom_score_adj N`, which is missing in files of earlier versions.
pub fn record(file: &Path, pid: i32) -> Result<()> {
    let groups = read(format!("/proc/{pid}/cgroup")).map_err(|_| Error::NoSuchProcess(pid))?;
    let started = processes::started(pid).ok_or(Error::NoSuchProcess(pid))?;
    let score = oom::score(pid).map(|score| format!("{SCORE}{score}"));
    let lines = groups.lines().chain(score.as_deref()).map(|line| format!("{pid} {started} {line}\n"));
    let lines: Vec<String> = lines.collect();
    let mut out = OpenOptions::new().create(true).append(true).open(file).map_err(Error::io("opening", file))?;
    out.write_all(lines.concat().as_bytes()).map_err(Error::io("writing", file))
}

/// When the kernel would have ended a process, as it was before it was moved.
pub fn score_of(origins: &str, pid: i32) -> Option<i32> {
    let own = format!("{pid} {} {SCORE}", processes::started(pid)?);
    origins.lines().find_map(|line| line.strip_prefix(own.as_str())?.parse().ok())
}

/// The group in `directory`'s hierarchy that a process came from. A child of a marked process has no
/// record of its own: then the first one recorded in that hierarchy is as good as any of its kin's.
pub fn returning_to(origins: &str, pid: i32, directory: &Path) -> Option<PathBuf> {
    let identity = format!("{pid} {} ", processes::started(pid)?);
    let own = origins.lines().filter_map(|line| line.strip_prefix(identity.as_str()));
    let kin = origins.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    own.chain(kin).find_map(|line| resolve(line, directory))
}

/// From `4:memory:/a/b` and a directory in a mount of the same hierarchy to the directory of `/a/b`.
fn resolve(line: &str, directory: &Path) -> Option<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let has = |file: &str| directory.join(file).exists();
    let matches = match controllers {
        "" => has("cgroup.freeze"),
        names => names.split(',').any(|name| match name {
            "memory" => has("memory.limit_in_bytes"),
            "freezer" => has("freezer.state"),
            _ => false,
        }),
    };
    // The mount point is the topmost ancestor that is a group.
    let root = directory.ancestors().take_while(|ancestor| ancestor.join("cgroup.procs").exists()).last()?;
    let target = root.join(path.trim_start_matches('/'));
    (matches && !target.starts_with(directory) && target.is_dir()).then_some(target)
}
