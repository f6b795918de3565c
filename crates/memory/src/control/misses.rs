//! Whether opaque work misses more than the goal allows: refaults and PSI (section 2.3.5, "violated").

use super::config::Config;
use super::observation::Feedback;
use std::time::Duration;

/// What a page miss costs, by the paper's reckoning.
pub const MISS_COST: Duration = Duration::from_micros(2500);

/// Misses are averaged over about this many seconds: one slow page is no violation.
const WINDOW_S: f64 = 1.0;

/// Running averages of what opaque work misses, with and without anything lent out.
#[derive(Clone, Debug, Default)]
pub struct Misses {
    refaults_per_s: f64,
    stall_share: f64,
    /// Misses a second while nothing was lent: what the goal is relative to.
    baseline_per_s: f64,
    violated: bool,
}

impl Misses {
    /// Counts; gives whether the goal is newly or still violated while memory is lent out.
    pub fn count(&mut self, config: &Config, feedback: Feedback, lending: bool, elapsed: Duration) -> bool {
        let elapsed_s = elapsed.as_secs_f64();
        if elapsed_s <= 0.0 {
            return false;
        }
        let keep = (-elapsed_s / WINDOW_S).exp();
        let average = |old: f64, new: f64| old * keep + new * (1.0 - keep);
        self.refaults_per_s = average(self.refaults_per_s, feedback.opaque_refaults as f64 / elapsed_s);
        self.stall_share = average(self.stall_share, feedback.opaque_stall_us as f64 / 1e6 / elapsed_s);
        if !lending {
            self.baseline_per_s = self.baseline_per_s * 0.99 + self.refaults_per_s * 0.01;
            self.violated = false;
            return false;
        }
        let allowed = config.beta * self.baseline_per_s + config.tolerated_misses_per_s;
        let allowed_stall = allowed * MISS_COST.as_secs_f64();
        let now = self.refaults_per_s > allowed || self.stall_share > allowed_stall;
        let news = feedback.opaque_refaults > 0 || feedback.opaque_stall_us > 0;
        self.violated = now;
        now && news
    }

    /// Whether the goal is violated now.
    pub fn violated(&self) -> bool {
        self.violated
    }

    /// Opaque misses a second.
    pub fn per_s(&self) -> f64 {
        self.refaults_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn misses_while_lending_violate_above_one_percent_of_time() {
        let config = Config::default();
        let mut misses = Misses::default();
        let few = Feedback { opaque_refaults: 3, ..Feedback::default() };
        let many = Feedback { opaque_refaults: 30, ..Feedback::default() };
        assert!(!misses.count(&config, few, true, S));
        assert!(misses.count(&config, many, true, S));
        assert!(misses.violated());
    }

    #[test]
    fn misses_without_anything_lent_are_the_baseline() {
        let config = Config::default();
        let mut misses = Misses::default();
        let many = Feedback { opaque_refaults: 100, ..Feedback::default() };
        for _ in 0..2000 {
            assert!(!misses.count(&config, many, false, S));
        }
        assert!(!misses.count(&config, many, true, S), "no worse than without lending");
    }

    #[test]
    fn a_stall_counts_even_where_refaults_are_not_told() {
        let mut misses = Misses::default();
        let stalled = Feedback { opaque_stall_us: 100_000, ..Feedback::default() };
        assert!(misses.count(&Config::default(), stalled, true, S));
    }
}
