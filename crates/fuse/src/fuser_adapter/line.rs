//! The crate's threads take turns like readers of our own (`device/turns.rs`): each waits, when it is done with a request, until it
//! is needed again.

use crate::affinity;
use crate::counters::Tally;
use crate::courtesy::Machine;
use crate::device::{Follow, Place, Turns};
use crate::fuser_adapter::kernel::Connection;
use crate::servers::Serving;
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
    tally: Arc<Tally>,
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
    connection: Arc<Connection>,
}

/// A request under way on the calling thread.
pub(super) struct Turn {
    caller: u32,
    waited: Duration,
}

impl Line {
    /// Of so many threads, as long as those are not all held up.
    pub(super) fn of(threads: usize, connection: &Arc<Connection>) -> Self {
        let machine = Machine::new();
        let turns = Arc::new(Turns::new(threads, machine.is_some()));
        Self {
            turns,
            came: AtomicUsize::new(0),
            cpus: affinity::allowed(),
            machine,
            connection: Arc::clone(connection),
        }
    }

    /// Begins a request of this process, 0 where that is not known.
    pub(super) fn turn(&self, caller: u32, opcode: u32) -> Turn {
        self.with_own(|own| {
            own.tally.add(opcode);
            let waited = own.since.elapsed();
            own.place.took();
            Turn { caller, waited }
        })
    }

    /// A request that is answered, if at all, before the next one is read.
    pub(super) fn count(&self, opcode: u32) {
        self.with_own(|own| own.tally.add(opcode));
    }

    fn with_own<R>(&self, with: impl FnOnce(&mut Own) -> R) -> R {
        OWN.with_borrow_mut(|own| with(own.get_or_insert_with(|| self.join())))
    }

    fn join(&self) -> Own {
        let number = self.came.fetch_add(1, Relaxed);
        let serving = self.connection.servers.enlist();
        let home = self.cpus.get(number % self.cpus.len().max(1)).copied().unwrap_or(0);
        Own {
            place: Place::new(Arc::clone(&self.turns), number),
            follow: self.machine.clone().map(|machine| Follow::new(home, Some(machine), serving.standing())),
            tally: self.connection.counters.tally(),
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
