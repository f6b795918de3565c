//! Where a new backing file goes in the `sparse` layout (COFS §4.2).
//!
//! A hash of the node issuing the create, the parent directory in the user's view and the creating process
//! picks one of a bounded number of *buckets*; random bits pick one of its sibling *series*; a series is a
//! sequence of leaf directories, each with at most `entries` files, of which the next is begun when the others are
//! full. So files stay loosely grouped by creator and by proximity in the user's view, while no directory grows.
//!
//! The path of a leaf below the pool's root is `DEPTH-ENTRIES/BUCKET.SIBLING[/NUMBER]…`: the shape comes first, so that
//! trees of different shapes never mix, and every other parameter can be changed at any time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::Hasher;
use ullage_types::FileId;

/// The directory that holds the leaves beyond those that the levels above can number.
const MORE: &str = "more";

/// The parameters of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// Directory levels, the leaf included: 1 to 8.
    pub depth: u8,
    /// Most files in a leaf, and most directories in a directory above: 2 to 65,535.
    pub entries: u16,
    /// A group is spread over 2 to this power series: 0 to 8.
    pub random_bits: u8,
    /// Buckets that groups are hashed to: 1 to 4,096. Each can hold ready files, so this bounds those.
    pub buckets: u16,
}

/// The paper's values; the number of buckets is ours.
impl Default for Sparse {
    fn default() -> Self {
        Self { depth: 2, entries: 512, random_bits: 1, buckets: 4 }
    }
}

impl Sparse {
    /// Says which parameter is out of its range, and the range.
    pub fn validate(&self) -> Result<(), &'static str> {
        if !(1..=8).contains(&self.depth) {
            Err("depth must be between 1 and 8")
        } else if self.entries < 2 {
            Err("entries must be between 2 and 65535")
        } else if self.random_bits > 8 {
            Err("random_bits must be between 0 and 8")
        } else if !(1..=4096).contains(&self.buckets) {
            Err("buckets must be between 1 and 4096")
        } else {
            Ok(())
        }
    }

    /// How many series there are in all.
    pub const fn series(&self) -> usize {
        (self.buckets as usize) << self.random_bits
    }

    /// The series of a new file: an index below [`Sparse::series`]. `random` is a random number for this file.
    pub fn place(&self, node: u64, parent: FileId, pid: u32, random: u64) -> usize {
        let mut hash = Fnv::default();
        hash.write_u64(node);
        hash.write_u64(parent.0);
        hash.write_u32(pid);
        // The high bits of a product are the well mixed ones.
        let bucket = ((u128::from(hash.finish()) * u128::from(self.buckets)) >> 64) as usize;
        let sibling = (random & ((1 << self.random_bits) - 1)) as usize;
        (bucket << self.random_bits) | sibling
    }

    /// The directory below which all leaves of this shape are.
    pub fn shape(&self) -> String {
        format!("{}-{}", self.depth, self.entries)
    }

    /// The path of leaf `number` of a series, relative to the pool's root.
    pub fn leaf(&self, series: usize, number: u32) -> String {
        let (bucket, sibling) = (series >> self.random_bits, series & ((1 << self.random_bits) - 1));
        let mut path = format!("{}/{bucket:03x}.{sibling:x}", self.shape());
        let (base, mut rest) = (u64::from(self.entries), u64::from(number));
        let mut digits = u32::from(self.depth) - 1;
        while rest >= base.saturating_pow(digits) {
            rest -= base.saturating_pow(digits);
            digits += 1;
            let _ = write!(path, "/{MORE}");
        }
        for digit in (0..digits).rev() {
            let _ = write!(path, "/{:03x}", rest / base.saturating_pow(digit) % base);
        }
        path
    }

    /// The series and the number of the leaf with this path; `None` for one of another shape or parameters.
    pub fn parse(&self, leaf: &str) -> Option<(usize, u32)> {
        let mut parts = leaf.split('/');
        (parts.next()? == self.shape()).then_some(())?;
        let (bucket, sibling) = parts.next()?.split_once('.')?;
        let (bucket, sibling) = (usize::from_str_radix(bucket, 16).ok()?, usize::from_str_radix(sibling, 16).ok()?);
        (bucket < usize::from(self.buckets) && sibling < 1 << self.random_bits).then_some(())?;
        let base = u64::from(self.entries);
        let (mut first, mut digits, mut value) = (0u64, u32::from(self.depth) - 1, 0u64);
        for part in parts {
            if part == MORE {
                first = first.checked_add(base.saturating_pow(digits))?;
                digits += 1;
            } else {
                value = value.checked_mul(base)?.checked_add(u64::from_str_radix(part, 16).ok()?)?;
            }
        }
        let series = (bucket << self.random_bits) | sibling;
        let number = u32::try_from(first.checked_add(value)?).ok()?;
        (self.leaf(series, number) == leaf).then_some((series, number))
    }
}

