//! Files whose attribute was read since the pool was opened, for who may not wait: to read it again may take the disk, also of a file that
//! the kernel has in memory, once the block that its inode lies in is not.

use crate::which::Which;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use ullage_types::Generation;

/// Most of them: with one more all are forgotten, and read again.
const MOST: usize = 65_536;

/// See above. Nothing is kept while all who open files may wait.
#[derive(Default)]
pub struct Known {
    is_asked: AtomicBool,
    files: Mutex<FxHashMap<Generation, Which>>,
}

impl Known {
    /// Which inode was found to carry this generation, for who may not wait.
    pub fn which(&self, generation: Generation) -> Option<Which> {
        self.is_asked.store(true, Ordering::Relaxed);
        self.files.lock().get(&generation).copied()
    }

    /// This file was found to.
    pub fn learn(&self, generation: Generation, file: impl AsFd) {
        if !self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let Ok(which) = Which::of(file) else { return };
        let mut files = self.files.lock();
        if files.len() >= MOST {
            files.clear();
        }
        files.insert(generation, which);
    }
}
