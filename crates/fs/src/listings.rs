//! What the kernel keeps of a listing, and when it must not.
//!
//! It puts what it is answered into pages of its own, as far as each entry goes on from the last one there, whoever was answered it and
//! when; others read those once somebody has met the end. Whoever begins to list looks whether the directory changed first. Who comes in
//! the middle does not: he looks for his position. As every change makes listings that begin after it end elsewhere, and positions say where
//! theirs ends, pages that he finds it in hold nothing that was gone when he began. Where he does not find it he is to be sent to us; but where the
//! last page is full to the last byte the kernel takes that for the end of the directory, and he misses the rest. So a listing of such a
//! length is not kept, nor one whose length nobody knows, since the directory changed meanwhile.

use crate::cursor::Cursor;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use ullage_types::FileId;

/// Directories whose listing is followed at the same time; of others nothing is kept.
const MOST: usize = 1024;
/// What the kernel keeps of an entry beside its name (`struct fuse_dirent`), and what it rounds up to.
const HEADER: u64 = 24;
const ALIGNED: u64 = 8;

/// How many bytes the kernel's pages take of a directory, up to a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    at: Cursor,
    bytes: u64,
}

impl Packed {
    /// An entry between two positions was given to the kernel. Others may have been given it before.
    pub(crate) fn add(&mut self, before: Cursor, name: &[u8], next: Cursor) {
        if self.at != before {
            return;
        }
        let (page, length) = (page(), (HEADER + name.len() as u64).next_multiple_of(ALIGNED));
        if self.bytes % page + length > page {
            self.bytes = self.bytes.next_multiple_of(page);
        }
        self.bytes += length;
        self.at = next;
    }

    /// Whether the kernel may keep what ends at this position.
    pub(crate) fn may_be_kept(&self, end: Cursor) -> bool {
        self.at == end && !self.bytes.is_multiple_of(page())
    }
}

fn page() -> u64 {
    crate::page_size() as u64
}

/// Listings that go on, or are kept.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<FxHashMap<FileId, Packed>>);

impl Listings {
    /// What is known of those that end where this one does, which begins or goes on at this position.
    pub(crate) fn follow(&self, directory: FileId, at: Cursor) -> Option<Packed> {
        let known = self.0.lock().get(&directory).copied().filter(|known| known.at.end == at.end);
        known.or_else(|| (at.after == 0).then_some(Packed { at, bytes: 0 }))
    }

    /// More is known.
    pub(crate) fn go_on(&self, directory: FileId, packed: Option<Packed>) {
        let Some(packed) = packed else { return };
        let mut all = self.0.lock();
        if all.get(&directory).is_some_and(|known| known.at.end == packed.at.end && known.at.after >= packed.at.after) {
            return;
        }
        if all.len() >= MOST && !all.contains_key(&directory) {
            // Of those that nobody ended, too.
            all.clear();
        }
        all.insert(directory, packed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: FileId = FileId(5);

    fn at(after: u64, end: u64) -> Cursor {
        Cursor { after, end }
    }

    fn give(packed: &mut Packed, places: std::ops::Range<u64>, end: u64, length: usize) {
        for after in places {
            packed.add(at(after, end), &vec![b'x'; length], at(after + 1, end));
        }
    }

    fn listed(names: u64, length: usize) -> Packed {
        let mut packed = Listings::default().follow(DIRECTORY, at(0, names)).unwrap();
        give(&mut packed, 0..names, names, length);
        packed
    }

    #[test]
    fn a_listing_that_fills_its_last_page_is_not_kept() {
        let per_page = page() / 32;
        for (names, kept) in [(per_page, false), (per_page + 1, true), (3 * per_page, false), (3 * per_page - 1, true)]
        {
            assert_eq!(listed(names, 8).may_be_kept(at(names, names)), kept, "{names}");
        }
        // What does not fit into a page begins the next one.
        assert_eq!(listed(16, 231).bytes, page());
        assert_eq!(listed(page() / 256, 232).bytes, page());
        assert!(listed(18, 241).bytes > page());
    }

    /// Regression: two who listed a directory at once, and who came back to a position within the last reply, were not followed, and the kernel
    /// never kept its listing again.
    #[test]
    fn listings_of_one_directory_as_it_is_are_followed_as_one() {
        let listings = Listings::default();
        let step = |from: u64, to: u64, end| {
            let mut packed = listings.follow(DIRECTORY, at(from, end));
            if let Some(packed) = &mut packed {
                give(packed, from..to, end, 8);
            }
            listings.go_on(DIRECTORY, packed);
            packed.is_some_and(|packed| packed.may_be_kept(at(to, end)))
        };
        for (from, to) in [(0, 4), (0, 3), (2, 5), (4, 7), (3, 6), (7, 7)] {
            step(from, to, 9);
        }
        assert!(step(7, 9, 9));
        // Another one that ends only now.
        assert!(step(6, 9, 9) && step(9, 9, 9));
        // One that began after a change, while that one goes on.
        step(0, 8, 10);
        assert!(!step(9, 9, 9) && step(8, 10, 10));
        // One whose beginning nobody saw.
        assert!(!step(5, 11, 11));
    }
}
