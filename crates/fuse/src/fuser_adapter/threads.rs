//! The crate's threads. It starts all of them when the session begins, and gives that up where one cannot be started: so it is tried before how
//! many can be, and nobody is told of a mount before they are there.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads and processes that others come to need: the daemon, the workers, who unmounts.
const OTHERS: usize = 8;
/// How long the crate's may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// As many of the threads `wanted` as can be started, with some left for others.
pub(super) fn startable(wanted: usize) -> io::Result<usize> {
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock();
    let mut started = Vec::new();
    let mut refused = None;
    while started.len() < wanted + OTHERS && refused.is_none() {
        let gate = Arc::clone(&gate);
        match std::thread::Builder::new().name("fuse-trial".into()).spawn(move || drop(gate.lock())) {
            Ok(thread) => started.push(thread),
            Err(error) => refused = Some(error),
        }
    }
    drop(held);
    let count = started.len();
    for thread in started {
        let _ = thread.join();
    }
    match refused {
        None => Ok(wanted),
        Some(_) if count > OTHERS => {
            tracing::info!("no more than {count} threads can be started: {} answer requests", count - OTHERS);
            Ok(count - OTHERS)
        }
        Some(error) => Err(too_few(error)),
    }
}

/// Waits until the last of so many threads is there. What ended the session before, if that is so.
pub(super) fn await_last(server: JoinHandle<io::Result<()>>, count: usize) -> io::Result<JoinHandle<io::Result<()>>> {
    // As the crate names it.
    let last = format!("fuser-{}\n", count - 1);
    let since = Instant::now();
    while !is_there(&last) && since.elapsed() < PATIENCE {
        if server.is_finished() {
            return Err(match join(server) {
                Ok(()) => io::Error::new(io::ErrorKind::NotConnected, "it was unmounted at once"),
                Err(error) => too_few(error),
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(server)
}

/// Whether this process has a thread of that name.
fn is_there(name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return true };
    threads.flatten().any(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|it| it == name))
}

/// What a session ended with.
pub(super) fn join(server: JoinHandle<io::Result<()>>) -> io::Result<()> {
    server.join().unwrap_or_else(|_| Err(io::Error::other("the thread that served the mount panicked")))
}

fn too_few(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let help =
        "allow this user more processes (`ulimit -u`), or the container or service more tasks (pids.max, TasksMax=)";
    io::Error::new(error.kind(), format!("too few threads can be started ({error}); {help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its mount was said to be there.
    #[test]
    fn a_session_that_ends_before_all_its_threads_are_there_is_told_of() {
        let ends = |kind: io::ErrorKind| std::thread::spawn(move || Err(io::Error::from(kind)));
        let told = |kind| await_last(ends(kind), 1000).unwrap_err().to_string();
        assert!(told(io::ErrorKind::WouldBlock).contains("ulimit -u"));
        assert!(!told(io::ErrorKind::PermissionDenied).contains("ulimit -u"));
        assert!(await_last(std::thread::spawn(|| Ok(())), 1000).is_err());
    }
}
