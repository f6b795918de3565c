//! What a change expects to find in its chunk's place: looked at below the chunk's lock.

use super::error::OpError;
use super::index::ChunkInfo;
use super::ledger::Ledger;
use super::name::ChunkName;
use super::store::{ChunkStore, Done};

/// What may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No chunk.
    Nothing,
    /// Whatever it is.
    Anything,
    /// What this change made; no chunk if it is 0.
    Generation(u64),
}

/// Whether to replace what is there.
impl From<bool> for Expected {
    fn from(replace: bool) -> Self {
        if replace { Self::Anything } else { Self::Nothing }
    }
}

impl Expected {
    pub(crate) fn check<R>(self, name: &ChunkName, found: Option<&ChunkInfo>) -> Result<(), OpError<R>> {
        match self {
            Self::Nothing if found.is_some() => Err(OpError::Exists(name.clone())),
            Self::Generation(expected) if expected != found.map_or(0, |found| found.generation) => {
                Err(OpError::Changed(name.clone()))
            }
            Self::Nothing | Self::Anything | Self::Generation(_) => Ok(()),
        }
    }
}

impl<L: Ledger> ChunkStore<L> {
    /// Removes a chunk, whatever it is; its blocks are credited to those who were charged.
    pub fn delete(
        &self,
        name: &ChunkName,
        by: &str,
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        self.delete_expected(name, by, Expected::Anything, payment)
    }
}
