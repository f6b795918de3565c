//! Whether opaque work misses more than the goal allows: refaults and PSI (section 2.3.5, "violated").

use super::config::Config;
use super::observation::Feedback;
use std::time::Duration;

/// What a page miss costs, by the paper's reckoning.
pub const MISS_COST: Duration = Duration::from_micros(2500);

/// Misses are averaged over about this many seconds: one slow page is no violation.
const WINDOW_S: f64 = 1.0;

/// What they are while nothing is lent, over about so many.
const BASELINE_S: f64 = 20.0;

/// Running averages of what opaque work misses, with and without anything lent out.
#[derive(Clone, Debug, Default)]
pub struct Misses {
    refaults_per_s: f64,
    stall_share: f64,
    /// Misses a second while nothing was lent: what the goal is relative to.
    baseline_per_s: f64,
    violated: bool,
    /// When somebody looked last, and whether memory was lent out from then on.
    last_look: Duration,
    lent: bool,
}

impl Misses {
    /// Of who looks from `now` on.
    pub fn new(now: Duration) -> Self {
        Self { last_look: now, ..Self::default() }
    }

    /// Counts what was missed since it was last called; gives whether the goal is newly or still violated, if memory was lent out in that time. Whether
    /// it is from `now` on, `lending` says.
    pub fn count(&mut self, config: &Config, feedback: Feedback, lending: bool, now: Duration) -> bool {
        let elapsed_s = now.saturating_sub(self.last_look).as_secs_f64();
        self.last_look = now;
        let lent = std::mem::replace(&mut self.lent, lending);
        if elapsed_s <= 0.0 {
            return false;
        }
        let average = |old: f64, new: f64, over_s: f64| {
            let keep = (-elapsed_s / over_s).exp();
            old * keep + new * (1.0 - keep)
        };
        self.refaults_per_s = average(self.refaults_per_s, feedback.opaque_refaults as f64 / elapsed_s, WINDOW_S);
        self.stall_share = average(self.stall_share, feedback.opaque_stall_us as f64 / 1e6 / elapsed_s, WINDOW_S);
        if !lent {
            self.baseline_per_s = average(self.baseline_per_s, self.refaults_per_s, BASELINE_S);
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

    /// Counts `of`, a second's each time; gives what the last of them does.
    fn count(misses: &mut Misses, of: impl IntoIterator<Item = Feedback>, lending: bool) -> bool {
        let config = Config::default();
        let next = |last: Duration| last + Duration::from_secs(1);
        of.into_iter().fold(false, |_, feedback| misses.count(&config, feedback, lending, next(misses.last_look)))
    }

    fn refaults(opaque_refaults: u64) -> Feedback {
        Feedback { opaque_refaults, ..Feedback::default() }
    }

    #[test]
    fn misses_while_lending_violate_above_one_percent_of_time() {
        let mut misses = Misses::new(Duration::from_secs(5));
        assert!(!count(&mut misses, [refaults(0), refaults(3)], true));
        assert!(count(&mut misses, [refaults(30)], true));
        assert!(misses.violated());
    }

    #[test]
    fn misses_without_anything_lent_are_the_baseline() {
        let mut misses = Misses::default();
        assert!(!count(&mut misses, std::iter::repeat_n(refaults(100), 2000), false));
        assert!(!count(&mut misses, [refaults(100); 2], true), "no worse than without lending");
    }

    #[test]
    fn what_was_missed_before_anything_was_lent_violates_nothing() {
        let mut misses = Misses::default();
        assert!(!count(&mut misses, [refaults(1000)], true));
        assert!(count(&mut misses, [refaults(1000)], true));
        assert!(count(&mut misses, [refaults(1000)], false), "it was lent until now");
        assert!(!count(&mut misses, [refaults(1000)], false));
    }

    #[test]
    fn a_stall_counts_even_where_refaults_are_not_told() {
        let mut misses = Misses::default();
        let stalled = Feedback { opaque_stall_us: 100_000, ..Feedback::default() };
        assert!(count(&mut misses, [Feedback::default(), stalled], true));
    }
}
