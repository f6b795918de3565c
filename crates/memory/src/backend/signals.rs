//! Signals to all of a group, where the kernel has no freezer, or nothing that ends them at once.

use crate::error::{Error, Result};
use crate::sys;
use crate::system::processes;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// How often is looked for who was born meanwhile, and how long apart.
const PASSES: usize = 100;
const BETWEEN: Duration = Duration::from_millis(1);

/// Sends a signal to every process of a group and those below it, until nobody is found that was born meanwhile. Processes
/// that end meanwhile are no error. Gives those that may not be sent one: who became another user by setuid.
pub fn signal_all(directory: &Path, signal: i32) -> Result<Vec<i32>> {
    signal_but(directory, signal, HashSet::new())
}

/// Processes by number, and when they started.
pub type Known = HashMap<i32, u64>;

/// Those of a group that are stopped, by their user or a shell of his.
pub fn stopped(directory: &Path) -> Result<Known> {
    let all = processes::below(directory, None)?.into_iter().filter(|pid| processes::state(*pid) == Some('T'));
    Ok(all.filter_map(|pid| Some((pid, processes::started(pid)?))).collect())
}

/// Lets all of a group go on, but for those who were stopped `before`.
pub fn resume(directory: &Path, before: &Known) -> Result<()> {
    let stay = before.iter().filter(|(pid, started)| processes::started(**pid) == Some(**started));
    signal_but(directory, libc::SIGCONT, stay.map(|(pid, _)| *pid).collect()).map(drop)
}

/// As if some had been told already.
fn signal_but(directory: &Path, signal: i32, mut told: HashSet<i32>) -> Result<Vec<i32>> {
    let mut refused = Vec::new();
    let mut settled = false;
    for _ in 0..PASSES {
        let all = processes::below(directory, None)?;
        let new: Vec<i32> = all.iter().copied().filter(|pid| told.insert(*pid)).collect();
        // Who was about to fork when it was told has a child that was not listed yet.
        if new.is_empty() && settled {
            break;
        }
        for pid in new {
            match sys::signal(pid, signal).map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) | Err((Some(libc::ESRCH), _)) => {}
                Err((Some(libc::EPERM), _)) => refused.push(pid),
                Err((_, error)) => return Err(Error::io("signalling the processes of", directory)(error)),
            }
        }
        settled = all.iter().all(|pid| refused.contains(pid) || has_obeyed(*pid, signal));
        if !settled {
            std::thread::sleep(BETWEEN);
        }
    }
    Ok(refused)
}

/// Whether a process does nothing more after a signal that is to have that effect, or has ended.
fn has_obeyed(pid: i32, signal: i32) -> bool {
    match (signal, processes::state(pid)) {
        (libc::SIGSTOP, Some(state)) => matches!(state, 'T' | 't' | 'Z' | 'X'),
        // Frozen, or deep in the kernel, it does nothing more before it ends.
        (libc::SIGKILL, Some(state)) => matches!(state, 'Z' | 'X' | 'D'),
        _ => true,
    }
}
