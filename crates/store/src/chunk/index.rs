//! All chunks in memory: what listing, permission checks and accounting need without touching the disk.

use super::ledger::Posting;
use super::name::ChunkName;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use ullage_journal::codec::{DecodeError, Decoder, Encoder};

/// The most users that one chunk is charged to: to remove it credits each of them, in one step.
pub const CHARGED_MAX: usize = 256;

/// A user's part of what a chunk occupies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Who was charged.
    pub user: Arc<str>,
    /// How much.
    pub bytes: u64,
}

/// What is known of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Whose it is.
    pub owner: Arc<str>,
    /// Permission bits.
    pub mode: u16,
    /// Bytes of data, holes included.
    pub size: u64,
    /// Number of the change that made it so.
    pub generation: u64,
    /// Who was charged for the blocks it occupies. Their sum is what the file system allocated.
    pub charges: Vec<Charge>,
}

/// What somebody wants of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To change it in place.
    Change,
    /// To remove it, or to replace it as a whole, which is as removing it and making it anew.
    Remove,
}

impl ChunkInfo {
    /// Whether its mode lets `by` do that: the owner's digit, then all others', as of chmod(1). The owner may always remove it.
    pub fn permits(&self, by: &str, access: Access) -> bool {
        let is_owner = *self.owner == *by;
        let bits = if is_owner { self.mode >> 6 } else { self.mode };
        match access {
            Access::Read => bits & 0o4 != 0,
            Access::Change => bits & 0o2 != 0,
            Access::Remove => is_owner || bits & 0o2 != 0,
        }
    }

    /// Bytes the chunk occupies.
    pub fn allocated(&self) -> u64 {
        self.charges.iter().map(|charge| charge.bytes).sum()
    }

    /// The charges after the chunk came to occupy `allocated` bytes on behalf of `payer`, and the postings that lead
    /// there: growth is charged to the payer; shrinking is credited to whoever was charged last, never to who shrinks.
    pub fn recharge(old: &[Charge], payer: &Arc<str>, allocated: u64) -> (Vec<Charge>, Vec<Posting>) {
        let mut charges = old.to_vec();
        let mut postings = Vec::new();
        let before: u64 = charges.iter().map(|charge| charge.bytes).sum();
        if allocated > before {
            let bytes = allocated - before;
            postings.push(Posting { user: Arc::clone(payer), delta_bytes: bytes as i64 });
            match charges.iter_mut().find(|charge| charge.user == *payer) {
                Some(charge) => charge.bytes += bytes,
                None => charges.push(Charge { user: Arc::clone(payer), bytes }),
            }
        }
        let mut excess = before.saturating_sub(allocated);
        while excess > 0 {
            let Some(last) = charges.last_mut() else { break };
            let bytes = last.bytes.min(excess);
            postings.push(Posting { user: Arc::clone(&last.user), delta_bytes: -(bytes as i64) });
            last.bytes -= bytes;
            excess -= bytes;
            if last.bytes == 0 {
                charges.pop();
            }
        }
        (charges, postings)
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.text(&self.owner).u16(self.mode).u64(self.size).u64(self.generation);
        out.u16(self.charges.len() as u16);
        for charge in &self.charges {
            out.text(&charge.user).u64(charge.bytes);
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let owner = Arc::from(from.text()?);
        let (mode, size, generation) = (from.u16()?, from.u64()?, from.u64()?);
        let count = from.u16()?;
        let charges = (0..count)
            .map(|_| Ok(Charge { user: Arc::from(from.text()?), bytes: from.u64()? }))
            .collect::<Result<_, _>>()?;
        Ok(Self { owner, mode, size, generation, charges })
    }
}

/// Chunks by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Index {
    chunks: BTreeMap<ChunkName, ChunkInfo>,
    /// What all of them occupy.
    charged_bytes: u64,
    /// Number of the last change.
    pub(crate) generation: u64,
}

