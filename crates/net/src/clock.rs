//! Clocks of the parties may differ, but not by more than a stated tolerance.

use std::time::{SystemTime, UNIX_EPOCH};

/// Header with the sender's clock, milliseconds since 1970.
pub const TIME_HEADER: &str = "x-ullage-time";

/// Default for how far a sender's clock may be from ours: 30 s.
pub const TOLERANCE_MS: u64 = 30_000;

/// Our clock, milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Our clock, seconds since 1970.
pub fn now_secs() -> u64 {
    now_ms() / 1000
}

/// Whether a sender's clock is within `tolerance_ms` of ours.
pub fn agrees(theirs_ms: u64, ours_ms: u64, tolerance_ms: u64) -> bool {
    theirs_ms.abs_diff(ours_ms) <= tolerance_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_holds_both_ways() {
        assert!(agrees(100_000, 70_000, TOLERANCE_MS) && agrees(70_000, 100_000, TOLERANCE_MS));
        assert!(!agrees(100_001, 70_000, TOLERANCE_MS) && !agrees(70_000, 100_001, TOLERANCE_MS));
    }
}
