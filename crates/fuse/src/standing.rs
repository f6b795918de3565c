//! The scheduling class of a thread that answers.
//!
//! Two decide about it, each in its own time: the thread, which gives way or does not ([`crate::courtesy`]), and whoever needs it to go
//! first for a while ([`crate::servers`]). What the thread decides meanwhile is so afterwards.

use crate::sys;
use parking_lot::Mutex;
use std::io;

/// What is wanted of one thread.
#[derive(Debug)]
pub(crate) struct Standing(Mutex<Wanted>);

#[derive(Debug)]
struct Wanted {
    thread: i32,
    /// How many want it to go first.
    first: u32,
    /// While it goes first: the class that it has afterwards.
    afterwards: Option<i32>,
}

impl Standing {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        Self(Mutex::new(Wanted { thread, first: 0, afterwards: None }))
    }

    /// Has the thread run when no other would, or like all others.
    pub fn give_way(&self, gives_way: bool) -> io::Result<()> {
        let class = if gives_way { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
        let mut wanted = self.0.lock();
        if wanted.afterwards.is_some() {
            wanted.afterwards = Some(class);
            return Ok(());
        }
        sys::set_class(wanted.thread, class)
    }

    /// Has the thread run before all that share time, where threads may, until as many have called `end_first`.
    pub fn begin_first(&self) {
        let mut wanted = self.0.lock();
        if wanted.first == 0 {
            let before = sys::class(wanted.thread);
            wanted.afterwards =
                before.and_then(|class| sys::set_class(wanted.thread, libc::SCHED_RR).map(|()| class)).ok();
        }
        wanted.first += 1;
    }

    pub fn end_first(&self) {
        let mut wanted = self.0.lock();
        wanted.first -= 1;
        if wanted.first == 0 {
            wanted.go_back();
        }
    }

    /// The thread answers no more: its number may soon be another one's.
    pub fn leave(&self) {
        self.0.lock().go_back();
    }
}

impl Wanted {
    fn go_back(&mut self) {
        if let Some(class) = self.afterwards.take()
            && let Err(error) = sys::set_class(self.thread, class)
        {
            tracing::warn!(%error, "a thread keeps going before others");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It got the class back that it had before: one that gave way then did so from there on, whatever it decided.
    #[test]
    fn what_a_thread_decides_while_it_goes_first_is_so_afterwards() {
        // On a thread of its own, which may be left in any class.
        let run = || {
            let standing = Standing::of_this_thread();
            let class = || sys::class(0).unwrap();
            if standing.give_way(true).and_then(|()| standing.give_way(false)).is_err() {
                eprintln!("skipped: this process may not leave SCHED_IDLE");
                return;
            }
            for decides in [false, true] {
                let after = if decides { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
                standing.give_way(!decides).unwrap();
                standing.begin_first();
                if class() != libc::SCHED_RR {
                    eprintln!("skipped: this process may not enter SCHED_RR");
                    return;
                }
                standing.give_way(decides).unwrap();
                assert_eq!(class(), libc::SCHED_RR, "it still goes first");
                standing.begin_first();
                standing.end_first();
                assert_eq!(class(), libc::SCHED_RR, "for the other one");
                standing.end_first();
                assert_eq!(class(), after);
            }
            standing.begin_first();
            standing.leave();
            assert_eq!(class(), libc::SCHED_IDLE, "left");
            standing.end_first();
            assert_eq!(class(), libc::SCHED_IDLE);
        };
        std::thread::spawn(run).join().unwrap();
    }
}
