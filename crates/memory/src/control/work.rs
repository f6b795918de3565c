//! Whether somebody is at work, by the CPU time of what is watched: reference bits, once set, tell of the first use only.
//!
//! Nobody knows beforehand how much that takes. Who reads and types uses a hundredth of a CPU on a fast machine, and on a slow one
//! more than what runs by itself takes elsewhere. So it is measured while pages beyond the noise are used.

use super::config::Config;
use std::time::Duration;

/// Who uses less than this part of what work takes is idle.
const PART: f64 = 0.25;

/// CPUs that nobody can be told from an idle machine by: a tick of 10 ms in ten seconds.
const LEAST: f64 = 0.001;

/// What work takes.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// CPUs, of the periods that showed somebody at work; 0 before any did.
    typical: f64,
    /// CPU seconds and time of the period so far.
    used: f64,
    time: Duration,
    seen: Duration,
}

impl Work {
    /// Nothing is known yet.
    pub fn new(now: Duration) -> Self {
        Self { typical: 0.0, used: 0.0, time: Duration::ZERO, seen: now }
    }

    /// So many CPUs were used since this was told before.
    pub fn used(&mut self, cpus: f64, now: Duration) {
        let time = now.saturating_sub(self.seen);
        self.seen = now;
        self.used += cpus * time.as_secs_f64();
        self.time += time;
    }

    /// A period is over. One that was `active` tells what work takes: more at once, less by and by, since a break may have begun in it.
    pub fn end_period(&mut self, config: &Config, active: bool) {
        if active && !self.time.is_zero() {
            self.typical = (self.used / self.time.as_secs_f64()).max(self.typical * (1.0 - config.alpha));
        }
        (self.used, self.time) = (0.0, Duration::ZERO);
    }

    /// Who uses fewer CPUs than this is idle.
    pub fn idle_below(&self, config: &Config) -> f64 {
        (self.typical * PART).max(LEAST).min(config.idle_cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(work: &mut Work, cpus: f64, active: bool) -> f64 {
        let config = Config::default();
        work.used(cpus, work.seen + Duration::from_secs(60));
        work.end_period(&config, active);
        work.idle_below(&config)
    }

    #[test]
    fn a_quarter_of_what_work_takes_is_work_and_a_twentieth_of_a_cpu_always() {
        let mut work = Work::new(Duration::ZERO);
        assert!((work.idle_below(&Config::default()) - LEAST).abs() < 1e-9, "nothing is known");
        assert!((after(&mut work, 0.02, true) - 0.005).abs() < 1e-9);
        assert!((after(&mut work, 0.8, true) - 0.05).abs() < 1e-9);
    }

    #[test]
    fn what_runs_during_a_break_does_not_become_work() {
        let mut work = Work::new(Duration::ZERO);
        after(&mut work, 0.1, true);
        for _ in 0..100 {
            assert!((after(&mut work, 0.002, false) - 0.025).abs() < 1e-9);
        }
        assert!(after(&mut work, 0.008, true) > 0.02, "a break began in this period");
    }
}
