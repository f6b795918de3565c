//! Which files are in memory: at most one [`Inode`] a file, found by id.

use crate::inode::Inode;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};
use ullage_types::FileId;

const SHARDS: usize = 64;

#[derive(Debug, Default)]
struct Shard {
    files: FxHashMap<FileId, Weak<Inode>>,
    /// How many files came into memory here.
    loads: u64,
}

/// A file was not in memory. Until another one of its shard is loaded, its record stays as it can be read now: whoever
/// changes a record has the file in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent(u64);

/// Never drops an `Arc<Inode>` while a shard is locked: dropping the last one locks the shard.
#[derive(Debug)]
pub struct Table {
    shards: [Mutex<Shard>; SHARDS],
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, file: FileId) -> &Mutex<Shard> {
        &self.shards[file.0 as usize % SHARDS]
    }

    /// The file, if it is in memory.
    pub(crate) fn find(&self, file: FileId) -> Result<Arc<Inode>, Absent> {
        let shard = self.shard(file).lock();
        shard.files.get(&file).and_then(Weak::upgrade).ok_or(Absent(shard.loads))
    }

    /// The file if it is in memory by now, else what `load` makes; nobody else can load it meanwhile. `load` is told
    /// whether the record that was read after `absent` still stands.
    pub(crate) fn find_or<E>(
        &self,
        file: FileId,
        absent: Absent,
        load: impl FnOnce(bool) -> Result<Arc<Inode>, E>,
    ) -> Result<Arc<Inode>, E> {
        let mut shard = self.shard(file).lock();
        if let Some(found) = shard.files.get(&file).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let inode = load(shard.loads == absent.0)?;
        shard.loads += 1;
        shard.files.insert(file, Arc::downgrade(&inode));
        Ok(inode)
    }

    /// Enters a file that is being created, before its record can be read.
    pub(crate) fn enter(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.id).lock();
        shard.loads += 1;
        let before = shard.files.insert(inode.id, Arc::downgrade(inode));
        drop(shard);
        assert!(before.is_none_or(|weak| weak.strong_count() == 0), "file {} is in memory twice", inode.id);
    }

    /// Takes a file out that could not be created: another one may get its number.
    pub(crate) fn leave(&self, file: FileId) {
        self.shard(file).lock().files.remove(&file);
    }

    /// A file's last holder is gone; another thread may have loaded it anew meanwhile.
    pub(crate) fn gone(&self, file: FileId) {
        let mut shard = self.shard(file).lock();
        if shard.files.get(&file).is_some_and(|weak| weak.strong_count() == 0) {
            shard.files.remove(&file);
        }
    }
}
