//! What `status` shows of a store.

use super::core::Core;
use crate::Seq;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a failed write means, and what to do: for the log, and for who asks.
pub const POISONED: &str = "the catalog takes no more writes: the space is read-only until it is unmounted, its disk mended, and it is \
                            mounted again";

#[derive(Default)]
pub(super) struct Counters {
    pub records: AtomicU64,
    pub log_bytes: AtomicU64,
    pub checkpoints: AtomicU64,
    pub syncs: AtomicU64,
}

/// Counts since the store was opened, and where it stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The newest commit.
    pub newest: Seq,
    /// The newest durable commit.
    pub durable: Seq,
    /// The newest commit in the engine.
    pub applied: Seq,
    /// The newest commit durable in the engine.
    pub persisted: Seq,
    /// Keys changed and in no log yet.
    pub pending_keys: usize,
    /// Layers of changes above the engine.
    pub layers: usize,
    /// Memory of the changes above the engine, in bytes.
    pub overlay_bytes: usize,
    /// Calls that asked for durability.
    pub syncs: u64,
    /// Log records written: the flushes that these calls shared.
    pub records: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Length of both log files, in bytes.
    pub log_capacity_bytes: u64,
    /// How often the engine was made durable.
    pub checkpoints: u64,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
}

impl Core {
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            newest: state.newest,
            durable: state.durable,
            applied: state.applied,
            persisted: state.persisted,
            pending_keys: state.pending.len(),
            layers: state.layer_count(),
            overlay_bytes: state.overlay_bytes(),
            syncs: self.counters.syncs.load(Relaxed),
            records: self.counters.records.load(Relaxed),
            log_bytes: self.counters.log_bytes.load(Relaxed),
            log_capacity_bytes: self.log_capacity_bytes,
            checkpoints: self.counters.checkpoints.load(Relaxed),
            poisoned: state.poisoned.clone(),
        }
    }
}

impl Stats {
    /// The numbers by name, for reports.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("newest", self.newest.0),
            ("durable", self.durable.0),
            ("applied", self.applied.0),
            ("persisted", self.persisted.0),
            ("pending_keys", self.pending_keys as u64),
            ("layers", self.layers as u64),
            ("overlay_bytes", self.overlay_bytes as u64),
            ("syncs", self.syncs),
            ("records", self.records),
            ("log_bytes", self.log_bytes),
            ("log_capacity_bytes", self.log_capacity_bytes),
            ("checkpoints", self.checkpoints),
            ("poisoned", u64::from(self.poisoned.is_some())),
        ]
    }
}
