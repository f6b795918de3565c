//! What became durable and waits for the mirror's thread.

use super::Left;
use crate::PoolSettings;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use ullage_catalog::inode_of_key;
use ullage_kv::{Durable, Follow};
use ullage_types::FileId;

/// What has not been mirrored yet wakes the thread at this size, in bytes of memory.
const RINGS_AT: usize = 32 << 20;
/// No more is kept, in bytes: a pool may hang, and the space must not grow meanwhile.
pub(super) const KEPT_MAX: usize = 4 * RINGS_AT;

/// What a turn of the thread has to do.
#[derive(Default)]
pub(super) struct Turn {
    /// What became durable, in order.
    pub(super) waiting: Vec<Durable>,
    /// Files whose records changed in what was not kept.
    pub(super) changed: BTreeSet<FileId>,
    /// Something was not kept: only a new snapshot makes up for it.
    pub(super) gap: bool,
    /// Pools that were added to the space, each with what it is to leave free.
    pub(super) joined: Vec<(PoolSettings, Left)>,
    /// It is the last turn.
    pub(super) last: bool,
}

impl Turn {
    /// The files whose records changed.
    pub(super) fn changed_files(&mut self) -> BTreeSet<FileId> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(self.waiting.iter().flat_map(changed_in));
        changed
    }
}

fn changed_in(changes: &Durable) -> impl Iterator<Item = FileId> {
    changes.iter().filter(|(_, value)| value.is_some()).filter_map(|(key, _)| inode_of_key(key))
}

#[derive(Default)]
struct State {
    turn: Turn,
    bytes: usize,
}

/// Collects what becomes durable.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    bell: Condvar,
}

impl Follow for Inbox {
    fn durable(&self, changes: Durable) {
        let mut state = self.state.lock();
        state.bytes += changes.bytes();
        state.turn.waiting.push(changes);
        if state.bytes > KEPT_MAX {
            let State { turn, bytes } = &mut *state;
            turn.changed = turn.changed_files();
            turn.waiting.clear();
            turn.gap = true;
            *bytes = 0;
        }
        if state.bytes > RINGS_AT {
            self.bell.notify_one();
        }
    }
}

impl Inbox {
    /// A pool that was added: from the next turn on it has a copy too, and all others know of it.
    pub(super) fn join(&self, pool: PoolSettings, left: Left) {
        let turn = &mut self.state.lock().turn;
        turn.joined.push((pool, left));
        turn.gap = true;
    }

    /// The next turn is the last one, and begins now.
    pub(super) fn stop(&self) {
        self.state.lock().turn.last = true;
        self.bell.notify_one();
    }

    /// Waits until there is much, until `due`, or for the last turn; then takes all.
    pub(super) fn take(&self, due: Instant) -> Turn {
        let mut state = self.state.lock();
        while !state.turn.last && state.bytes <= RINGS_AT && Instant::now() < due {
            self.bell.wait_until(&mut state, due);
        }
        state.bytes = 0;
        std::mem::take(&mut state.turn)
    }

    /// Waits so long; not when somebody waits for the next turn: the last one, or one that makes up for what was not kept.
    pub(super) fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.turn.last && !state.turn.gap && Instant::now() < until {
            self.bell.wait_until(&mut state, until);
        }
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }
}
