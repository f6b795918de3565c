//! When to sample, when to age, when to begin a new window: fast, slow, and at once after a
//! violation (section 2.3.5).
//!
//! A *period* ends with ageing. A *window* is the time since the reference bits were cleared; it
//! spans one period at first, then two, then four, so that pages used less than once a period are
//! seen too, and so that what a window leaves unreferenced has been idle for long.

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

/// Periods in the longest window.
const LONGEST_WINDOW: u32 = 4;

/// A period in which fewer samples than this were really taken tells nothing about idleness.
const ENOUGH_SAMPLES: u32 = 3;

/// The schedule. Times are since the controller's start.
#[derive(Clone, Debug)]
pub struct Aging {
    period_began: Duration,
    window_began: Duration,
    next_sample: Duration,
    /// Periods this window spans when it is complete.
    window_periods: u32,
    periods_seen: u32,
    samples_seen: u32,
}

impl Aging {
    /// A schedule whose first period and window begin `now`.
    pub fn new(config: &Config, now: Duration) -> Self {
        Self {
            period_began: now,
            window_began: now,
            next_sample: now + Self::interval(config, now),
            window_periods: 1,
            periods_seen: 0,
            samples_seen: 0,
        }
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

    /// A new period starts in the same window.
    pub fn begin_period(&mut self, now: Duration) {
        self.period_began = now;
        self.periods_seen += 1;
        self.samples_seen = 0;
    }

    /// Whether the window has spanned its periods.
    pub fn window_complete(&self) -> bool {
        self.periods_seen >= self.window_periods
    }

    /// Whether it has been complete for a period.
    pub fn window_overdue(&self) -> bool {
        self.periods_seen > self.window_periods
    }

    /// A new window starts, and a period with it.
    pub fn begin_window(&mut self, config: &Config, now: Duration) {
        let longer = (2 * self.window_periods).min(LONGEST_WINDOW);
        *self = Self { window_periods: longer, ..Self::new(config, now) };
    }

    /// Whether a sample is due.
    pub fn sample_due(&self, now: Duration) -> bool {
        now >= self.next_sample
    }

    /// Sets the time of the sample after the one asked for `now`. The last one falls on the period's end.
    pub fn asked(&mut self, config: &Config, now: Duration) {
        let since = now.saturating_sub(self.window_began);
        let stretched = self.window_began + since.mul_f64(SPACING);
        let end = self.period_began + Self::period(config, now);
        self.next_sample = stretched.max(now + Self::interval(config, now));
        if now < end {
            self.next_sample = self.next_sample.min(end);
        }
    }

    /// A sample was really taken.
    pub fn taken(&mut self) {
        self.samples_seen += 1;
    }

    /// Whether so many samples were taken in this period that it tells something.
    pub fn well_sampled(&self) -> bool {
        self.samples_seen >= ENOUGH_SAMPLES
    }

    /// Whether the period is over.
    pub fn period_over(&self, config: &Config, now: Duration) -> bool {
        now.saturating_sub(self.period_began) >= Self::period(config, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

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
                aging.asked(&config, now);
            }
        }
        assert_eq!(samples.first(), Some(&Duration::from_millis(100)));
        assert_eq!(samples.last(), Some(&MINUTE));
        assert!((15..=35).contains(&samples.len()), "{} samples", samples.len());
        assert!(aging.period_over(&config, MINUTE));
    }

    #[test]
    fn windows_grow_from_one_period_to_four() {
        let config = Config::default();
        let mut aging = Aging::new(&config, Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut spans = Vec::new();
        for _ in 0..4 {
            let mut periods = 0;
            while !aging.window_complete() {
                now += MINUTE;
                periods += 1;
                aging.begin_period(now);
            }
            spans.push(periods);
            aging.begin_window(&config, now);
        }
        assert_eq!(spans, [1, 2, 4, 4]);
    }

    #[test]
    fn a_period_of_late_ticks_tells_nothing() {
        let mut aging = Aging::new(&Config::default(), Duration::ZERO);
        aging.taken();
        assert!(!aging.well_sampled());
        aging.taken();
        aging.taken();
        assert!(aging.well_sampled());
        aging.begin_period(MINUTE);
        assert!(!aging.well_sampled(), "each period anew");
    }
}
