//! What anybody can bring about as often as they like is said in the log now and then only.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often each kind of it is said.
const EVERY: Duration = Duration::from_secs(1);

/// When what was said last.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<BTreeMap<&'static str, Instant>>);

impl Seldom {
    /// Nothing was said yet.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether this kind may be said once more; then it counts as said.
    pub fn is_due(&self, what: &'static str) -> bool {
        let now = Instant::now();
        let mut said = self.0.lock();
        let is_due = said.get(what).is_none_or(|last| now.duration_since(*last) >= EVERY);
        if is_due {
            said.insert(what, now);
        }
        is_due
    }
}
