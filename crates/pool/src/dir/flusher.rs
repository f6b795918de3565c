//! The thread of a `dir` pool that waits for disks: it marks leaves ahead, and clears the marks of those that have come to
//! rest. A flush takes as long as the disk likes, and whoever makes files ready must not wait for that.

use super::core::Core;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often marks are looked through.
const ROUND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Pending {
    ahead: bool,
    stop: bool,
}

/// The way to the thread.
#[derive(Default)]
pub struct Flusher {
    pending: Mutex<Pending>,
    wake: Condvar,
    /// Recovery is over. Until then a mark may be what tells it to look at a leaf, and stays.
    begun: AtomicBool,
}

impl Flusher {
    /// Recovery is over.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
        self.mark_ahead();
    }

    /// Whether it is, so that marks may be cleared.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// The leaves marked ahead may have become few.
    pub fn mark_ahead(&self) {
        self.pending.lock().ahead = true;
        self.wake.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.pending.lock().stop = true;
        self.wake.notify_one();
    }

    /// The thread: runs until it is told to stop.
    pub fn run(&self, core: &Core) {
        let mut looked = Instant::now();
        loop {
            let ahead = {
                let mut pending = self.pending.lock();
                if !pending.ahead && !pending.stop {
                    self.wake.wait_for(&mut pending, ROUND);
                }
                if pending.stop {
                    return;
                }
                std::mem::take(&mut pending.ahead)
            };
            if ahead && let Err(error) = core.mark_ahead() {
                // Who makes a file in a leaf that is not marked marks it.
                tracing::debug!(%error, "no leaves are marked ahead");
            }
            if looked.elapsed() >= ROUND && self.has_begun() {
                looked = Instant::now();
                core.clear_idle();
            }
        }
    }
}
