//! Contributed paging is rate-limited, so that it does not keep the disk from others (section 2.3.1).

use super::config::Config;
use std::time::Duration;

/// A token bucket of page-ins, one second deep.
#[derive(Clone, Debug, Default)]
pub struct PagingRate {
    debt: f64,
}

impl PagingRate {
    /// Counts `pages` paged in during `elapsed`. Gives how long contributed work must pause to come
    /// back to its rate, at most half a second at a time so that it stays alive.
    pub fn count(&mut self, config: &Config, pages: u64, elapsed: Duration) -> Option<Duration> {
        let rate = config.contributed_paging_per_s;
        self.debt = (self.debt + pages as f64 - rate * elapsed.as_secs_f64()).clamp(-rate, 10.0 * rate);
        (self.debt > 0.0).then(|| Duration::from_secs_f64((self.debt / rate).min(0.5)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_within_a_second_is_free_and_what_exceeds_the_rate_pauses() {
        let config = Config { contributed_paging_per_s: 100.0, ..Config::default() };
        let mut rate = PagingRate::default();
        let second = Duration::from_secs(1);
        assert_eq!(rate.count(&config, 0, second), None);
        assert_eq!(rate.count(&config, 150, second), None);
        assert_eq!(rate.count(&config, 250, second), Some(Duration::from_millis(500)));
        assert_eq!(rate.count(&config, 0, 4 * second), None);
    }
}
