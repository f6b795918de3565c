//! The signals that end a server in order.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::thread::JoinHandle;

/// All of them, but for a hangup that this process was started to take no notice of, as by nohup(1): to be asked before any is handled.
pub fn end_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !ignores(&status, SIGHUP)).collect()
}

/// Passes the first signal that would end this process on to a child, which would go on unseen: it ends in order, and with it what this one waits
/// for. A second one ends this process.
pub(super) struct PassedOn {
    came: Arc<AtomicI32>,
    handle: Handle,
    thread: JoinHandle<()>,
}

/// No signal has this number.
const NONE: i32 = 0;

impl PassedOn {
    /// Takes signals from now on, and no more of them than end this process.
    pub(super) fn take() -> std::io::Result<Signals> {
        Signals::new(Self::taken())
    }

    /// Those that it does not ignore.
    fn taken() -> impl Iterator<Item = i32> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        [SIGINT, SIGTERM].into_iter().filter(move |signal| !ignores(&status, *signal))
    }

    /// Passes on what was taken.
    pub(super) fn to(mut signals: Signals, child: &Child) -> std::io::Result<Self> {
        let came = Arc::new(AtomicI32::new(NONE));
        let (told, handle, child) = (came.clone(), signals.handle(), Pid::from_child(child));
        let pass = move || {
            for signal in signals.forever() {
                if told.swap(signal, Relaxed) != NONE {
                    let _ = emulate_default_handler(signal);
                }
                let _ = kill_process(child, Signal::TERM);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(pass)?;
        Ok(Self { came, handle, thread })
    }

    /// The signal that was passed on. If there was none, none is from now on, and the next ends this process: the child may be waited for, and its
    /// number be another's then.
    pub(super) fn end(self) -> Option<i32> {
        if self.came.load(Relaxed) == NONE {
            self.handle.close();
            let _ = self.thread.join();
            // Taken once, they would do nothing.
            for signal in Self::taken() {
                let _ = register_conditional_default(signal, Arc::new(AtomicBool::new(true)));
            }
        }
        Some(self.came.load(Relaxed)).filter(|signal| *signal != NONE)
    }
}

/// Whether the process of this status does nothing at a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status_of_a_process() {
        for (mask, hangup) in [("0000000000000001", true), ("0000000000001000", false), ("fffffffffffffffe", false)] {
            assert_eq!(ignores(&format!("Name:\tx\nSigIgn:\t{mask}\nSigCgt:\tffff\n"), SIGHUP), hangup, "{mask}");
        }
        assert!(!ignores("", SIGHUP));
    }
}
