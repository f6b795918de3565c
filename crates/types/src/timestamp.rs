//! Points in time as files carry them.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since 1970, as `struct timespec`: the seconds may be negative, the nanoseconds
/// (0 to 999,999,999) always count forwards. The derived order is the order in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds past those.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -(before.as_secs() as i64) - borrow,
                    nanoseconds: if borrow == 1 { 1_000_000_000 - before.subsec_nanos() } else { 0 },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
        if time.seconds >= 0 {
            UNIX_EPOCH + Duration::from_secs(time.seconds as u64) + nanoseconds
        } else {
            UNIX_EPOCH - Duration::from_secs(time.seconds.unsigned_abs()) + nanoseconds
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive_the_round_trip() {
        for (seconds, nanoseconds) in [(-1, 0), (-1, 999_999_999), (-5, 1), (0, 0), (7, 3)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }
}
