//! How a store is set up.

use crate::FjallOptions;
use std::time::Duration;

/// Which engine keeps the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// On disk.
    #[default]
    Fjall,
    /// In memory: nothing survives, `sync` costs nothing.
    Memory,
}

/// A known defect, switched on so that a crash test can prove that it would notice. Never outside tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Commits are called durable without being written.
    AckBeforeWrite,
    /// Log records are replayed without a look at their checksum.
    IgnoreChecksum,
}

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often what was committed is logged and brought into the engine; `None` only when asked
    /// ([`crate::Store::checkpoint`]) or when a log file is full.
    pub interval: Option<Duration>,
    /// Length of each of the two log files, in bytes; a multiple of [`crate::BLOCK`].
    pub log_bytes: u64,
    /// Commits waiting for the log are written without waiting for the interval beyond this, in bytes.
    pub pending_bytes: usize,
    /// A commit waits while more than this is in memory above the engine, in bytes.
    pub overlay_bytes: usize,
    /// Memory of the engine on disk.
    pub engine: FjallOptions,
    /// A defect to be caught by tests.
    pub canary: Option<Canary>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(1)),
            log_bytes: 32 << 20,
            pending_bytes: 4 << 20,
            overlay_bytes: 256 << 20,
            engine: FjallOptions::default(),
            canary: None,
        }
    }
}
