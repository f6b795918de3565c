//! When to sample and when to age: fast, slow, and at once after a violation (section 2.3.5).

use super::config::Config;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How fast the histogram follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Priming after the start.
    Fast,
    /// Normal.
    Slow,
}

/// Each sample of a window comes this much later than the one before, counted from its start:
/// thirty samples cover 0.1 s to 1 min, and the cost of a window does not depend on its length.
const SPACING: f64 = 1.25;

/// The schedule. Times are since the controller's start.
#[derive(Clone, Debug)]
pub struct Aging {
    period_began: Duration,
    next_sample: Duration,
}

impl Aging {
    /// A schedule whose first period begins `now`.
    pub fn new(config: &Config, now: Duration) -> Self {
        Self { period_began: now, next_sample: now + Self::interval(config, now) }
    }

    /// Fast at first, then slow.
    pub fn mode(config: &Config, now: Duration) -> Mode {
        if now < config.fast_for { Mode::Fast } else { Mode::Slow }
    }

    /// Length of a period now.
    pub fn period(config: &Config, now: Duration) -> Duration {
        match Self::mode(config, now) {
            Mode::Fast => config.fast_period,
            Mode::Slow => config.slow_period,
        }
    }

    /// Least time between samples now.
    pub fn interval(config: &Config, now: Duration) -> Duration {
        Duration::from_secs_f64(match Self::mode(config, now) {
            Mode::Fast => 1.0 / config.fast_samples_per_s,
            Mode::Slow => 1.0 / config.slow_samples_per_s,
        })
    }

    /// A new period starts.
    pub fn begin_period(&mut self, config: &Config, now: Duration) {
        self.period_began = now;
        self.next_sample = now + Self::interval(config, now);
    }

    /// Whether a sample is due.
    pub fn sample_due(&self, now: Duration) -> bool {
        now >= self.next_sample
    }

    /// Sets the time of the sample after the one taken `now`. The last one falls on the period's end.
    pub fn sampled(&mut self, config: &Config, now: Duration) {
        let since = now.saturating_sub(self.period_began);
        let stretched = self.period_began + since.mul_f64(SPACING);
        let end = self.period_began + Self::period(config, now);
        self.next_sample = stretched.max(now + Self::interval(config, now));
        if now < end {
            self.next_sample = self.next_sample.min(end);
        }
    }

    /// Whether the period is over.
    pub fn period_over(&self, config: &Config, now: Duration) -> bool {
        now.saturating_sub(self.period_began) >= Self::period(config, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_for_a_quarter_of_an_hour_then_slow() {
        let config = Config::default();
        assert_eq!(Aging::mode(&config, Duration::from_secs(899)), Mode::Fast);
        assert_eq!(Aging::mode(&config, Duration::from_secs(900)), Mode::Slow);
        assert_eq!(Aging::period(&config, Duration::from_secs(901)), Duration::from_secs(600));
    }

    #[test]
    fn a_window_has_few_samples_dense_at_first_and_one_at_its_end() {
        let config = Config::default();
        let mut aging = Aging::new(&config, Duration::ZERO);
        let mut samples = Vec::new();
        for tenth in 0..=600u64 {
            let now = Duration::from_millis(tenth * 100);
            if aging.sample_due(now) {
                samples.push(now);
                aging.sampled(&config, now);
            }
        }
        assert_eq!(samples.first(), Some(&Duration::from_millis(100)));
        assert_eq!(samples.last(), Some(&Duration::from_secs(60)));
        assert!((15..=35).contains(&samples.len()), "{} samples", samples.len());
        assert!(aging.period_over(&config, Duration::from_secs(60)));
    }
}
