//! That somebody may read a file, for who is asked about it elsewhere: over the control socket, where files have numbers and anybody may name any.
//! The kernel gives an attribute of ours only to who may read the file, by its permissions, ACL and the path to it.

use crate::Space;
use std::hash::{BuildHasher, RandomState};
use ullage_types::FileId;

/// Makes a number of each file that nobody can tell from others: SipHash with a key of this run.
#[derive(Debug, Default)]
pub(crate) struct Proofs(RandomState);

impl Space {
    /// What only who may read this file was given, while this daemon runs.
    pub fn proof(&self, file: FileId) -> u64 {
        self.proofs.0.hash_one(file.0)
    }
}