/// FNV-1a with a final mix: small, and the same on every machine and in every version, as paths must be.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }
}

/// What has to be done to place the next file of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Leaf of this number has room: place it there, and say [`Leaves::took`].
    Use(u32),
    /// Count the files in this leaf, say [`Leaves::learn`], and ask again.
    Count(u32),
    /// Make this leaf, say [`Leaves::learn`] with 0, and ask again.
    Make(u32),
}

/// How full the leaves of one series are. Counts are learnt when they are needed, so that nothing is
/// read at start.
#[derive(Clone, Debug)]
pub struct Leaves {
    entries: u16,
    /// `None` where it was never counted.
    counts: Vec<Option<u32>>,
    with_room: BTreeSet<u32>,
}

impl Leaves {
    /// A series that has `leaves` leaves, numbered from 0.
    pub fn new(entries: u16, leaves: u32) -> Self {
        Self { entries, counts: vec![None; leaves as usize], with_room: BTreeSet::new() }
    }

    /// What to do to place the next file. The lowest leaf known to have room is filled first.
    pub fn next(&self) -> Next {
        if let Some(&leaf) = self.with_room.first() {
            return Next::Use(leaf);
        }
        match self.counts.last() {
            Some(None) => Next::Count(self.counts.len() as u32 - 1),
            _ => Next::Make(self.counts.len() as u32),
        }
    }

    /// Whether it is known how many files this leaf holds.
    pub fn knows(&self, leaf: u32) -> bool {
        matches!(self.counts.get(leaf as usize), Some(Some(_)))
    }

    /// A leaf holds this many files.
    pub fn learn(&mut self, leaf: u32, files: u32) {
        if leaf as usize >= self.counts.len() {
            self.counts.resize(leaf as usize + 1, None);
        }
        if let Some(count) = self.counts.get_mut(leaf as usize) {
            *count = Some(files);
        }
        self.note(leaf, files);
    }

    /// A file was placed in a leaf that [`Leaves::next`] named.
    pub fn took(&mut self, leaf: u32) {
        self.change(leaf, |files| files + 1);
    }

    /// A file was removed from a leaf; nothing happens where the leaf was never counted.
    pub fn gave_back(&mut self, leaf: u32) {
        self.change(leaf, |files| files.saturating_sub(1));
    }

    fn change(&mut self, leaf: u32, how: impl Fn(u32) -> u32) {
        let Some(Some(count)) = self.counts.get_mut(leaf as usize) else { return };
        *count = how(*count);
        let files = *count;
        self.note(leaf, files);
    }

