//! Where a shard's rows are kept. Whatever the engine: appended writes become durable in order, and their completion is
//! reported only while this process is the one that may act.

mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod etcd_settings;
mod parts;

pub use embedded::Embedded;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, Standing, campaign, look};
pub use etcd_settings::EtcdSettings;

use crate::rows::Rows;
use ullage_voucher::Write;

/// Why writes are not durable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] ullage_journal::JournalError),
    /// The rows on the medium do not decode.
    #[error(transparent)]
    Decode(#[from] ullage_journal::codec::DecodeError),
    /// etcd cannot be reached, or refuses.
    #[error("etcd: {0}")]
    Etcd(String),
    /// What they say is no state of a bank, or not of this one.
    #[error("the accounts cannot be used: {0}")]
    Load(#[from] ullage_voucher::LoadError),
    /// They are spread otherwise.
    #[error("the accounts are spread over {kept} shards, which never changes: give that as --shards, not {given}")]
    Shards {
        /// Over how many, as far as is known.
        kept: String,
        /// How many were asked for.
        given: u32,
    },
    /// A write failed: what the bank knows is ahead of what is on the medium.
    #[error(
        "a write failed, see the log; nothing that rests on it was answered: mend the cause and start the bank again"
    )]
    Failed,
    /// Another process leads now.
    #[error("another bank leads this shard now")]
    Deposed,
}

/// Called once the writes are durable, or never will be.
pub type Done = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// A place for rows.
pub trait Engine: Send + Sync {
    /// Queues writes; many callers' writes share one commit. An empty set is a barrier: it completes after all before it.
    fn append(&self, writes: &[Write], done: Done);

    /// Whether so much was appended that a snapshot is due.
    fn snapshot_due(&self) -> bool;

    /// Takes all rows, as of what has been appended so far, and writes them in the background. Called under the lock that
    /// also guards [`Self::append`].
    fn snapshot(&self, rows: &Rows);

    /// Whether the process may still act; once not, never again through this engine.
    fn is_leading(&self) -> bool;

    /// Leaves it to another process to act, if there can be one. What was appended and has not completed fails.
    fn give_up(&self);

    /// Whether another process can act already, once this one has given up.
    fn has_left(&self) -> bool;
}
