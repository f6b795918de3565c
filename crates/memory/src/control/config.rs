//! What the controller can be told; the defaults are the paper's.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings of the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Factor by which opaque misses may grow (the paper's beta).
    pub beta: f64,
    /// Share of accesses that may miss where nothing missed before: what is rarer than this is not
    /// remembered. With α = 1/16 a working set used once stays protected for about 140 periods.
    pub miss_floor: f64,
    /// Opaque misses a second that count as violating the goal: 4 at 2.5 ms each are 1 %.
    pub tolerated_misses_per_s: f64,
    /// Contributed work gets at least this many pages.
    pub minimum_pages: u64,
    /// Opaque memory keeps at least this share.
    pub opaque_floor: f64,
    /// Memory that stays free whatever happens, so that opaque allocations do not wait: share of all.
    pub margin: f64,
    /// Weight of the newest period in the average.
    pub alpha: f64,
    /// How long ageing is fast after the start.
    pub fast_for: Duration,
    /// Length of a period in fast ageing.
    pub fast_period: Duration,
    /// Length of a period in slow ageing.
    pub slow_period: Duration,
    /// Highest sampling rate in fast ageing.
    pub fast_samples_per_s: f64,
    /// Highest sampling rate in slow ageing.
    pub slow_samples_per_s: f64,
    /// A period ages the histogram only if more accesses a second than this go beyond the noise.
    pub noise_accesses_per_s: f64,
    /// The share of memory below which accesses count as noise.
    pub noise_share: f64,
    /// Opaque processes that use this many CPUs (0.05: a twentieth of one) are at work, also where work takes far more: of idle ones the
    /// reference bits are left alone, since they still tell what was used last.
    pub idle_cpus: f64,
    /// How many pages a second contributed work may page in.
    pub contributed_paging_per_s: f64,
    /// How many pages a second may be evicted to make room for contributed work.
    pub eviction_per_s: f64,
    /// Periods that must have aged the histogram before opaque pages are evicted on its word.
    pub evict_after: u64,
    /// What may be done when memory must come back and shrinking is not enough.
    pub kill_after: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            beta: 1.05,
            miss_floor: 1e-4,
            tolerated_misses_per_s: 4.0,
            minimum_pages: 256,
            opaque_floor: 0.10,
            margin: 0.01,
            alpha: 1.0 / 16.0,
            fast_for: Duration::from_secs(15 * 60),
            fast_period: Duration::from_secs(60),
            slow_period: Duration::from_secs(600),
            fast_samples_per_s: 10.0,
            slow_samples_per_s: 1.0,
            noise_accesses_per_s: 10.0,
            noise_share: 0.10,
            idle_cpus: 0.05,
            contributed_paging_per_s: 2048.0,
            eviction_per_s: 8192.0,
            evict_after: 3,
            kill_after: None,
        }
    }
}

impl Config {
    /// Refuses what makes no sense, with the reason.
    pub fn validate(&self) -> Result<(), String> {
        let share = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} must be from 0 up to 1, not {value}"))
            }
        };
        if !(self.beta >= 1.0 && self.beta.is_finite()) {
            return Err(format!("beta must be at least 1 (1.05: five in a hundred misses more), not {}", self.beta));
        }
        share("the miss floor", self.miss_floor)?;
        share("the opaque floor", self.opaque_floor)?;
        share("the margin", self.margin)?;
        share("the noise share", self.noise_share)?;
        share("alpha", self.alpha)?;
        let rate = self.contributed_paging_per_s;
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(format!("the paging rate must be a number of pages a second above 0, not {rate}"));
        }
        if self.fast_period.is_zero() || self.slow_period.is_zero() {
            return Err("an ageing period must be longer than nothing".into());
        }
        if !(self.fast_samples_per_s > 0.0 && self.slow_samples_per_s > 0.0) {
            return Err("the sampling rate must be more than 0".into());
        }
        Ok(())
    }

    /// The same with every time divided by `factor`: for measurements that cannot take hours.
    #[must_use]
    pub fn sped_up(mut self, factor: f64) -> Self {
        for time in [&mut self.fast_for, &mut self.fast_period, &mut self.slow_period] {
            *time = time.div_f64(factor);
        }
        self
    }
}
