//! The entries of a directory: as records, and in memory once they were listed.

use crate::{Error, Result, keys};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use ullage_kv::Kv;
use ullage_types::{FileId, Kind};

/// Where a listing starts; 0, 1 and 2 stand for the beginning, after `.` and after `..`.
pub(crate) const FIRST_COOKIE: u64 = 3;

/// One entry: the file it names, and its place in the listing, which it keeps as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub file: FileId,
    pub kind: Kind,
    pub cookie: u64,
}

impl Dirent {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17);
        out.extend_from_slice(&self.file.0.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.cookie.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        Some(Self {
            file: FileId(u64::from_le_bytes(bytes[..8].try_into().ok()?)),
            kind: Kind::from_u8(bytes[8])?,
            cookie: u64::from_le_bytes(bytes[9..].try_into().ok()?),
        })
    }
}

/// What is in memory of a directory's entries: all of them or none.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    loaded: Option<Box<Loaded>>,
    /// Entries looked for in the store, since they were not in memory.
    asked: u32,
    /// Entries of before were removed or became others since that was last asked.
    changed: bool,
}

#[derive(Debug, Default)]
struct Loaded {
    by_name: FxHashMap<Arc<[u8]>, Dirent>,
    by_cookie: BTreeMap<u64, Arc<[u8]>>,
}

impl Directory {
    /// A directory that was just made: all its entries are known.
    pub(crate) fn empty() -> Self {
        Self { loaded: Some(Box::default()), ..Self::default() }
    }

    /// The entry of this name, in a directory of so many. Once the store has been asked often enough that reading all
    /// entries would have cost no more, they are read.
    pub(crate) fn find(&mut self, kv: &dyn Kv, directory: FileId, entries: u64, name: &[u8]) -> Result<Option<Dirent>> {
        const SCANNED_PER_GET: u64 = 8;
        if self.loaded.is_none() {
            self.asked = self.asked.saturating_add(1);
            if u64::from(self.asked) * SCANNED_PER_GET < entries {
                let Some(bytes) = kv.get(&keys::entry(directory, name))? else { return Ok(None) };
                return Dirent::decode(&bytes).map(Some).ok_or_else(|| damaged(directory));
            }
            self.load(kv, directory)?;
        }
        Ok(self.loaded.as_ref().and_then(|loaded| loaded.by_name.get(name).copied()))
    }

    /// Adds an entry that was committed.
    pub(crate) fn insert(&mut self, name: &[u8], dirent: Dirent) {
        if let Some(loaded) = &mut self.loaded {
            let name: Arc<[u8]> = name.into();
            loaded.by_cookie.insert(dirent.cookie, name.clone());
            let before = loaded.by_name.insert(name, dirent);
            assert!(before.is_none(), "an entry was made twice");
        }
    }

    /// Lets an existing entry name another file, as committed; it keeps its place.
    pub(crate) fn replace(&mut self, name: &[u8], dirent: Dirent) {
        self.changed = true;
        if let Some(loaded) = &mut self.loaded {
            *loaded.by_name.get_mut(name).expect("a replaced entry exists") = dirent;
        }
    }

    /// Removes an entry, as committed.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.changed = true;
        if let Some(loaded) = &mut self.loaded {
            let dirent = loaded.by_name.remove(name).expect("a removed entry exists");
            loaded.by_cookie.remove(&dirent.cookie);
        }
    }

    /// Whether entries of before were removed or became others since the last listing began.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// A listing begins.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Reads all entries into memory, if they are not there.
    pub(crate) fn load(&mut self, kv: &dyn Kv, directory: FileId) -> Result<()> {
        if self.loaded.is_some() {
            return Ok(());
        }
        let mut loaded = Box::<Loaded>::default();
        let mut whole = true;
        kv.scan(&keys::entries(directory), &[], &mut |key, value| {
            let Some(dirent) = Dirent::decode(value) else {
                whole = false;
                return false;
            };
            let name: Arc<[u8]> = key[9..].into();
            loaded.by_cookie.insert(dirent.cookie, name.clone());
            loaded.by_name.insert(name, dirent);
            true
        })?;
        if !whole {
            return Err(damaged(directory));
        }
        self.loaded = Some(loaded);
        Ok(())
    }

    /// The entries whose place is later than `after`, in the order of the listing. Load first.
    pub(crate) fn list(&self, after: u64) -> impl Iterator<Item = (&[u8], Dirent)> {
        let loaded = self.loaded.as_ref().expect("a listed directory is loaded");
        loaded
            .by_cookie
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(_, name)| (&**name, loaded.by_name[&**name]))
    }
}

fn damaged(directory: FileId) -> Error {
    Error::Damaged(format!("an entry of directory {directory} cannot be read"))
}
