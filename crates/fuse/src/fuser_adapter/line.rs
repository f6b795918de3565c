//! The crate's threads take turns like readers of our own (`device/turns.rs`): each waits, when it is done with a request, until it
//! is needed again.

use crate::affinity;
use crate::courtesy::Machine;
use crate::device::{Follow, Place, Turns};
use crate::servers::{Servers, Serving};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

thread_local! {
    /// The place of the calling thread, which serves one session.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

struct Own {
    place: Place,
    follow: Option<Follow>,
    _serving: Serving,
    /// When it went to wait at the device.
    since: Instant,
}

/// The threads of a session.
pub(super) struct Line {
    turns: Arc<Turns>,
    came: AtomicUsize,
    cpus: Vec<usize>,
    /// None where threads may not give way to their callers: one that runs where its caller does would only send it to another CPU.
    machine: Option<Arc<Machine>>,
    servers: Servers,
}

/// A request under way on the calling thread.
pub(super) struct Turn {
    caller: u32,
    waited: Duration,
}

impl Line {
    /// Of so many threads, as long as those are not all held up.
    pub(super) fn of(threads: usize, servers: Servers) -> Self {
        let machine = Machine::new();
        let turns = Arc::new(Turns::new(threads, machine.is_some()));
        Self { turns, came: AtomicUsize::new(0), cpus: affinity::allowed(), machine, servers }
    }

    /// Begins a request of this process, 0 where that is not known.
    pub(super) fn turn(&self, caller: u32) -> Turn {
        OWN.with_borrow_mut(|own| {
            let own = own.get_or_insert_with(|| self.join());
            let waited = own.since.elapsed();
            own.place.took();
            Turn { caller, waited }
        })
    }

    fn join(&self) -> Own {
        let number = self.came.fetch_add(1, Relaxed);
        let serving = self.servers.enlist();
        let home = self.cpus.get(number % self.cpus.len().max(1)).copied().unwrap_or(0);
        Own {
            place: Place::new(Arc::clone(&self.turns), number),
            follow: self.machine.clone().map(|machine| Follow::new(home, Some(machine), serving.standing())),
            _serving: serving,
            since: Instant::now(),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        OWN.with_borrow_mut(|own| {
            let Some(own) = own else { return };
            if let Some(follow) = &mut own.follow {
                follow.consider(self.caller, own.place.is_alone());
            }
            own.place.did(self.caller, self.waited);
            // At the end of the session there is nothing to wait for.
            let _ = own.place.wait();
            own.since = Instant::now();
        });
    }
}
