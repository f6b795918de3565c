//! Why an operation on a chunk did not happen.

use super::name::ChunkName;
use std::path::Path;

/// Why an operation did not happen; `R` is the ledger's own refusal.
#[derive(Debug, thiserror::Error)]
pub enum OpError<R> {
    /// No such chunk.
    #[error("there is no chunk {0}")]
    NotFound(ChunkName),
    /// Its mode does not allow this.
    #[error("the mode of chunk {0} does not allow this")]
    Forbidden(ChunkName),
    /// It exists, and replacing was not asked for.
    #[error("chunk {0} exists")]
    Exists(ChunkName),
    /// It is another than was expected.
    #[error("chunk {0} was changed meanwhile: look at it again")]
    Changed(ChunkName),
    /// It would be charged to more users than one chunk can be.
    #[error("chunk {0} is charged to {max} users, and nobody else can make it larger", max = super::index::CHARGED_MAX)]
    Crowded(ChunkName),
    /// It would be larger than a chunk can be.
    #[error("a chunk has at most {} bytes", super::CHUNK_MAX_BYTES)]
    TooLarge,
    /// What is on the medium does not match its checksum.
    #[error("chunk {name} is damaged at byte {offset}")]
    Damaged {
        /// The chunk.
        name: ChunkName,
        /// First byte of the damaged block; 0 also for a damaged header.
        offset: u64,
    },
    /// The payment does not cover it.
    #[error("the ledger refuses")]
    Refused(R),
    /// The file system is full.
    #[error("the store's file system is full")]
    NoSpace,
    /// The file system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, in the present tense.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] ullage_journal::JournalError),
    /// A committed change could not be applied; the journal still has it, so a restart completes it.
    #[error("the store stops after a failure: {0}")]
    Stopped(String),
}

impl<R> OpError<R> {
    /// An I/O error with what was tried; a full file system has its own variant.
    pub(crate) fn io(what: &str, path: &Path, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::StorageFull || source.kind() == std::io::ErrorKind::QuotaExceeded {
            return Self::NoSpace;
        }
        Self::Io { what: format!("{what} {}", path.display()), source }
    }
}
