//! How many messages of each kind went over a connection. They are free of noise where times are not.

use crate::abi::opcode;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one thread. Only that thread adds, so that adding needs no locked instruction.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Tally([AtomicU64; opcode::COUNT + 1]);

impl Tally {
    /// Counts a request.
    pub fn add(&self, code: u32) {
        let cell = self.0.get(code as usize).unwrap_or(&self.0[opcode::COUNT]);
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.0.iter().map(|cell| cell.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0)
    }
}

/// Message counts of a connection, by opcode, and of notifications to the kernel.
#[derive(Debug, Default)]
pub struct Counters {
    tallies: Mutex<Tallies>,
    notifications: AtomicU64,
}

/// Threads come and go for years.
#[derive(Debug, Default)]
struct Tallies {
    /// Of threads that run.
    own: Vec<Arc<Tally>>,
    /// What those had counted that have ended.
    ended: BTreeMap<usize, u64>,
}

impl Tallies {
    fn add_up_ended(&mut self) {
        let Self { own, ended } = self;
        own.retain(|tally| {
            let runs = Arc::strong_count(tally) > 1;
            if !runs {
                tally.counts().for_each(|(code, count)| *ended.entry(code).or_default() += count);
            }
            runs
        });
    }
}

impl Counters {
    /// A tally for one more thread.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally([const { AtomicU64::new(0) }; opcode::COUNT + 1]));
        let mut tallies = self.tallies.lock();
        tallies.add_up_ended();
        tallies.own.push(Arc::clone(&tally));
        tally
    }

    pub(crate) fn notified(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far: opcode name to messages, and `NOTIFY`. Zeroes are left out.
    pub fn snapshot(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        let tallies = self.tallies.lock();
        let ended = tallies.ended.iter().map(|(code, count)| (*code, *count));
        for (code, count) in tallies.own.iter().flat_map(|tally| tally.counts()).chain(ended) {
            *counts.entry(opcode::name(code as u32)).or_default() += count;
        }
        drop(tallies);
        let notifications = self.notifications.load(Ordering::Relaxed);
        if notifications > 0 {
            counts.insert("NOTIFY", notifications);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the counts of each thread stayed, of which one comes with each fsync(2) after a pause.
    #[test]
    fn what_threads_counted_that_have_ended_is_kept_and_their_tallies_are_not() {
        let counters = Counters::default();
        let _runs = counters.tally();
        for _ in 0..100 {
            counters.tally().add(opcode::FSYNC);
        }
        assert_eq!(counters.tallies.lock().own.len(), 2);
        assert_eq!(counters.snapshot().values().sum::<u64>(), 100);
        counters.tally();
        assert_eq!(counters.snapshot().values().sum::<u64>(), 100);
    }
}
