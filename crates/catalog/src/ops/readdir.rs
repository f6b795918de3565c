//! Listing a directory.

use crate::inode::Inode;
use crate::ops::check_directory;
use crate::{Catalog, Result};
use ullage_types::{FileId, Kind};

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The file it names.
    pub file: FileId,
    /// That file's kind.
    pub kind: Kind,
    /// Its place; the next listing goes on after it.
    pub cookie: u64,
}

impl Catalog {
    /// The place of a directory's newest entry, or of one that is gone: every later entry comes after it.
    pub fn newest_place(&self, directory: &Inode) -> u64 {
        directory.lock().record.next_cookie.saturating_sub(1)
    }

    /// The same for a listing that begins now, which ends there. None that began before entries were removed, or became others, ends at
    /// the same place: such a change takes a place from those of entries to come.
    pub fn begin_listing(&self, directory: &Inode) -> u64 {
        let mut state = directory.lock();
        if state.directory.take_changed() {
            state.record.next_cookie += 1;
        }
        state.record.next_cookie.saturating_sub(1)
    }

    /// Whether nothing changed in a directory since a listing began that ends there.
    pub fn is_as_listed(&self, directory: &Inode, end: u64) -> bool {
        let state = directory.lock();
        !state.directory.is_changed() && state.record.next_cookie.saturating_sub(1) == end
    }

    /// At most `most` entries after the place `after` (0 for the beginning), up to the place `end`. An entry keeps its
    /// place as long as it lives, over renames in its directory too, and places are never used again, so that a listing in
    /// parts meets every entry that stays exactly once, whatever comes and goes meanwhile.
    pub fn list(&self, directory: &Inode, after: u64, end: u64, most: usize) -> Result<Vec<Entry>> {
        let mut state = directory.lock();
        if check_directory(&state).is_err() && state.record.nlink == 0 {
            return Ok(Vec::new());
        }
        check_directory(&state)?;
        state.directory.load(&*self.kv, directory.id)?;
        let entries = state.directory.list(after).take_while(|(_, dirent)| dirent.cookie <= end).take(most);
        Ok(entries
            .map(|(name, dirent)| Entry {
                name: name.to_vec(),
                file: dirent.file,
                kind: dirent.kind,
                cookie: dirent.cookie,
            })
            .collect())
    }
}
