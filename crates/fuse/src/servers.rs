//! The threads that answer the kernel, for whoever cannot wait until it is their turn.

use crate::sys::First;
use parking_lot::Mutex;
use std::sync::Arc;

/// A thread, and the CPU whose requests it answers; none for one that answers any.
type Server = (i32, Option<usize>);

/// The threads of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers(Arc<Mutex<Vec<Server>>>);

/// The calling thread is one of them, until this is dropped.
pub(crate) struct Serving(Servers, i32);

impl Servers {
    /// Adds the calling thread.
    pub fn enlist(&self, cpu: Option<usize>) -> Serving {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.lock().push((thread, cpu));
        Serving(self.clone(), thread)
    }

    /// Runs what sends requests from here while those who answer them go before all others.
    pub fn first<T>(&self, work: impl FnOnce() -> T) -> T {
        let cpu = rustix::thread::sched_getcpu();
        let threads = self.0.lock();
        let first: Vec<First> =
            threads.iter().filter(|it| it.1.is_none_or(|of| of == cpu)).filter_map(|it| First::of(it.0)).collect();
        drop(threads);
        let outcome = work();
        drop(first);
        outcome
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.lock().retain(|it| it.0 != self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scheduling class of a thread, as the kernel tells it.
    fn class(thread: i32) -> i32 {
        // SAFETY: takes a thread and touches no memory.
        unsafe { libc::sched_getscheduler(thread) }
    }

    #[test]
    fn those_who_answer_go_first_meanwhile_and_no_longer() {
        let servers = Servers::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let serving = servers.enlist(None);
        if First::of(own).is_none() {
            eprintln!("skipped: this process may not enter SCHED_RR");
            return;
        }
        assert_eq!(servers.first(|| class(own)), libc::SCHED_RR);
        assert_eq!(class(own), libc::SCHED_OTHER);
        drop(serving);
        assert_eq!(servers.first(|| class(own)), libc::SCHED_OTHER);
        let elsewhere = servers.enlist(Some(usize::MAX));
        assert_eq!(servers.first(|| class(own)), libc::SCHED_OTHER);
        drop(elsewhere);
    }
}
