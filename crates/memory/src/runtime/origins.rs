//! Where a contributed process came from, so that it can be put back.

use crate::error::{Error, Result};
use crate::system::hierarchy::Hierarchy;
use crate::system::{oom, processes};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Begins what a line says of when the kernel would have ended a process; what it says of groups has colons.
const SCORE: &str = "oom_score_adj ";

/// A file that is larger is freed of what has ended before more is written to it.
const LARGE: u64 = 64 << 10;

/// Notes the groups a process is in before it is moved: a line of `pid start line-of-/proc/PID/cgroup`
/// per hierarchy, and one of `pid start oom_score_adj N`, which is missing in files of earlier versions, and of who is `inside`
/// already: that score is ours. Names of groups are bytes.
pub fn record(file: &Path, pid: i32, inside: bool) -> Result<()> {
    let groups = fs::read(format!("/proc/{pid}/cgroup")).map_err(|_| Error::NoSuchProcess(pid))?;
    let started = processes::started(pid).ok_or(Error::NoSuchProcess(pid))?;
    let score = oom::score(pid).filter(|_| !inside).map(|score| format!("{SCORE}{score}"));
    let identity = format!("{pid} {started} ");
    let of_groups = lines(&groups).chain(score.as_deref().map(str::as_bytes));
    let text: Vec<u8> = of_groups.flat_map(|line| [identity.as_bytes(), line, b"\n"].concat()).collect();
    if fs::metadata(file).is_ok_and(|meta| meta.len() > LARGE) {
        forget_the_ended(file)?;
    }
    let mut out = OpenOptions::new().create(true).append(true).open(file).map_err(Error::io("opening", file))?;
    out.write_all(&text).map_err(Error::io("writing", file))
}

/// Leaves out the records of processes that have ended, but for the first: it stands for those who have no kin left. Who does
/// it is at the door.
fn forget_the_ended(file: &Path) -> Result<()> {
    let text = fs::read(file).map_err(Error::io("reading", file))?;
    let identity = |line: &[u8]| -> Option<(i32, u64)> {
        let mut words = line.splitn(3, |byte| *byte == b' ').map(|word| std::str::from_utf8(word).unwrap_or_default());
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    let first = lines(&text).next().and_then(identity);
    let mut latest = (None, false);
    let kept = lines(&text).filter(|line| {
        let who = identity(line);
        if latest.0 != who {
            latest = (who, who == first || who.is_some_and(|(pid, started)| processes::started(pid) == Some(started)));
        }
        latest.1
    });
    let kept: Vec<u8> = kept.flat_map(|line| [line, b"\n"].concat()).collect();
    super::replace(file, &kept)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// When the kernel would have ended a process, or the nearest of its ancestors with a record, before it was moved.
pub fn score_of(origins: &[u8], pid: i32) -> Option<i32> {
    let score = |record: &[u8]| std::str::from_utf8(record.strip_prefix(SCORE.as_bytes())?).ok()?.parse().ok();
    records(origins, pid).find_map(score)
}

/// The groups in `directory`'s hierarchy that a process may be put into, best first: the one that it came from, or, of a
/// process that was born inside, the nearest of its ancestors with a record. Of who has none left nobody knows: the
/// group above is as good as any, but not every one may have processes; then those others came from are.
pub fn returning_to(origins: &[u8], pid: i32, directory: &Path) -> Vec<PathBuf> {
    let own = records(origins, pid);
    let others = lines(origins).filter_map(|line| line.splitn(3, |byte| *byte == b' ').nth(2));
    let above = directory.parent().map(Path::to_owned);
    let hierarchy = Hierarchy::of(directory);
    let found = |record| resolve(record, directory, hierarchy.as_ref()?);
    own.filter_map(found).take(1).chain(above).chain(others.filter_map(found).take(1)).collect()
}

/// What is recorded of a process, then of its parent, and so on.
fn records(origins: &[u8], pid: i32) -> impl Iterator<Item = &[u8]> {
    let kin = std::iter::successors(Some(pid), |pid| processes::parent(*pid).filter(|parent| *parent > 0));
    kin.filter_map(|pid| Some(format!("{pid} {} ", processes::started(pid)?)))
        .flat_map(move |identity| lines(origins).filter_map(move |line| line.strip_prefix(identity.as_bytes())))
}

/// From `4:memory:/a/b` and a directory in a mount of the same hierarchy to the directory of `/a/b`.
fn resolve(line: &[u8], directory: &Path, hierarchy: &Hierarchy) -> Option<PathBuf> {
    let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let has = |file: &str| directory.join(file).exists();
    let matches = match controllers {
        b"" => has("cgroup.freeze"),
        names => names.split(|byte| *byte == b',').any(|name| match name {
            b"memory" => has("memory.limit_in_bytes"),
            b"freezer" => has("freezer.state"),
            _ => false,
        }),
    };
    let target = hierarchy.directory(Path::new(OsStr::from_bytes(path)))?;
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
        record(&file, me, false).unwrap();
        let mine = fs::read_to_string(&file).unwrap();
        let ended = |n: usize| format!("{} 7 4:memory:/{n}\n{} 7 0::/{n}\n", i32::MAX, i32::MAX - n as i32);
        let many: String = (1..3000).map(ended).collect();
        fs::write(&file, format!("1 0 4:memory:/first\n{many}{mine}")).unwrap();
        record(&file, me, false).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("1 0 4:memory:/first\n{mine}{mine}"));
        assert!(score_of(mine.as_bytes(), me).is_some());
    }

    /// Regression: who was to be ended first before it was marked was ended like its parent afterwards.
    #[test]
    fn a_score_of_ones_own_is_not_a_parents() {
        let me = std::process::id() as i32;
        let parent = processes::parent(me).unwrap();
        let line = |pid: i32, score: i32| format!("{pid} {} {SCORE}{score}\n", processes::started(pid).unwrap());
        assert_eq!(score_of((line(parent, 0) + &line(me, oom::FIRST)).as_bytes(), me), Some(oom::FIRST));
        assert_eq!(score_of(line(parent, 7).as_bytes(), me), Some(7), "born inside");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("origins");
        record(&file, me, true).unwrap();
        assert_eq!(score_of(&fs::read(&file).unwrap(), me), None, "the score of who is inside is ours");
    }
}
