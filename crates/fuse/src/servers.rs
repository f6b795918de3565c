//! The threads that answer the kernel, for whoever cannot wait until it is their turn.

use crate::sys::First;
use parking_lot::Mutex;
use std::sync::Arc;

/// A thread that answers.
#[derive(Debug)]
struct Server {
    thread: i32,
    /// How many want it to go first, and what makes it so.
    wanted: u32,
    first: Option<First>,
}

/// The threads of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers(Arc<Mutex<Vec<Server>>>);

/// The calling thread is one of them, until this is dropped.
pub(crate) struct Serving(Servers, i32);

impl Servers {
    /// Adds the calling thread.
    pub fn enlist(&self) -> Serving {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.lock().push(Server { thread, wanted: 0, first: None });
        Serving(self.clone(), thread)
    }

    /// Runs what has requests sent while those who answer them go before all others.
    pub fn first<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut chosen = Vec::new();
        for server in self.0.lock().iter_mut() {
            if server.wanted == 0 {
                server.first = First::of(server.thread);
            }
            server.wanted += 1;
            chosen.push(server.thread);
        }
        let outcome = work();
        for server in self.0.lock().iter_mut().filter(|it| chosen.contains(&it.thread)) {
            server.wanted -= 1;
            if server.wanted == 0 {
                server.first = None;
            }
        }
        outcome
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.lock().retain(|it| it.thread != self.1);
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
        let serving = servers.enlist();
        if First::of(own).is_none() {
            eprintln!("skipped: this process may not enter SCHED_RR");
            return;
        }
        assert_eq!(servers.first(|| class(own)), libc::SCHED_RR);
        assert_eq!(class(own), libc::SCHED_OTHER);
        // Two at once: the first one that is done leaves it to the other.
        let within = servers.first(|| {
            let inner = servers.first(|| class(own));
            (inner, class(own))
        });
        assert_eq!((within, class(own)), ((libc::SCHED_RR, libc::SCHED_RR), libc::SCHED_OTHER));
        drop(serving);
        assert_eq!(servers.first(|| class(own)), libc::SCHED_OTHER);
    }
}
