//! A bound on how many requests a party may make.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Instant;

/// Parties remembered; beyond it the fullest buckets are forgotten.
const PARTIES_MAX: usize = 10_000;

/// A token bucket per party: `rate` requests a second, `burst` at once.
#[derive(Debug)]
pub struct RateLimit {
    rate: f64,
    burst: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl RateLimit {
    /// A rate of zero is no limit.
    pub fn new(rate_per_second: u32, burst: u32) -> Self {
        Self { rate: rate_per_second.into(), burst: burst.into(), buckets: Mutex::new(HashMap::new()) }
    }

    /// Whether one more request of this party is within its rate at this time.
    pub fn allows(&self, party: &str, now: Instant) -> bool {
        self.allows_many(party, 1, now)
    }

    /// The same for many at once. As many as there are come in as long as one may, and the party owes the rest: however
    /// few may come at once, none is too large.
    pub fn allows_many(&self, party: &str, count: usize, now: Instant) -> bool {
        if self.rate <= 0.0 {
            return true;
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= PARTIES_MAX && !buckets.contains_key(party) {
            let burst = self.burst;
            let rate = self.rate;
            buckets.retain(|_, (left, at)| *left + now.duration_since(*at).as_secs_f64() * rate < burst);
        }
        let (left, at) = buckets.entry(party.to_owned()).or_insert((self.burst, now));
        *left = (*left + now.saturating_duration_since(*at).as_secs_f64() * self.rate).min(self.burst);
        *at = now;
        if *left < 1.0 {
            return false;
        }
        *left -= count as f64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_party_gets_its_burst_then_its_rate_and_no_other_party_pays() {
        let limit = RateLimit::new(10, 5);
        let start = Instant::now();
        assert_eq!((0..20).filter(|_| limit.allows("a", start)).count(), 5);
        assert!(limit.allows("b", start));
        assert_eq!((0..20).filter(|_| limit.allows("a", start + Duration::from_millis(300))).count(), 3);
    }

    #[test]
    fn many_at_once_are_owed() {
        let limit = RateLimit::new(10, 10);
        let start = Instant::now();
        assert!(limit.allows_many("a", 1024, start), "however many");
        assert!(!limit.allows_many("a", 1, start + Duration::from_secs(100)));
        assert!(limit.allows_many("a", 1, start + Duration::from_secs(102)));
    }
}
