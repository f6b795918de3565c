//! A sorted set of changes in memory: what was committed and is not in the engine yet.

use crate::key::Key;
use crate::{Change, Seq};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;

/// What one entry costs beside its key and value, in bytes: the two vectors, the key's head and its share of the tree. Also
/// an upper bound of what its encoding in the log adds.
const ENTRY_BYTES: usize = 96;

/// The newest change of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The value; none when the key was removed.
    pub value: Option<Vec<u8>>,
    /// Nothing below this layer has the key, so a removal needs no trace.
    fresh: bool,
}

/// Changes of the commits `first..=last`, one entry for each key.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    map: BTreeMap<Key, Entry>,
    bytes: usize,
    /// The first commit in it.
    pub first: Seq,
    /// The last commit in it.
    pub last: Seq,
}

impl Layer {
    /// An empty layer that goes on after commit `last`.
    pub fn after(last: Seq) -> Self {
        Self { first: Seq(last.0 + 1), last, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// An upper bound of what it takes in memory and in the log, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a change that is newer than all in here.
    pub fn absorb(&mut self, key: Vec<u8>, value: Option<Vec<u8>>, fresh: bool) {
        self.absorb_key(key.into(), value, fresh);
    }

    fn absorb_key(&mut self, key: Key, value: Option<Vec<u8>>, fresh: bool) {
        let value_len = value.as_ref().map_or(0, Vec::len);
        match self.map.entry(key) {
            btree_map::Entry::Vacant(slot) => {
                self.bytes += slot.key().len() + value_len + ENTRY_BYTES;
                let fresh = fresh && value.is_some();
                slot.insert(Entry { value, fresh });
            }
            btree_map::Entry::Occupied(mut slot) => {
                self.bytes -= slot.get().value.as_ref().map_or(0, Vec::len);
                if value.is_none() && slot.get().fresh {
                    self.bytes -= slot.key().len() + ENTRY_BYTES;
                    slot.remove();
                } else {
                    // Whether the layers below have the key is what the first change knew, not this one.
                    self.bytes += value_len;
                    slot.get_mut().value = value;
                }
            }
        }
    }

    /// Adds all of a layer that follows this one.
    pub fn merge(&mut self, newer: Layer) {
        debug_assert_eq!(newer.first.0, self.last.0 + 1);
        self.last = newer.last;
        for (key, entry) in newer.map {
            self.absorb_key(key, entry.value, entry.fresh);
        }
    }

    /// The entry of a key, if this layer changed it.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.map.get(key)
    }

    /// The entries from `start` to before `end`, in key order.
    pub fn range(&self, start: &[u8], end: Option<&[u8]>) -> btree_map::Range<'_, Key, Entry> {
        if end.is_some_and(|end| start >= end) {
            return btree_map::Range::default();
        }
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range::<[u8], _>((Bound::Included(start), upper))
    }

    /// All entries, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.map.iter().map(|(key, entry)| (key.as_slice(), entry.value.as_deref()))
    }

    /// A copy for the engine.
    pub fn changes(&self) -> Vec<Change> {
        self.map
            .iter()
            .map(|(key, entry)| Change { key: key.as_slice().to_vec(), value: entry.value.clone(), fresh: entry.fresh })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(layer: &mut Layer, key: &[u8], fresh: bool) {
        layer.absorb(key.to_vec(), Some(b"value".to_vec()), fresh);
    }

    #[test]
    fn a_fresh_key_and_its_removal_leave_no_trace() {
        let mut layer = Layer::after(Seq(0));
        put(&mut layer, b"k", true);
        put(&mut layer, b"k", false);
        layer.absorb(b"k".to_vec(), None, false);
        assert!(layer.is_empty());
        assert_eq!(layer.bytes(), 0);
    }

    #[test]
    fn a_key_removed_and_made_again_is_not_fresh() {
        let mut layer = Layer::after(Seq(0));
        layer.absorb(b"k".to_vec(), None, false);
        put(&mut layer, b"k", true);
        layer.absorb(b"k".to_vec(), None, false);
        assert_eq!(layer.iter().collect::<Vec<_>>(), [(b"k".as_slice(), None)]);
    }

    #[test]
    fn merging_keeps_what_the_older_layer_knew() {
        let mut older = Layer::after(Seq(0));
        put(&mut older, b"a", true);
        older.absorb(b"b".to_vec(), None, false);
        older.last = Seq(1);
        let mut newer = Layer::after(Seq(1));
        newer.absorb(b"a".to_vec(), None, false);
        put(&mut newer, b"b", true);
        newer.last = Seq(2);
        older.merge(newer);
        older.absorb(b"b".to_vec(), None, false);
        assert_eq!(older.iter().collect::<Vec<_>>(), [(b"b".as_slice(), None)]);
        assert_eq!(older.bytes(), 1 + ENTRY_BYTES);
    }
}
