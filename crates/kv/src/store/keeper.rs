//! The background thread: every interval, or when woken, logs what is pending and applies what is logged.

use super::core::Core;
use crate::Seq;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Works until the store is closed or fails.
pub(super) fn run(core: &Arc<Core>, interval: Duration) {
    loop {
        let mut state = core.state.lock();
        let deadline = Instant::now() + interval;
        while !state.kicked && !state.stopping {
            if core.wake.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        if state.stopping || state.poisoned.is_some() {
            let left = state.left;
            drop(state);
            if left {
                let _ = core.settle();
            }
            return;
        }
        state.kicked = false;
        let persist = state.persist_wanted;
        // Somebody waits for the engine to take it.
        let urgent = state.overlay_bytes() > core.options.overlay_bytes;
        // Commits that cancelled each other out leave nothing to write, yet somebody may wait for them.
        let idle = state.overlay_bytes() == 0 && state.durable == state.newest && !persist;
        drop(state);
        // A failure has poisoned the store and been logged; every later call will say so.
        let apply = || if core.has_room() || urgent { core.apply(persist) } else { Ok(()) };
        if !idle && core.flush(Seq(u64::MAX)).and_then(|()| apply()).is_err() {
            return;
        }
    }
}
