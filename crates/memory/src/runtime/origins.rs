//! Where a contributed process came from, so that it can be put back.

use crate::error::{Error, Result};
use crate::system::{oom, processes, read};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Begins what a line says of when the kernel would have ended a process; what it says of groups has colons.
const SCORE: &str = "oom_score_adj ";

/// A file that is larger is freed of what has ended before more is written to it.
const LARGE: u64 = 64 << 10;

/// Notes the groups a process is in before it is moved: a line of `pid start line-of-/proc/PID/cgroup`
/// per hierarchy, and one of `pid start oom_score_adj N`, which is missing in files of earlier versions.
pub fn record(file: &Path, pid: i32) -> Result<()> {
    let groups = read(format!("/proc/{pid}/cgroup")).map_err(|_| Error::NoSuchProcess(pid))?;
    let started = processes::started(pid).ok_or(Error::NoSuchProcess(pid))?;
    let score = oom::score(pid).map(|score| format!("{SCORE}{score}"));
    let lines = groups.lines().chain(score.as_deref()).map(|line| format!("{pid} {started} {line}\n"));
    let lines: Vec<String> = lines.collect();
    if fs::metadata(file).is_ok_and(|meta| meta.len() > LARGE) {
        forget_the_ended(file)?;
    }
    let mut out = OpenOptions::new().create(true).append(true).open(file).map_err(Error::io("opening", file))?;
    out.write_all(lines.concat().as_bytes()).map_err(Error::io("writing", file))
}

/// Leaves out the records of processes that have ended, but for the first: it stands for those who have no kin left. Who does
/// it is at the door.
fn forget_the_ended(file: &Path) -> Result<()> {
    let text = read(file)?;
    let identity = |line: &str| -> Option<(i32, u64)> {
        let mut words = line.splitn(3, ' ');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    let first = text.lines().next().and_then(identity);
    let mut latest = (None, false);
    let kept = text.lines().filter(|line| {
        let who = identity(line);
        if latest.0 != who {
            latest = (who, who == first || who.is_some_and(|(pid, started)| processes::started(pid) == Some(started)));
        }
        latest.1
    });
    let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
    super::replace(file, kept.as_bytes())
}

/// When the kernel would have ended a process, or the nearest of its ancestors with a record, before it was moved. Who was born
/// inside came as one that is ended first, which says nothing as long as one of its kin came otherwise.
pub fn score_of(origins: &str, pid: i32) -> Option<i32> {
    let scores: Vec<i32> =
        records(origins, pid).filter_map(|record| record.strip_prefix(SCORE)?.parse().ok()).collect();
    scores.iter().find(|score| **score != oom::FIRST).or(scores.first()).copied()
}

/// The groups in `directory`'s hierarchy that a process may be put into, best first: the one that it came from, or, of a
/// process that was born inside, the nearest of its ancestors with a record. Of who has none left nobody knows: the
/// group above is as good as any, but not every one may have processes; then those others came from are.
pub fn returning_to(origins: &str, pid: i32, directory: &Path) -> Vec<PathBuf> {
    let own = records(origins, pid);
    let others = origins.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    let above = directory.parent().map(Path::to_owned);
    let found = |record| resolve(record, directory);
    own.filter_map(found).take(1).chain(above).chain(others.filter_map(found).take(1)).collect()
}

/// What is recorded of a process, then of its parent, and so on.
fn records(origins: &str, pid: i32) -> impl Iterator<Item = &str> {
    let kin = std::iter::successors(Some(pid), |pid| processes::parent(*pid).filter(|parent| *parent > 0));
    kin.filter_map(|pid| Some(format!("{pid} {} ", processes::started(pid)?)))
        .flat_map(move |identity| origins.lines().filter_map(move |line| line.strip_prefix(identity.as_str())))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: it grew with each process that ever came.
    #[test]
    fn what_has_ended_is_forgotten_but_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("origins");
        let me = std::process::id() as i32;
        record(&file, me).unwrap();
        let mine = fs::read_to_string(&file).unwrap();
        let ended = |n: usize| format!("{} 7 4:memory:/{n}\n{} 7 0::/{n}\n", i32::MAX, i32::MAX - n as i32);
        let many: String = (1..3000).map(ended).collect();
        fs::write(&file, format!("1 0 4:memory:/first\n{many}{mine}")).unwrap();
        record(&file, me).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("1 0 4:memory:/first\n{mine}{mine}"));
        assert!(score_of(&mine, me).is_some());
    }
}
