//! Files of which something that was written is not on disk and will not be, where who learnt of that was a thread of ours: the kernel tells of it
//! once, and takes it for told.

use crate::Errno;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ullage_catalog::Inode;
use ullage_types::{FileId, Generation};

/// Of more than so many nobody is told.
const MOST: usize = 65_536;

/// What the next fsync(2) of a file has to say.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// There is any: each fsync(2) asks.
    any: AtomicBool,
    files: Mutex<FxHashMap<(FileId, Generation), Errno>>,
}

impl Lost {
    /// Something of a file could not be written, for this reason.
    pub(crate) fn note(&self, file: FileId, generation: Generation, why: Errno) {
        let mut files = self.files.lock();
        if files.len() < MOST {
            files.insert((file, generation), why);
            self.any.store(true, Relaxed);
        }
    }

    /// What is to be told of a file, once: whoever asks tells everybody.
    pub(crate) fn take(&self, inode: &Inode) -> Option<Errno> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let generation = inode.lock().record.backing.as_ref()?.generation;
        self.files.lock().remove(&(inode.id, generation))
    }
}
