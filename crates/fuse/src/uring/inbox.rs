//! What reaches a queue's thread from others: entries that workers are done with, and that requests may still wait in the kernel.

use super::buffers::Buffers;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// One queue's.
pub(super) struct Inbox {
    /// Replies in place.
    done: Mutex<Vec<(usize, Buffers, u64)>>,
    wake: OwnedFd,
    pub waiting: Waiting,
}

impl Inbox {
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { done: Mutex::default(), wake, waiting: Waiting::default() })
    }

    /// Readable while there is something.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// An entry, with the identity to commit its reply under.
    pub fn put(&self, index: usize, buffers: Buffers, commit_id: u64) {
        let mut done = self.done.lock();
        done.push((index, buffers, commit_id));
        if done.len() == 1 {
            self.wake();
        }
    }

    pub fn take(&self) -> Vec<(usize, Buffers, u64)> {
        let mut done = self.done.lock();
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *done)
    }

    /// Has the queue's thread look once more whether requests wait.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Whether requests may wait in the kernel for a commit, as far as the queue's threads know.
///
/// The queue's own thread suspects it; whoever commits and fetches nothing has seen that none do. What was suspected meanwhile stays suspected.
#[derive(Default)]
pub(super) struct Waiting {
    suspected: AtomicU64,
    refuted: AtomicU64,
}

impl Waiting {
    /// Some may.
    pub fn suspect(&self) {
        self.suspected.fetch_add(1, SeqCst);
    }

    /// The suspicion that stands, if any: to be asked for before the commit that may refute it.
    pub fn suspicion(&self) -> Option<u64> {
        let suspected = self.suspected.load(SeqCst);
        (suspected != self.refuted.load(SeqCst)).then_some(suspected)
    }

    /// None did at a commit after `suspicion`.
    pub fn refute(&self, suspicion: u64) {
        self.refuted.fetch_max(suspicion, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_suspected_after_the_commit_is_not_refuted_by_it() {
        let waiting = Waiting::default();
        assert_eq!(waiting.suspicion(), None);
        waiting.suspect();
        let before = waiting.suspicion().unwrap();
        waiting.suspect();
        waiting.refute(before);
        let now = waiting.suspicion().expect("the second one stands");
        waiting.refute(now);
        waiting.refute(before);
        assert_eq!(waiting.suspicion(), None);
    }
}
