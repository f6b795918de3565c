//! What the controller is told at each tick.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where the memory of the machine (or of the box the controller is responsible for) is; in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// All memory.
    pub total: u64,
    /// Memory nobody uses.
    pub free: u64,
    /// Memory charged to the contributed group.
    pub contributed: u64,
    /// File cache of opaque work that can be dropped, was not used twice and is mapped by nobody; part of what is neither free
    /// nor contributed.
    pub cold_cache: u64,
}

impl Picture {
    /// What opaque work, its caches and the kernel hold.
    pub fn opaque(&self) -> u64 {
        self.total.saturating_sub(self.free).saturating_sub(self.contributed)
    }

    /// What anybody gets at once: free, or the kernel drops it for who asks.
    pub fn available(&self) -> u64 {
        self.free + self.cold_cache
    }
}

/// What a sampler saw since its window began.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Accesses (any unit) by LRU position over the window so far.
    pub histogram: Histogram,
    /// Accesses beyond the noise position in the window so far.
    pub beyond_noise: u64,
    /// Distinct resident pages that the kernel knows to be referenced since the window began: what
    /// an eviction now would spare. `None` where the kernel keeps ages of its own, beyond the window.
    pub referenced: Option<u64>,
    /// CPUs' worth of work of the watched processes since the previous sample, where known.
    pub busy: Option<f64>,
    /// Resident pages the sampler watches; the rest of opaque memory counts as needed.
    pub watched: u64,
    /// Whether file cache that no process maps is among them.
    pub cache_watched: bool,
    /// Pages the sampler watches that exist: resident ones and those swapped out.
    pub existing: u64,
    /// Length of the window so far.
    pub window: Duration,
}

/// Signs that the goal is violated, as counted since somebody looked before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Feedback {
    /// Opaque pages that had to come back from swap or disk.
    pub opaque_refaults: u64,
    /// Microseconds in which some opaque task waited for memory (PSI), where the kernel tells.
    pub opaque_stall_us: u64,
    /// Contributed pages that had to come back.
    pub contributed_refaults: u64,
}

/// Everything of one tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Where memory is.
    pub picture: Picture,
    /// A new sample, when one was due.
    pub sample: Option<Sample>,
    /// Misses since the last tick that was told of any; `None` where nobody looked.
    pub feedback: Option<Feedback>,
    /// Whether the contributed group has processes.
    pub has_contributed: bool,
}
