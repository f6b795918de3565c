//! What reaches a queue's thread from others: entries that workers or peers are done with, and that requests may still wait in the kernel.

use super::peer::Taken;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// An entry.
pub(super) enum Parcel {
    /// With the reply in place, and the identity to commit it under.
    Reply(Taken, u64),
    /// With a request.
    Request(Taken),
}

/// One queue's.
pub(super) struct Inbox {
    parcels: Mutex<Vec<Parcel>>,
    wake: OwnedFd,
    /// How often the queue's thread went to work or to rest: odd while it is at work.
    turns: AtomicU64,
    pub waiting: Waiting,
}

impl Inbox {
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { parcels: Mutex::default(), wake, turns: AtomicU64::new(0), waiting: Waiting::default() })
    }

    /// Readable while there is something.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub fn put(&self, parcel: Parcel) {
        let mut parcels = self.parcels.lock();
        parcels.push(parcel);
        if parcels.len() == 1 {
            self.wake();
        }
    }

    pub fn take(&self) -> Vec<Parcel> {
        let mut parcels = self.parcels.lock();
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *parcels)
    }

    /// The queue's thread goes to work, after it rested or at first.
    pub fn works(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// It has nothing to do.
    pub fn rests(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// Which of its turns the queue's thread is at work in, as far as is known.
    pub fn turn(&self) -> Option<u64> {
        Some(self.turns.load(Relaxed)).filter(|turns| turns % 2 == 1)
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
