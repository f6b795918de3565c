//! What can go wrong with a journal.

use crate::reserve::is_full;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a journal could not be opened, or a record not be made durable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried, in the present tense.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason.
        source: Arc<std::io::Error>,
    },
    /// Bytes that had been made durable are damaged.
    #[error("{path} is damaged at byte {offset}, before byte {durable} that was durable")]
    Damaged {
        /// The segment or snapshot.
        path: PathBuf,
        /// First byte that does not check.
        offset: u64,
        /// Everything before this byte had been flushed.
        durable: u64,
    },
    /// A segment is not there, though later ones are.
    #[error("{0} is missing, but there are later records: put it back, or all of the journal from a copy")]
    Missing(PathBuf),
    /// An earlier write or flush failed: what is on the medium is unknown, so nothing more is accepted.
    #[error("the journal is poisoned by an earlier failure: {0}")]
    Poisoned(String),
    /// A record is larger than [`crate::frame::RECORD_MAX_BYTES`].
    #[error("a record of {0} bytes is too large")]
    TooLarge(usize),
}

impl JournalError {
    /// Whether there was no room, and an earlier failure is not why.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    pub(crate) fn io(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }
}
