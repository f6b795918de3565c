//! Signals in the middle of a transfer: it takes back what it made, and the process ends of the signal after all, as its caller expects.

use anyhow::Context;
use signal_hook::low_level::emulate_default_handler;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use ullage_store::client::Stop;

const NONE: i32 = 0;
/// Nothing is under way any more: the next signal ends the process.
const DONE: i32 = -1;

/// Whether a signal came.
pub struct Interrupt {
    stop: Stop,
    came: Arc<AtomicI32>,
}

impl Interrupt {
    /// From now on the first signal is only told; a second one ends the process at once. A hangup that is ignored, as below nohup(1), still is.
    pub fn watch() -> anyhow::Result<Self> {
        let signals = signal_hook::iterator::Signals::new(ullage_daemon::end_signals());
        let mut signals = signals.context("handle signals")?;
        let (sender, stop) = Stop::new();
        let came = Arc::new(AtomicI32::new(NONE));
        let told = Arc::clone(&came);
        let watcher = move || {
            for signal in signals.forever() {
                if told.swap(signal, Ordering::Relaxed) != NONE {
                    let _ = emulate_default_handler(signal);
                }
                sender.send_replace(true);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watcher).context("start a thread for signals")?;
        Ok(Self { stop, came })
    }

    /// What transfers are told.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The end of the transfer: one that did not succeed ends the process too, if that was of a signal.
    pub fn end<T>(self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        let signal = self.came.swap(DONE, Ordering::Relaxed);
        if done.is_err() && signal != NONE {
            crate::output::finish()?;
            let _ = emulate_default_handler(signal);
        }
        done
    }
}
