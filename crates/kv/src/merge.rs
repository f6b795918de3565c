//! Walks several layers at once in key order; of several entries for one key the newest counts.

use crate::key::Key;
use crate::layer::Entry;
use std::collections::btree_map;
use std::iter::Peekable;

type Source<'a> = Peekable<btree_map::Range<'a, Key, Entry>>;

/// The merged entries of layers given newest first; a value of none says that the key was removed.
pub(crate) struct Merge<'a> {
    newest_first: Vec<Source<'a>>,
}

impl<'a> Merge<'a> {
    pub fn new(newest_first: impl Iterator<Item = btree_map::Range<'a, Key, Entry>>) -> Self {
        Self { newest_first: newest_first.map(Iterator::peekable).collect() }
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        // Few layers exist at a time, so a linear look at each beats a heap.
        let least = self.newest_first.iter_mut().filter_map(|s| s.peek().map(|(key, _)| *key)).min()?;
        let mut found = None;
        for source in &mut self.newest_first {
            if let Some((key, entry)) = source.next_if(|(key, _)| *key == least) {
                found = found.or(Some((key.as_slice(), entry.value.as_deref())));
            }
        }
        found
    }
}
