//! Directories of a tree that are kept open: those that were come to last.
//!
//! Changes come from several places in turns, each of which may lie deeper than there are directories open: a way down to one must not close
//! what belongs to the others, or each of them walks all the way each time.

use rustc_hash::FxHashMap;
use ullage_pool::Directory;
use ullage_types::FileId;

/// How many of a way down are kept, the lowest. Twice as many are open at most.
pub(super) const NEAR: usize = 128;

/// Two generations: what is come to again is of the newer one, and when that is full the older one goes.
#[derive(Default)]
pub(super) struct Kept {
    new: FxHashMap<FileId, Directory>,
    old: FxHashMap<FileId, Directory>,
}

impl Kept {
    pub fn get(&self, id: FileId) -> Option<&Directory> {
        self.new.get(&id).or_else(|| self.old.get(&id))
    }

    pub fn keep(&mut self, id: FileId, directory: &Directory) {
        if self.new.len() >= NEAR && !self.new.contains_key(&id) {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(id, directory.clone());
    }

    pub fn remove(&mut self, id: FileId) {
        self.new.remove(&id);
        self.old.remove(&id);
    }
}
