//! What callers hand to the worker.

use crate::{Binding, Fresh};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// So many waiting files are worth a wake-up.
const MANY: usize = 128;

#[derive(Default)]
struct Pending {
    work: Work,
    stop: bool,
    poked: bool,
}

/// What there is to do.
#[derive(Default)]
pub struct Work {
    /// Of no series of the present parameters.
    pub released: Vec<Binding>,
    pub abandoned: Vec<Fresh>,
    pub held: Vec<String>,
    pub stop: bool,
}

/// The way to the worker. A wake-up costs the caller a system call, so a worker that looks again within
/// milliseconds anyway is only woken when much is waiting.
#[derive(Default)]
pub struct Inbox {
    pending: Mutex<Pending>,
    wake: Condvar,
    /// The worker sleeps until somebody wakes it.
    deep: AtomicBool,
}

impl Inbox {
    pub fn release(&self, binding: Binding) {
        self.add(|work| work.released.push(binding));
    }

    /// A file was put among the `waiting` released ones of its series.
    pub fn released(&self, waiting: usize) {
        if waiting.is_multiple_of(MANY) || self.deep.load(Ordering::Relaxed) {
            self.poke();
        }
    }

    /// A caller found that a file is held, and moved it into quarantine.
    pub fn held(&self, name: String) {
        self.add(|work| work.held.push(name));
    }

    pub fn abandon(&self, fresh: Fresh) {
        self.add(|work| work.abandoned.push(fresh));
    }

    fn add(&self, put: impl FnOnce(&mut Work)) {
        let many = {
            let mut pending = self.pending.lock();
            put(&mut pending.work);
            (pending.work.released.len() + pending.work.abandoned.len()).is_multiple_of(MANY)
        };
        if many || self.deep.load(Ordering::Relaxed) {
            self.poke();
        }
    }

    /// Ready files run low.
    pub fn poke(&self) {
        let mut pending = self.pending.lock();
        if !std::mem::replace(&mut pending.poked, true) {
            self.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        self.pending.lock().stop = true;
        self.wake.notify_one();
    }

    /// What there is to do, after `pause` at most.
    pub fn wait(&self, pause: Duration, deep: bool) -> Work {
        let mut pending = self.pending.lock();
        if deep && pending.work.released.is_empty() && pending.work.abandoned.is_empty() {
            self.deep.store(true, Ordering::Relaxed);
        }
        if !pending.stop && !pending.poked {
            self.wake.wait_for(&mut pending, pause);
        }
        self.deep.store(false, Ordering::Relaxed);
        pending.poked = false;
        let stop = pending.stop;
        Work { stop, ..std::mem::take(&mut pending.work) }
    }
}
