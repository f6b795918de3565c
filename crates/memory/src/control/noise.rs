//! The noise filter: an idle machine must not look like a small working set (section 2.3.6).

use super::config::Config;
use std::time::Duration;

/// The LRU position, in pages, up to which accesses are taken for noise: the first 10 % of memory.
/// That much opaque memory is guaranteed, so ignoring accesses there costs nobody anything.
pub fn noise_position(config: &Config, total_pages: u64) -> u64 {
    (total_pages as f64 * config.noise_share) as u64
}

/// Whether a period shows somebody at work: more than ten accesses a second beyond the noise.
pub fn is_activity(config: &Config, accesses_beyond: u64, period: Duration) -> bool {
    accesses_beyond as f64 > config.noise_accesses_per_s * period.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_ages_the_histogram_only_above_ten_accesses_a_second_beyond_the_first_tenth() {
        let config = Config::default();
        assert_eq!(noise_position(&config, 1000), 100);
        assert!(!is_activity(&config, 600, Duration::from_secs(60)));
        assert!(is_activity(&config, 601, Duration::from_secs(60)));
    }
}
