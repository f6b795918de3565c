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
}

/// Message counts of a connection, by opcode, and of notifications to the kernel.
#[derive(Debug, Default)]
pub struct Counters {
    tallies: Mutex<Vec<Arc<Tally>>>,
    notifications: AtomicU64,
}

impl Counters {
    /// A tally for one more thread.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally([const { AtomicU64::new(0) }; opcode::COUNT + 1]));
        self.tallies.lock().push(Arc::clone(&tally));
        tally
    }

    pub(crate) fn notified(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far: opcode name to messages, and `NOTIFY`. Zeroes are left out.
    pub fn snapshot(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for tally in self.tallies.lock().iter() {
            for (code, cell) in tally.0.iter().enumerate() {
                let count = cell.load(Ordering::Relaxed);
                if count > 0 {
                    *counts.entry(opcode::name(code as u32)).or_default() += count;
                }
            }
        }
        let notifications = self.notifications.load(Ordering::Relaxed);
        if notifications > 0 {
            counts.insert("NOTIFY", notifications);
        }
        counts
    }
}
