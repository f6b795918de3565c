//! `run` and `mark`: putting processes into the contributed group (the paper's `maketransparent`).

use crate::backend::Members;
use crate::error::{Error, Result};
use crate::runtime::{RuntimeDir, Undo, record_origin};
use crate::system::{oom, processes};

/// How often children that appear while their parents are being moved are looked for.
const ROUNDS: usize = 5;

/// Puts a process and all its descendants into the group of the controller that runs in `runtime`: a
/// job started by cron is a shell and what it runs. Children born later follow by themselves. Gives
/// the processes moved.
pub fn mark(runtime: &RuntimeDir, pid: i32) -> Result<Vec<i32>> {
    processes::check(pid)?;
    // It may be a thread's number: what is written down, and found again, is processes'.
    let pid = processes::of_thread(pid)?;
    runtime.check()?;
    let _door = runtime.door()?;
    let (undo, members) = group(runtime, pid)?;
    let mut moved = Vec::new();
    admit(runtime, &members, pid)?;
    moved.push(pid);
    for _ in 0..ROUNDS {
        // The controller and its guard may be among them, and so may who asks.
        let children = processes::descendants(pid, &[undo.pid, std::process::id() as i32])?;
        let new: Vec<i32> = children.into_iter().filter(|child| !moved.contains(child)).collect();
        if new.is_empty() {
            break;
        }
        for child in new {
            match admit(runtime, &members, child) {
                Ok(()) | Err(Error::NoSuchProcess(_)) => moved.push(child),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(moved)
}

/// Puts this process in, to `exec` the contributed command.
pub fn enter(runtime: &RuntimeDir) -> Result<()> {
    let pid = std::process::id() as i32;
    runtime.check()?;
    let _door = runtime.door()?;
    let (_, members) = group(runtime, pid)?;
    admit(runtime, &members, pid)
}

fn group(runtime: &RuntimeDir, pid: i32) -> Result<(Undo, Members)> {
    // A status says that the first limit is in force.
    let undo = runtime.running().filter(|_| runtime.status().exists()).and_then(|_| Undo::read(&runtime.undo()));
    let undo = undo.ok_or_else(|| Error::NotRunning(runtime.path().to_owned()))?;
    if pid == undo.pid {
        return Err(Error::Invalid(format!("process {pid} is the controller itself")));
    }
    let members = Members { directories: undo.directories.clone() };
    Ok((undo, members))
}

fn admit(runtime: &RuntimeDir, members: &Members, pid: i32) -> Result<()> {
    record_origin(&runtime.origins(), pid, members.has(pid))?;
    let before = oom::score(pid);
    // What opaque work takes faster than memory comes back is missing for a moment: it is ours that goes then. Before it
    // enters, so that no child is born inside without it; a process may hide its files from its own user.
    let _it_is_bounded_all_the_same = oom::set_score(pid, oom::FIRST);
    members.admit(pid).inspect_err(|_| {
        let _gone = before.map(|score| oom::set_score(pid, score));
    })
}
