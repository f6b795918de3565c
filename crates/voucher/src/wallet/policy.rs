//! How much to ask for, and when: fixed, adaptive, expected (voucher-quotas, sections 3 and 4.4).

use crate::Micros;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of the adaptive policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adaptive {
    /// Time between scheduled requests; also the length of the window that is predicted.
    pub interval: Micros,
    /// How many past intervals the moving average covers.
    pub window: u32,
    /// What is asked for beyond the estimate, in thousandths of it.
    pub headroom_permille: u32,
    /// The least that is asked for, in bytes: also the first request, before there is any history.
    pub least: u64,
    /// Give back what exceeds twice the estimate, once that is as much again.
    pub give_back: bool,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { interval: Micros::from_secs(60), window: 5, headroom_permille: 250, least: 1 << 20, give_back: true }
    }
}

/// When a wallet asks for vouchers, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum RequestPolicy {
    /// The same amount each time there is not enough.
    Fixed {
        /// Bytes.
        amount: u64,
    },
    /// On a schedule, the difference between a moving average and what is on hand; in between, when it will
    /// run out before the bank can have answered.
    Adaptive(Adaptive),
    /// As adaptive, but with the true average known beforehand: what adaptive attempts to find.
    Expected {
        /// The rate, in bytes per second.
        per_second: u64,
        /// Time between requests.
        interval: Micros,
        /// The least that is asked for, in bytes.
        least: u64,
    },
}

/// What has been consumed lately.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    began: Micros,
    /// Net consumption in this interval, and the most that it has been.
    current: i128,
    peak: i128,
    /// The peaks of past intervals, and their sum.
    past: VecDeque<i128>,
    sum: i128,
    /// A moving average of how long the bank takes to answer.
    answer_time: u64,
}

impl Usage {
    pub(super) fn new(policy: &RequestPolicy, now: Micros) -> Self {
        let window = if let RequestPolicy::Adaptive(adaptive) = policy { adaptive.window } else { 0 };
        let past = VecDeque::with_capacity(window.min(1000) as usize + 1);
        Self { began: now, current: 0, peak: 0, past, sum: 0, answer_time: 1000 }
    }

    /// Consumption is net: what was freed counts against it. What an interval needs on hand is the most that net
    /// consumption came to in it: with writes alone all of it, with writes and deletes in balance the swing between
    /// them, which a mean of net consumption (about zero) would miss, and ask for again and again.
    pub(super) fn spent(&mut self, bytes: u64) {
        self.current += i128::from(bytes);
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn freed(&mut self, bytes: u64) {
        self.current -= i128::from(bytes);
    }

    pub(super) fn answered(&mut self, after: Micros) {
        self.answer_time = (self.answer_time * 7 + after.0) / 8;
    }

    pub(super) fn next_schedule(&self, policy: &RequestPolicy) -> Micros {
        match policy {
            RequestPolicy::Fixed { .. } => Micros(u64::MAX),
            RequestPolicy::Adaptive(Adaptive { interval, .. }) | RequestPolicy::Expected { interval, .. } => {
                self.began + *interval
            }
        }
    }

    /// Ends the interval if it is over; whether it was.
    pub(super) fn roll(&mut self, policy: &RequestPolicy, now: Micros) -> bool {
        if now < self.next_schedule(policy) {
            return false;
        }
        self.restart(policy, now);
        true
    }

    /// Ends the interval early, because a request is made now: the next scheduled one is an interval from here.
    /// Too short an interval says too little and goes on.
    pub(super) fn roll_early(&mut self, policy: &RequestPolicy, now: Micros) {
        if let RequestPolicy::Adaptive(adaptive) = policy
            && now.since(self.began).0 >= adaptive.interval.0 / 4
        {
            self.restart(policy, now);
        }
    }

    fn restart(&mut self, policy: &RequestPolicy, now: Micros) {
        if let RequestPolicy::Adaptive(adaptive) = policy {
            let elapsed = now.since(self.began).0.max(1);
            let scaled = self.peak * i128::from(adaptive.interval.0) / i128::from(elapsed);
            self.past.push_back(scaled);
            self.sum += scaled;
            while self.past.len() > adaptive.window.max(1) as usize {
                self.sum -= self.past.pop_front().unwrap_or(0);
            }
        }
        self.current = 0;
        self.peak = 0;
        self.began = now;
    }

    /// What the next interval is expected to consume, with headroom; at least the least.
    pub(super) fn estimate(&self, policy: &RequestPolicy) -> u64 {
        match policy {
            RequestPolicy::Fixed { amount } => *amount,
            RequestPolicy::Expected { per_second, interval, least } => {
                let bytes = u128::from(*per_second) * u128::from(interval.0) / 1_000_000;
                (bytes as u64).max(*least)
            }
            RequestPolicy::Adaptive(adaptive) => {
                if self.past.is_empty() {
                    return adaptive.least.max(self.current.clamp(0, i128::from(u64::MAX)) as u64);
                }
                let mean = (self.sum / self.past.len() as i128).max(0);
                let with = mean + mean * i128::from(adaptive.headroom_permille) / 1000;
                (with.min(i128::from(u64::MAX)) as u64).max(adaptive.least.min(with.max(1) as u64))
            }
        }
    }

    /// Whether what is on hand will be gone before the bank can have answered twice.
    pub(super) fn runs_out(&self, policy: &RequestPolicy, on_hand: u64, now: Micros) -> bool {
        if !matches!(policy, RequestPolicy::Adaptive(_)) {
            return false;
        }
        let elapsed = u128::from(now.since(self.began).0.max(1));
        let used = self.current.max(0) as u128;
        used > 0 && u128::from(on_hand) * elapsed < used * u128::from(self.answer_time) * 2
    }

    /// What can be given back, down to twice the estimate: only when it is worth a message, or nothing is used any more.
    pub(super) fn surplus(&self, policy: &RequestPolicy, on_hand: u64) -> u64 {
        match policy {
            RequestPolicy::Adaptive(adaptive) if adaptive.give_back && !self.past.is_empty() => {
                let keep = if self.sum == 0 { 0 } else { self.estimate(policy).saturating_mul(2) };
                if on_hand > keep.saturating_mul(2) { on_hand - keep } else { 0 }
            }
            _ => 0,
        }
    }
}
