//! Bringing what is logged into the engine.

use super::core::Core;
use crate::Error;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

impl Core {
    /// Brings all logged layers into the engine and, with `persist`, makes them durable there.
    pub fn apply(&self, persist: bool) -> Result<(), Error> {
        let guard = self.applying.lock();
        self.apply_locked(persist, &guard)
    }

    /// As [`Core::apply`], for whoever holds the lock already.
    pub fn apply_locked(&self, persist: bool, _guard: &MutexGuard<'_, ()>) -> Result<(), Error> {
        let layers = {
            let mut state = self.state.lock();
            state.check()?;
            state.begin_apply()
        };
        for layer in &layers {
            self.engine.apply(&layer.changes(), layer.last).map_err(|e| self.poison(e))?;
            self.tell(layer);
        }
        drop(layers);
        let done = self.state.lock().end_apply();
        drop(done);
        if persist {
            // Only what was applied before the call counts, whatever is applied during it.
            let applied = self.state.lock().applied;
            self.engine.persist().map_err(|e| self.poison(e))?;
            let mut state = self.state.lock();
            state.persisted = applied;
            state.persist_wanted = false;
            self.counters.checkpoints.fetch_add(1, Relaxed);
        }
        self.progress.notify_all();
        Ok(())
    }
}