impl Index {
    pub(crate) fn get(&self, name: &ChunkName) -> Option<&ChunkInfo> {
        self.chunks.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ChunkName> {
        self.chunks.keys()
    }

    pub(crate) fn insert(&mut self, name: ChunkName, info: ChunkInfo) {
        self.charged_bytes += info.allocated();
        let before = self.chunks.insert(name, info);
        self.charged_bytes -= before.map_or(0, |before| before.allocated());
    }

    pub(crate) fn remove(&mut self, name: &ChunkName) {
        let before = self.chunks.remove(name);
        self.charged_bytes -= before.map_or(0, |before| before.allocated());
    }

    /// What all chunks occupy.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }

    /// Sum of what all chunks occupy, by who was charged.
    pub(crate) fn charged(&self) -> BTreeMap<Arc<str>, u64> {
        let mut sums = BTreeMap::new();
        for charge in self.chunks.values().flat_map(|info| &info.charges) {
            *sums.entry(Arc::clone(&charge.user)).or_default() += charge.bytes;
        }
        sums
    }

    /// Up to `limit` chunks whose names start with `prefix` and come after `after`, in order. Neither need be a name: who lists says it.
    pub(crate) fn list(&self, prefix: &str, after: &str, limit: usize) -> Vec<(ChunkName, ChunkInfo)> {
        let from = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let found = self.chunks.range::<str, _>((from, Bound::Unbounded));
        let found = found.take_while(|(name, _)| name.as_str().starts_with(prefix)).take(limit);
        found.map(|(name, info)| (name.clone(), info.clone())).collect()
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.u64(self.generation).u64(self.chunks.len() as u64);
        for (name, info) in &self.chunks {
            out.text(name.as_str());
            info.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut index = Self { generation: from.u64()?, ..Self::default() };
        for _ in 0..from.u64()? {
            let name = from.text()?.parse().map_err(|_| DecodeError("has a bad name"))?;
            index.insert(name, ChunkInfo::decode(from)?);
        }
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shrinks_a_chunk_is_never_credited_for_what_another_paid() {
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let (charges, _) = ChunkInfo::recharge(&[], &alice, 8192);
        let (charges, grown) = ChunkInfo::recharge(&charges, &bob, 12288);
        assert_eq!(grown, vec![Posting { user: bob.clone(), delta_bytes: 4096 }]);
        let (left, freed) = ChunkInfo::recharge(&charges, &bob, 0);
        assert!(left.is_empty());
        assert_eq!(freed, vec![Posting { user: bob, delta_bytes: -4096 }, Posting { user: alice, delta_bytes: -8192 }]);
    }

    /// Regression: how much is charged was added up from all chunks while everybody waited: for whoever asked how the store is.
    #[test]
    fn what_is_charged_is_known_without_looking_at_all_chunks() {
        let mut index = Index::default();
        let info = |bytes: &[u64]| {
            let charges = bytes.iter().map(|bytes| Charge { user: "a".into(), bytes: *bytes }).collect();
            ChunkInfo { owner: "a".into(), mode: 0o600, size: 0, generation: 1, charges }
        };
        let name = |text: &str| text.parse::<ChunkName>().unwrap();
        index.insert(name("a/1"), info(&[4096, 8192]));
        index.insert(name("a/2"), info(&[4096]));
        assert_eq!(index.charged_bytes(), 16384);
        index.insert(name("a/1"), info(&[512]));
        index.remove(&name("a/3"));
        assert_eq!(index.charged_bytes(), 4608);
        let mut out = Encoder::new();
        index.encode(&mut out);
        let again = Index::decode(&mut Decoder::new(&out.finish())).unwrap();
        assert_eq!(again.charged_bytes(), 4608);
        index.remove(&name("a/2"));
        assert_eq!(index.charged_bytes(), 512);
    }

    /// Regression: a prefix that is no name was looked for among all chunks, while everybody waited: by whoever has a chunk, as often as they like.
    #[test]
    fn what_is_listed_is_found_without_looking_at_all_chunks() {
        let info = ChunkInfo { owner: "a".into(), mode: 0o600, size: 0, generation: 1, charges: Vec::new() };
        let name = |number: u32| format!("a/{number:07}").parse::<ChunkName>().unwrap();
        let mut index = Index::default();
        index.chunks.extend((0..200_000).map(|number| (name(number), info.clone())));
        let found = |prefix: &str, after: &str| -> Vec<String> {
            index.list(prefix, after, 3).into_iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(found("a/00001", ""), ["a/0000100", "a/0000101", "a/0000102"]);
        assert_eq!(found("a/00001", "a/0000198"), ["a/0000199"]);
        assert_eq!(found("a/00001", "a/0000102%"), ["a/0000103", "a/0000104", "a/0000105"]);
        assert_eq!(found("", ""), ["a/0000000", "a/0000001", "a/0000002"]);
        assert_eq!(found("", "a/0199998"), ["a/0199999"]);
        assert_eq!(found("a/0000001", "a/0000001"), [""; 0]);
        let begun = std::time::Instant::now();
        for _ in 0..1000 {
            assert_eq!(found("a/~%", ""), [""; 0]);
            assert_eq!(found("a/", &format!("a/9{}", "x".repeat(200))), [""; 0]);
        }
        assert!(begun.elapsed().as_secs() < 1, "{:?}", begun.elapsed());
    }
}
