//! Threads of the file system's own.
//!
//! A new thread is like the one that started it. That may be one that answers the kernel: bound to the CPU of whom it answers, and of the
//! class that gives way to everybody. On one CPU that somebody else keeps busy a thread of that class hardly runs, for how many others
//! may be idle; and it holds what others wait for.

use crate::sys;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

/// Where threads may run: wherever whoever made the first space of this process may.
static CPUS: OnceLock<Option<CpuSet>> = OnceLock::new();

/// Notes where threads may run. Called before there are any that answer the kernel.
pub(crate) fn note_cpus() {
    CPUS.get_or_init(|| sched_getaffinity(None).ok());
}

/// Starts a thread that is bound to no CPU, and gives way to nobody.
pub(crate) fn start(name: &str, what: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    named(name)?.spawn(move || {
        be_ordinary(CPUS.get().and_then(Option::as_ref));
        what();
    })
}

/// Does one thing beside another, or before it where no thread can be started.
pub(crate) fn beside<T: Send, U>(name: &str, one: impl Fn() -> T + Sync, other: impl FnOnce() -> U) -> (T, U) {
    std::thread::scope(|scope| match named(name).and_then(|builder| builder.spawn_scoped(scope, &one)) {
        Ok(thread) => {
            let other = other();
            (thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
        }
        Err(_) => (one(), other()),
    })
}

#[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "tests have none started"))]
fn named(name: &str) -> io::Result<Builder> {
    #[cfg(test)]
    tests::may_start()?;
    Ok(Builder::new().name(name.to_owned()))
}

/// Has the calling thread run on any of these CPUs, and give way to nobody, whatever thread started it.
pub fn be_ordinary(cpus: Option<&CpuSet>) {
    if let Some(cpus) = cpus {
        let _ = sched_setaffinity(None, cpus);
    }
    sys::share_time();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// This thread can start no others.
        pub(crate) static NONE_LEFT: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn may_start() -> io::Result<()> {
        if NONE_LEFT.get() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    #[test]
    fn two_things_are_done_one_after_the_other_where_no_thread_can_be_started() {
        let own = || std::thread::current().id();
        let (one, other) = beside("test", own, own);
        assert!(one != other && other == own());
        NONE_LEFT.set(true);
        assert_eq!(beside("test", own, own), (own(), own()));
        NONE_LEFT.set(false);
    }

    /// The class of the calling thread.
    fn class() -> libc::c_int {
        // SAFETY: takes a thread's number, 0 for this one, and touches no memory.
        unsafe { libc::sched_getscheduler(0) }
    }

    fn now() -> (CpuSet, libc::c_int) {
        (sched_getaffinity(None).unwrap(), class())
    }

    #[test]
    fn what_a_thread_starts_that_answers_the_kernel_is_bound_to_no_cpu_and_gives_way_to_nobody() {
        note_cpus();
        let cpus = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).unwrap();
        let queue = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            // SAFETY: a plain number.
            let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel reads one sched_param behind the pointer, which outlives the call; 0 is this thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) }, 0);
            let before = std::thread::spawn(now).join().unwrap();
            let (tells, told) = std::sync::mpsc::channel();
            start("test", move || tells.send(now()).unwrap()).unwrap().join().unwrap();
            (before, told.recv().unwrap())
        });
        let (before, after) = queue.join().unwrap();
        assert_eq!((before.0.count(), before.1), (1, libc::SCHED_IDLE), "others are like it");
        assert_eq!(after.0, cpus);
        if rustix::process::geteuid().is_root() {
            assert_eq!(after.1, libc::SCHED_OTHER);
        }
    }
}
