//! What the controller itself costs.

use crate::PAGE;
use crate::runtime::Cost;
use crate::sys;
use std::fs;
use std::time::Duration;

/// CPU time by mode.
pub(super) struct Meter {
    started_cpu: Duration,
    at_switch: Option<(Duration, Duration)>,
    now: (Duration, Duration),
}

impl Meter {
    pub fn new() -> Self {
        Self { started_cpu: sys::process_cpu(), at_switch: None, now: (Duration::ZERO, Duration::ZERO) }
    }

    pub fn count(&mut self, fast_for: Duration, now: Duration) {
        self.now = (now, sys::process_cpu().saturating_sub(self.started_cpu));
        if now >= fast_for && self.at_switch.is_none() {
            self.at_switch = Some(self.now);
        }
    }

    pub fn cost(&self) -> Cost {
        let percent = |cpu: Duration, time: Duration| 100.0 * cpu.as_secs_f64() / time.as_secs_f64().max(1e-3);
        let (fast_time, fast_cpu) = self.at_switch.unwrap_or(self.now);
        let slow = self
            .at_switch
            .map_or(0.0, |(time, cpu)| percent(self.now.1.saturating_sub(cpu), self.now.0.saturating_sub(time)));
        Cost { fast_cpu_percent: percent(fast_cpu, fast_time), slow_cpu_percent: slow, rss_bytes: resident() }
    }
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}
