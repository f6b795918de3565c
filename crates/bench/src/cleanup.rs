//! What the bench changes on the machine is undone however it ends: return, error, signal or panic.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

type Action = Box<dyn FnOnce() + Send>;

static ACTIONS: Mutex<(u64, Vec<(u64, Action)>)> = Mutex::new((0, Vec::new()));

/// The thread that cleans up before the process ends, once a signal has come.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Stops every other thread while the process ends: it must neither set up anything new nor leave `main` (and with it
/// the process) before all is undone.
fn stop_if_ending() {
    if ENDING.get().is_some_and(|ending| *ending != thread::current().id()) {
        loop {
            thread::park();
        }
    }
}

fn actions() -> MutexGuard<'static, (u64, Vec<(u64, Action)>)> {
    // A panic elsewhere must not keep us from cleaning up after it.
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An action that runs once: when this is dropped, or when the process is told to end.
#[must_use]
pub struct Undo {
    id: u64,
}

impl Undo {
    /// Registers `action`.
    pub fn new(action: impl FnOnce() + Send + 'static) -> Self {
        stop_if_ending();
        let mut actions = actions();
        actions.0 += 1;
        let id = actions.0;
        actions.1.push((id, Box::new(action)));
        Self { id }
    }

    /// Forgets the action without running it.
    pub fn disarm(self) {
        drop(take(self.id));
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        stop_if_ending();
        if let Some(action) = take(self.id) {
            action();
        }
    }
}

fn take(id: u64) -> Option<Action> {
    let mut actions = actions();
    let at = actions.1.iter().position(|(other, _)| *other == id)?;
    Some(actions.1.remove(at).1)
}

/// Runs all that is registered, the last first.
fn run_all() {
    loop {
        // The lock is not held while an action runs: it may register or drop others.
        let Some((_, action)) = actions().1.pop() else { return };
        action();
    }
}

/// From now on these signals, which end the process, and panics in a build where they abort, clean up first.
pub fn install(signals: &[i32]) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(signals)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = ENDING.set(thread::current().id());
            // The signal may come because whoever read this is gone.
            let _ = writeln!(std::io::stderr(), "ullage bench: cleaning up after signal {signal}");
            run_all();
            std::process::exit(128 + signal);
        }
    })?;
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        run_all();
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Undo;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_action_runs_once_when_dropped_and_never_when_disarmed() {
        let ran = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&ran);
        drop(Undo::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        let counter = Arc::clone(&ran);
        Undo::new(move || {
            counter.fetch_add(100, Ordering::SeqCst);
        })
        .disarm();
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }
}
