//! What a controller tells of itself.

use super::{Donation, Mode, Phase, Picture};
use serde::{Deserialize, Serialize};

/// What the controller knows and decided, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Fast or slow ageing.
    pub mode: Option<Mode>,
    /// Running or shrinking.
    pub phase: Phase,
    /// Where memory is, in pages.
    pub picture: Picture,
    /// The decision, in pages.
    pub donation: Donation,
    /// What the histogram says opaque work needs of the watched pages; `None` until primed.
    pub need: Option<u64>,
    /// Resident pages the sampler watches.
    pub watched: u64,
    /// Watched pages that exist, resident or swapped out.
    pub existing: u64,
    /// Pages that opaque work holds and no sampler sees, without cold cache.
    pub unwatched: u64,
    /// Pages referenced in the window, which an eviction now would spare; `None` where the kernel
    /// keeps ages of its own.
    pub referenced: Option<u64>,
    /// Periods that aged the histogram.
    pub aged: u64,
    /// Those of them in which enough samples were really taken.
    pub aged_well: u64,
    /// Periods that the noise filter left out.
    pub filtered: u64,
    /// Violations of the goal seen.
    pub violations: u64,
    /// Pages added to what opaque work keeps after violations.
    pub boost: u64,
    /// Opaque misses a second, averaged over about a second.
    pub misses_per_s: f64,
}
