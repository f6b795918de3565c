//! What the controller wants done.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing to do, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Bound the contributed group to so many pages; it may take several ticks to shrink to it.
    Limit(u64),
    /// Evict so many pages of opaque memory, from the measured tail.
    EvictTail(u64),
    /// The same, but only ranges known to be idle for longer than the window: the window has seen
    /// too little for the kernel to tell the rest apart.
    EvictIdle(u64),
    /// Stop all contributed processes, keeping their memory.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Stop them for a moment: they page more than they may.
    Pause(Duration),
    /// End them: memory must come back, and the user configured it.
    Kill,
    /// Take a sample.
    Sample,
    /// Clear the reference bits: a new window begins.
    BeginWindow,
}
