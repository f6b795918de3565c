//! What the kernel keeps of a listing, and when it must not.
//!
//! It puts what it is answered into pages of its own, and others read those. Who comes in the middle, from a position of before a change,
//! and does not find it there, is to be sent to us; but where the last page is full to the last byte the kernel takes that for the end of the
//! directory, and he misses the rest. So a listing of such a length is not kept, nor one during which the directory changed.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use ullage_catalog::Look;
use ullage_types::FileId;

/// Listings that go on at the same time, as far as they are followed; of others nothing is kept.
const MOST: usize = 1024;
/// What the kernel keeps of an entry beside its name (`struct fuse_dirent`), and what it rounds up to.
const HEADER: u64 = 24;
const ALIGNED: u64 = 8;

/// A listing from its beginning to here.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Look,
    /// The position that it goes on from.
    at: u64,
    /// Bytes in the kernel's pages.
    packed: u64,
}

impl Progress {
    /// One more entry was given to the kernel.
    pub(crate) fn add(&mut self, name: &[u8], next: u64) {
        let (page, length) = (page(), (HEADER + name.len() as u64).next_multiple_of(ALIGNED));
        if self.packed % page + length > page {
            self.packed = self.packed.next_multiple_of(page);
        }
        self.packed += length;
        self.at = next;
    }

    /// Whether the kernel may keep it, now that it is at its end.
    pub(crate) fn may_be_kept(&self, now: Look) -> bool {
        self.began == now && !self.packed.is_multiple_of(page())
    }
}

fn page() -> u64 {
    crate::page_size() as u64
}

/// Listings that go on.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<FxHashMap<FileId, Progress>>);

impl Listings {
    /// The listing that goes on from this position, or begins there. None where it is not followed.
    pub(crate) fn follow(&self, directory: FileId, at: u64, look: impl FnOnce() -> Look) -> Option<Progress> {
        let before = self.0.lock().remove(&directory);
        if at == 0 { Some(Progress { began: look(), at, packed: 0 }) } else { before.filter(|it| it.at == at) }
    }

    /// It is followed further.
    pub(crate) fn go_on(&self, directory: FileId, progress: Option<Progress>) {
        let Some(progress) = progress else { return };
        let mut all = self.0.lock();
        if all.len() >= MOST {
            // Of those that nobody ended, too.
            all.clear();
        }
        all.insert(directory, progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_types::Timestamp;

    const LOOK: Look = Look { next_cookie: 7, entries: 5, mtime: Timestamp { seconds: 1, nanoseconds: 2 } };

    fn listed(names: usize, length: usize) -> (Listings, Option<Progress>) {
        let listings = Listings::default();
        let mut progress = listings.follow(FileId(5), 0, || LOOK);
        for at in 0..names {
            progress.as_mut().unwrap().add(&vec![b'x'; length], at as u64 + 1);
        }
        (listings, progress)
    }

    #[test]
    fn a_listing_that_fills_its_last_page_is_not_kept() {
        let per_page = page() as usize / 32;
        for (names, kept) in [(per_page, false), (per_page + 1, true), (3 * per_page, false), (3 * per_page - 1, true)]
        {
            assert_eq!(listed(names, 8).1.unwrap().may_be_kept(LOOK), kept, "{names}");
        }
        // What does not fit into a page begins the next one.
        let (_, progress) = listed(16, 231);
        assert_eq!(progress.unwrap().packed, page());
        assert_eq!(listed(page() as usize / 256, 232).1.unwrap().packed, page());
        assert!(listed(18, 241).1.unwrap().packed > page());
    }

    #[test]
    fn a_listing_during_which_the_directory_changed_or_another_began_is_not_kept() {
        let changed = Look { entries: 4, ..LOOK };
        assert!(!listed(3, 8).1.unwrap().may_be_kept(changed));
        let (listings, progress) = listed(3, 8);
        listings.go_on(FileId(5), progress);
        assert!(listings.follow(FileId(5), 2, || LOOK).is_none());
        let (listings, progress) = listed(3, 8);
        listings.go_on(FileId(5), progress);
        let progress = listings.follow(FileId(5), 3, || LOOK);
        assert!(progress.is_some_and(|it| it.may_be_kept(LOOK)));
    }
}
