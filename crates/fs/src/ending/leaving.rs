//! What was removed a moment ago: it is charged until the kernel has let go of it, which comes behind the back of who removed it. He may
//! be at a limit, and count on that room with his next call.

use crate::Space;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_types::FileId;

/// How long ago that was at most.
const LATELY: Duration = Duration::from_secs(1);
/// What somebody has open is charged for longer: it is waited for once, so often.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Leaving {
    files: Mutex<FxHashMap<FileId, Instant>>,
    since: Instant,
    /// When something was removed last, in milliseconds after `since`, and one more.
    last: AtomicU64,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { files: Mutex::default(), since: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Leaving {
    /// A file lost its last name.
    pub(crate) fn begin(&self, file: FileId) {
        self.files.lock().insert(file, Instant::now());
        self.last.store(self.since.elapsed().as_millis() as u64 + 1, Relaxed);
    }

    /// It is charged no more.
    pub(crate) fn end(&self, file: FileId) {
        self.files.lock().remove(&file);
    }

    fn lately(&self) -> Vec<FileId> {
        let mut files = self.files.lock();
        files.retain(|_, since| since.elapsed() < LATELY);
        files.keys().copied().collect()
    }

    fn has_any(&self, of: &[FileId]) -> bool {
        let files = self.files.lock();
        of.iter().any(|file| files.contains_key(file))
    }
}

impl Space {
    /// Whether something was removed lately: there may be room by now for what was just refused.
    pub(crate) fn has_just_removed(&self) -> bool {
        let last = self.leaving.last.load(Relaxed);
        last > 0 && self.leaving.since.elapsed() < Duration::from_millis(last) + LATELY
    }

    /// Waits until the kernel has let go of what was removed lately, for a while.
    pub(crate) fn await_leaving(&self) {
        let leaving = self.leaving.lately();
        for _ in 0..TRIES {
            if !self.leaving.has_any(&leaving) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        for file in leaving {
            self.leaving.end(file);
        }
    }
}
