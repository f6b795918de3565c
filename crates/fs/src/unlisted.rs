//! The kernel drops its copy of a listing.
//!
//! Who reads a page of that copy holds it until its names are in his memory, which may be mapped from a file system that does not answer, and nothing
//! ends who waits for the page. So that is a worker's, and no more than one's for each directory. Only the first page goes: without it
//! the kernel takes the whole copy for lost, and others are held for long after the listing in them is over. While somebody holds the first one
//! no other listing becomes the copy, as each begins there: who finds one waiting has nothing more to drop.

use crate::Space;
use crate::node::Nodes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use ullage_catalog::Inode;
use ullage_types::FileId;

/// Directories that the kernel is being told of, and whether that has to be done once more.
#[derive(Debug, Default)]
pub(crate) struct Unlisted(Mutex<FxHashMap<FileId, bool>>);

impl Unlisted {
    /// Tells the kernel, unless somebody is about to: then he does so again.
    pub(crate) fn tell(&self, directory: FileId, tell: impl Fn()) {
        match self.0.lock().entry(directory) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                return;
            }
            Entry::Vacant(first) => first.insert(false),
        };
        loop {
            tell();
            let mut told = self.0.lock();
            if told.insert(directory, false) != Some(true) {
                told.remove(&directory);
                return;
            }
        }
    }
}

impl Space {
    /// Has the kernel drop the first page of its copy. Waits for whoever reads that.
    pub(crate) fn drop_listing(&self, directory: &Inode) {
        if let Some(kernel) = self.kernel()
            && let Err(error) = kernel.invalidate_node(Nodes::id_of(directory.id), 0, 1)
        {
            tracing::debug!(inode = %directory.id, %error, "the kernel keeps its listing of a directory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_has_to_go_while_the_kernel_is_told_is_told_again_by_who_does() {
        let (unlisted, calls, others) = (Unlisted::default(), Cell::new(0), Cell::new(0));
        unlisted.tell(FileId(5), || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 {
                for _ in 0..2 {
                    unlisted.tell(FileId(5), || unreachable!("one at a time"));
                }
            }
            unlisted.tell(FileId(6), || others.set(others.get() + 1));
        });
        assert_eq!((calls.get(), others.get()), (3, 3));
        assert!(unlisted.0.lock().is_empty());
    }
}
