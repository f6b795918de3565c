//! How far opaque memory may be evicted to make room, and whether that brings anything.

use super::{Controller, Sample};
use std::time::Duration;

/// Share of the needed pages whose use the reference bits must show before anything is evicted by them.
const INFORMED: f64 = 0.95;

/// While the tail is being evicted, what is left of it is looked at this often.
const LOOK_AFTER_EVICTING: Duration = Duration::from_secs(1);

/// After so many samples that saw no eviction it does not hold a window up: there may be no swap.
const BARREN: u32 = 3;

impl Controller {
    /// Whether the reference bits show nearly all that is needed, so that the kernel, evicting by
    /// them, finds the tail.
    pub(super) fn informed(&self, need: Option<u64>) -> bool {
        need.is_some_and(|need| self.report.referenced.is_none_or(|seen| seen as f64 >= INFORMED * need as f64))
    }

    /// How many of the `wanted` pages may be evicted now. Never more than the newest sample found
    /// unreferenced and unneeded, nothing on the word of too few periods, nothing while opaque work
    /// misses.
    pub(super) fn may_evict(&self, need: Option<u64>, wanted: u64, elapsed: Duration) -> u64 {
        let Some(need) = need else { return 0 };
        if self.report.aged_well < self.config.evict_after || self.misses.violated() {
            return 0;
        }
        let spared = self.report.referenced.unwrap_or(0).max(need);
        let since = self.evicted - self.evicted_when_sampled;
        let left = self.report.watched.saturating_sub(spared).saturating_sub(since);
        let rate = (self.config.eviction_per_s * elapsed.as_secs_f64().min(1.0)) as u64;
        wanted.min(left).min(rate)
    }

    /// Whether pages were evicted since the newest sample: how it went decides how to go on.
    pub(super) fn must_look(&self, now: Duration) -> bool {
        self.evicted > self.evicted_when_asked && now.saturating_sub(self.asked_sample) >= LOOK_AFTER_EVICTING
    }

    /// Takes note of what came of the orders that a sample was asked for after.
    pub(super) fn see_evicted(&mut self, sample: &Sample) {
        let ordered = self.evicted_when_asked - self.evicted_when_sampled;
        let brought = self.report.watched.saturating_sub(sample.watched);
        if ordered > 0 {
            self.barren = if brought < ordered / 8 { self.barren + 1 } else { 0 };
        }
        self.evicted_when_sampled = self.evicted_when_asked;
    }

    /// Whether an eviction is under way that brings something, and has not taken up a whole period.
    pub(super) fn is_evicting(&self) -> bool {
        self.report.donation.evict > 0 && self.barren < BARREN && !self.aging.window_overdue()
    }
}