    fn note(&mut self, leaf: u32, files: u32) {
        if files < u32::from(self.entries) {
            self.with_room.insert(leaf);
        } else {
            self.with_room.remove(&leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn layouts() -> impl Strategy<Value = Sparse> {
        (1u8..5, 2u16..20, 0u8..4, 1u16..100).prop_map(|(depth, entries, random_bits, buckets)| Sparse {
            depth,
            entries,
            random_bits,
            buckets,
        })
    }

    #[test]
    fn paths_look_as_documented() {
        let sparse = Sparse::default();
        assert_eq!(sparse.leaf(0x3f, 5), "2-512/01f.1/005");
        assert_eq!(sparse.leaf(0, 511), "2-512/000.0/1ff");
        assert_eq!(sparse.leaf(0, 512), "2-512/000.0/more/000/000");
        assert_eq!(Sparse { depth: 1, ..sparse }.leaf(2, 0), "1-512/001.0");
        assert_eq!(Sparse { depth: 3, ..sparse }.leaf(2, 513), "3-512/001.0/001/001");
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let good = Sparse::default();
        assert_eq!(good.validate(), Ok(()));
        for bad in [
            Sparse { depth: 0, ..good },
            Sparse { depth: 9, ..good },
            Sparse { entries: 1, ..good },
            Sparse { random_bits: 9, ..good },
            Sparse { buckets: 0, ..good },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn groups_spread_evenly_over_buckets() {
        let sparse = Sparse { buckets: 32, ..Sparse::default() };
        let mut hits = vec![0u32; sparse.series()];
        for parent in 0..6400u64 {
            hits[sparse.place(1, FileId(parent), 77, parent >> 3)] += 1;
        }
        assert!(hits.iter().all(|&hits| (40..170).contains(&hits)), "{hits:?}");
    }

    proptest! {
        #[test]
        fn a_group_stays_together_and_the_rule_is_deterministic(
            sparse in layouts(), node: u64, parent: u64, pid: u32, randoms in prop::collection::vec(any::<u64>(), 1..40),
        ) {
            let series = |random| sparse.place(node, FileId(parent), pid, random);
            let mut seen = BTreeSet::new();
            for &random in &randoms {
                prop_assert_eq!(series(random), series(random));
                prop_assert!(series(random) < sparse.series());
                seen.insert(series(random));
            }
            prop_assert!(seen.len() <= 1 << sparse.random_bits);
            let bucket: BTreeSet<_> = seen.iter().map(|series| series >> sparse.random_bits).collect();
            prop_assert_eq!(bucket.len(), 1);
        }

        #[test]
        fn every_leaf_has_one_path_and_every_path_one_leaf(sparse in layouts(), series: u16, number in 0u32..100_000) {
            let series = usize::from(series) % sparse.series();
            let path = sparse.leaf(series, number);
            prop_assert_eq!(sparse.parse(&path), Some((series, number)));
            prop_assert_eq!(Sparse { depth: sparse.depth + 1, ..sparse }.parse(&path), None);
        }

        #[test]
        fn no_directory_above_the_leaves_grows_beyond_its_entries(depth in 2u8..4, entries in 2u16..6) {
            let sparse = Sparse { depth, entries, random_bits: 0, buckets: 1 };
            let mut below: HashMap<String, BTreeSet<String>> = HashMap::new();
            for number in 0..500 {
                let mut path = sparse.leaf(0, number);
                while let Some((above, name)) = path.clone().rsplit_once('/') {
                    below.entry(above.to_owned()).or_default().insert(name.to_owned());
                    path = above.to_owned();
                }
            }
            for (directory, names) in below {
                prop_assert!(names.iter().filter(|name| *name != MORE).count() <= usize::from(entries), "{}", directory);
            }
        }

        #[test]
        fn a_leaf_never_holds_more_than_its_entries(
            entries in 2u16..9, start in prop::collection::vec(0u32..9, 0..5),
            steps in prop::collection::vec((any::<bool>(), 0usize..100), 1..300),
        ) {
            // What is really there, as directories would hold it.
            let mut real: Vec<u32> = start.iter().map(|files| files.min(&u32::from(entries)).to_owned()).collect();
            let mut leaves = Leaves::new(entries, real.len() as u32);
            for (create, pick) in steps {
                if create {
                    let leaf = loop {
                        match leaves.next() {
                            Next::Use(leaf) => break leaf,
                            Next::Count(leaf) => leaves.learn(leaf, real[leaf as usize]),
                            Next::Make(leaf) => {
                                prop_assert_eq!(leaf as usize, real.len());
                                real.push(0);
                                leaves.learn(leaf, 0);
                            }
                        }
                    };
                    leaves.took(leaf);
                    real[leaf as usize] += 1;
                    prop_assert!(real[leaf as usize] <= u32::from(entries));
                } else if !real.is_empty() {
                    let leaf = pick % real.len();
                    if real[leaf] > 0 {
                        real[leaf] -= 1;
                        if leaves.knows(leaf as u32) {
                            leaves.gave_back(leaf as u32);
                        } else {
                            leaves.learn(leaf as u32, real[leaf]);
                        }
                    }
                }
            }
        }
    }
}
