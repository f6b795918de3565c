//! Which files are in memory: at most one [`Inode`] a file, found by id.

use crate::inode::Inode;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};
use ullage_types::FileId;

const SHARDS: usize = 64;

/// Never drops an `Arc<Inode>` while a shard is locked: dropping the last one locks the shard.
#[derive(Debug)]
pub struct Table {
    shards: [Mutex<FxHashMap<FileId, Weak<Inode>>>; SHARDS],
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, file: FileId) -> &Mutex<FxHashMap<FileId, Weak<Inode>>> {
        &self.shards[file.0 as usize % SHARDS]
    }

    /// The file, if it is in memory.
    pub(crate) fn find(&self, file: FileId) -> Option<Arc<Inode>> {
        let shard = self.shard(file).lock();
        shard.get(&file).and_then(Weak::upgrade)
    }

    /// The file if it is in memory by now, else what `load` makes; nobody else can load it meanwhile.
    pub(crate) fn find_or<E>(
        &self,
        file: FileId,
        load: impl FnOnce() -> Result<Arc<Inode>, E>,
    ) -> Result<Arc<Inode>, E> {
        let mut shard = self.shard(file).lock();
        if let Some(found) = shard.get(&file).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let inode = load()?;
        shard.insert(file, Arc::downgrade(&inode));
        Ok(inode)
    }

    /// Enters a file that was just created.
    pub(crate) fn enter(&self, inode: &Arc<Inode>) {
        let before = self.shard(inode.id).lock().insert(inode.id, Arc::downgrade(inode));
        assert!(before.is_none_or(|weak| weak.strong_count() == 0), "file {} is in memory twice", inode.id);
    }

    /// A file's last holder is gone; another thread may have loaded it anew meanwhile.
    pub(crate) fn gone(&self, file: FileId) {
        let mut shard = self.shard(file).lock();
        if shard.get(&file).is_some_and(|weak| weak.strong_count() == 0) {
            shard.remove(&file);
        }
    }
}
