//! What the pools say, handed to a repair.

use crate::Backing;
use rustc_hash::{FxHashMap, FxHashSet};
use ullage_types::{Class, FileId, Generation, PoolId, Timestamp};

/// A backing file that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its pool.
    pub pool: PoolId,
    /// Where in the pool it is.
    pub locator: Box<[u8]>,
    /// Length in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Its attribute was lost: nobody may open it until a start, which looks through marked leaves, has written it again.
    pub bare: bool,
    /// It is there and cannot be read: length, blocks and times are not known.
    pub unreadable: bool,
    /// Class, owner and group, where they were recorded on it.
    pub owner: Option<(Class, u32, u32)>,
}

/// Why records and backing files may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The records are of now: in marked leaves differences are expected, and the next start settles them.
    #[default]
    Repair,
    /// The records are older than the pools: what is missing was removed since, what is unknown was made since.
    Rebuild,
}

/// What is in the pools.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How to read differences.
    pub mode: Mode,
    /// The pools that were looked through; the others are taken at the records' word.
    pub pools: FxHashSet<PoolId>,
    /// Pools that the space no longer has: files in them are dropped.
    pub gone: FxHashSet<PoolId>,
    /// Every backing file, by its numbers.
    pub found: FxHashMap<(FileId, Generation), Found>,
}

impl Found {
    /// Whether there may be data in it. Most empty ones are kept by their pool for the next file: until then they have the numbers and the
    /// owner of the last one.
    pub(super) fn holds(&self) -> bool {
        self.size > 0 || self.unreadable
    }
}

impl Facts {
    /// The newest backing file of each file. One with data comes before empty ones: those may be what a file that went to another pool left
    /// behind, or a copy of one that stayed.
    pub(super) fn by_file(&self) -> FxHashMap<FileId, Generation> {
        let mut newest: FxHashMap<FileId, (bool, Generation)> = FxHashMap::default();
        for (&(file, generation), found) in &self.found {
            let this = (found.holds(), generation);
            let entry = newest.entry(file).or_insert(this);
            *entry = (*entry).max(this);
        }
        newest.into_iter().map(|(file, (_, generation))| (file, generation)).collect()
    }

    /// Whether a file went from one backing file to another since the records were made: that has its name since it was whole. Records of now
    /// may be behind in that where the other is in a pool that is gone.
    pub(super) fn went(&self, file: FileId, from: &Backing, to: Generation) -> bool {
        let may_be_behind = self.mode == Mode::Rebuild || self.gone.contains(&from.pool);
        may_be_behind && to > from.generation && self.found.get(&(file, to)).is_some_and(Found::holds)
    }
}

/// The leaf in a locator: all but its last part.
pub(super) fn leaf(locator: &[u8]) -> &[u8] {
    let end = locator.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    locator.get(..end).unwrap_or_default()
}
