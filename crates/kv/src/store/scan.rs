//! Scanning: in chunks, each one state of the whole store, none visited under a lock.

use super::core::Core;
use crate::Error;
use crate::key_range::{first_key, prefix_end, successor};
use crate::kv::Visit;
use std::ops::Range;

/// Entries of the first chunk: many scans stop early.
const FIRST_ENTRIES: usize = 16;
/// Entries that a chunk grows to; also bounds how long the lock is held.
const MAX_ENTRIES: usize = 256;

/// Copied entries, all in one piece of memory.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl Chunk {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let key = self.keep(key);
        let value = value.map(|v| self.keep(v));
        self.entries.push((key, value));
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&self, at: usize) -> Option<(&[u8], Option<&[u8]>)> {
        let (key, value) = self.entries.get(at)?;
        Some((&self.bytes[key.clone()], value.clone().map(|v| &self.bytes[v])))
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?).map(|(key, _)| key)
    }
}

impl Core {
    pub fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let end = prefix_end(prefix);
        let mut cursor = first_key(prefix, from).to_vec();
        let (mut below, mut above) = (Chunk::default(), Chunk::default());
        let mut limit = FIRST_ENTRIES;
        loop {
            let bound = self.read_chunk(prefix, end.as_deref(), &cursor, limit, &mut below, &mut above)?;
            if !visit_merged(&below, &above, bound.as_deref(), visit) {
                return Ok(());
            }
            let Some(bound) = bound else { return Ok(()) };
            successor(&bound, &mut cursor);
            limit = (limit * 2).min(MAX_ENTRIES);
        }
    }

    /// Copies what the engine has and what is above it, from `cursor` on. Gives back the last key up to which
    /// both are whole; none when they reach the end.
    fn read_chunk(
        &self,
        prefix: &[u8],
        end: Option<&[u8]>,
        cursor: &[u8],
        limit: usize,
        below: &mut Chunk,
        above: &mut Chunk,
    ) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let removals = self.state.lock().removals;
            below.clear();
            self.engine.scan(prefix, cursor, &mut |key, value| {
                below.push(key, Some(value));
                below.len() < limit
            })?;
            let engine_bound = if below.len() < limit { None } else { below.last_key().map(<[u8]>::to_vec) };

            above.clear();
            let state = self.state.lock();
            if state.removals != removals {
                // Something moved into the engine after the engine was read: it is in neither copy.
                continue;
            }
            let mut last = cursor.to_vec();
            let upper = match &engine_bound {
                Some(bound) => {
                    successor(bound, &mut last);
                    Some(last.as_slice())
                }
                None => end,
            };
            for (key, value) in state.merge(cursor, upper) {
                above.push(key, value);
                if above.len() == limit {
                    return Ok(above.last_key().map(<[u8]>::to_vec));
                }
            }
            return Ok(engine_bound);
        }
    }
}

/// Visits both copies up to `bound`, what is above hiding what is below; false when told to stop.
fn visit_merged(below: &Chunk, above: &Chunk, bound: Option<&[u8]>, visit: &mut Visit<'_>) -> bool {
    let (mut i, mut j) = (0, 0);
    let within = |entry: &(&[u8], Option<&[u8]>)| bound.is_none_or(|bound| entry.0 <= bound);
    loop {
        let lower = below.get(i).filter(within);
        let upper = above.get(j).filter(within);
        let (key, value) = match (lower, upper) {
            (None, None) => return true,
            (Some(lower), None) => {
                i += 1;
                lower
            }
            (Some(lower), Some(upper)) if lower.0 < upper.0 => {
                i += 1;
                lower
            }
            (lower, Some(upper)) => {
                i += usize::from(lower.is_some_and(|lower| lower.0 == upper.0));
                j += 1;
                upper
            }
        };
        if value.is_some_and(|value| !visit(key, value)) {
            return false;
        }
    }
}
