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

/// What is told a sender whose clock, if it states one at all, is not within `tolerance_ms` of ours: which of the two is wrong neither knows,
/// but whoever reads it can see that.
pub fn differs(theirs_ms: Option<u64>, ours_ms: u64, tolerance_ms: u64) -> Option<String> {
    let more = format!("the clocks differ by more than {tolerance_ms} ms");
    let Some(theirs_ms) = theirs_ms else {
        return Some(format!("{more}: what the sender states is no time"));
    };
    let (apart, order) = (theirs_ms.abs_diff(ours_ms), if theirs_ms > ours_ms { "ahead of" } else { "behind" });
    (apart > tolerance_ms).then(|| format!("{more}: the sender's is {} s {order} this server's", apart / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_holds_both_ways() {
        let differs = |theirs, ours| differs(Some(theirs), ours, TOLERANCE_MS);
        assert_eq!((differs(100_000, 70_000), differs(70_000, 100_000)), (None, None));
        assert!(differs(100_001, 70_000).is_some() && differs(70_000, 100_001).is_some());
    }

    /// Regression: which of the two clocks to look at, and by how much they differ, was not told.
    #[test]
    fn who_is_ahead_and_by_how_much_is_told() {
        let told = |theirs| differs(theirs, 10_000_000, TOLERANCE_MS).unwrap();
        assert!(told(Some(13_600_000)).ends_with("the sender's is 3600 s ahead of this server's"));
        assert!(told(Some(6_400_000)).ends_with("the sender's is 3600 s behind this server's"));
        assert!(told(None).ends_with("no time") && told(Some(u64::MAX)).contains("ahead"));
    }
}
