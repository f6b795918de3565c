//! Processes by their number.

use rustix::process::{Pid, Signal};
use std::time::Duration;

fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32).expect("a process id is positive")
}

/// Sends a signal.
pub fn signal(number: u32, signal: Signal) {
    let _ = rustix::process::kill_process(pid(number), signal);
}

/// Whether any thread of it still runs: as long as one is ending, what the process had open and locked still is. One
/// that has ended and was not yet waited for does not run.
pub fn runs(number: u32) -> bool {
    let ended = |thread: &std::path::Path| {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    };
    let threads = std::fs::read_dir(format!("/proc/{number}/task"));
    threads.into_iter().flatten().flatten().any(|thread| !ended(&thread.path()))
}

/// Waits for its end.
#[track_caller]
pub fn wait(number: u32) {
    crate::run::eventually("the process ends", Duration::from_secs(30), || !runs(number));
}

/// Kills it as a power cut would, and waits for its end.
#[track_caller]
pub fn kill(number: u32) {
    signal(number, Signal::KILL);
    wait(number);
}
