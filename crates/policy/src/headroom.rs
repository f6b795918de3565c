//! How much room a write may need at worst, and how much to hold for a file in advance (DESIGN, "Headroom").

/// The most that is held for a file beyond what its next write needs, in bytes.
pub const CHUNK: u64 = 4 << 20;

/// A file holds at most this part of the room that is left, so that the others find some too.
const SHARE: u64 = 16;

/// The most that one call writes (the kernel's `MAX_RW_COUNT`), whatever it was asked to.
pub const CALL: u64 = 0x7fff_f000;

/// What is written to a file between two looks at it, at most: [`BETWEEN_LOOKS`] at more than what one CPU copies.
const SPEED: u64 = 512 << 20;

/// The longest time between two looks at a file that room is lent to.
pub const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_millis(40);

/// While less than this is left, what is lent is asked back; while twice as much would not be left, nothing is lent.
pub const ASK_BACK: u64 = SPEED;

/// Extents that every file system which maps files by them keeps in the inode itself.
pub const IN_INODE: u64 = 4;

/// Blocks of an extent, at most: what lies together is said to be one, and may be several in the map. ext4 has them end with a group
/// of 32,768 blocks, less what the group keeps for itself.
const LONGEST: u64 = 30_720;

/// What the file system below counts among a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Size of a block.
    pub block: u64,
    /// What it gives a file at once, at most: some blocks, where it gives clusters of them or large pages.
    pub unit: u64,
    /// Whether the blocks of the map of extents are counted too (ext4, xfs).
    pub map: bool,
    /// Extents of a file whose map lies in the inode; none where files may be mapped by blocks.
    pub in_inode: u64,
}

impl Counting {
    /// Bytes of the units that a range touches.
    pub fn span(&self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let first = offset / self.unit;
        let last = offset.saturating_add(length - 1) / self.unit;
        (last - first + 1).saturating_mul(self.unit)
    }

    /// Bytes that the map may grow by when so many blocks are added to a file of so many extents: each block may be an
    /// extent of its own, written in parts, and a map's block may be no fuller than a tenth.
    pub fn map_growth(&self, blocks: u64, extents: u64) -> u64 {
        if !self.map || blocks == 0 || extents.saturating_add(blocks.saturating_mul(2)) <= self.in_inode {
            return 0;
        }
        (blocks / 32 + 8).saturating_mul(self.unit)
    }

    /// Whether a file that takes so much can have no map outside its inode, wherever its blocks come to lie.
    pub fn needs_no_map(&self, bytes: u64) -> bool {
        bytes <= self.in_inode * self.block
    }

    /// What a write to this range takes at most, whatever the file looks like.
    pub fn worst(&self, offset: u64, length: u64) -> u64 {
        let span = self.span(offset, length);
        span.saturating_add(self.map_growth(span / self.block, u64::MAX))
    }

    /// What a write of this length takes at most, wherever it goes: at worst it begins with the last byte of a unit.
    pub fn anywhere(&self, length: u64) -> u64 {
        self.worst(self.unit - 1, length)
    }

    /// Bytes of the units that so many blocks in a row touch at most.
    fn touched(&self, blocks: u64) -> u64 {
        self.span(self.unit - self.block, blocks.saturating_mul(self.block))
    }

    /// How many of `blocks` fit into so much room, in a file of so many extents.
    pub fn fitting(&self, blocks: u64, extents: u64, room: u64) -> u64 {
        let fits = |n: u64| self.touched(n).saturating_add(self.map_growth(n, extents)) <= room;
        if fits(blocks) {
            return blocks;
        }
        let (mut low, mut high) = (0, blocks);
        // Growth by one block more is never less: the boundary is found by halving.
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// How many extents of the map one of so many bytes may be.
pub fn extents_of(bytes: u64, block: u64) -> u64 {
    bytes.div_ceil(LONGEST * block)
}

/// How much to ask for when `need` is needed and so much is left (none: no limit).
pub fn ask(need: u64, room: Option<u64>) -> u64 {
    need.max(room.map_or(CHUNK, |room| CHUNK.min(room / SHARE)))
}

/// How much more the file system below may give a file that so much is held for, so that what its map grows by afterwards, which
/// nobody refuses, is held too.
pub fn fence(counting: Counting, held: u64) -> u64 {
    counting.fitting(held / counting.block, u64::MAX, held) * counting.block
}

/// How much to lend to a file that is written unseen, when so much is left (none: no limit): what a call under way takes at
/// most, and what is written before the next look. None where too little would be left.
pub fn lend(counting: Counting, room: Option<u64>) -> Option<u64> {
    let lent = counting.anywhere(CALL + SPEED);
    room.is_none_or(|room| room >= lent + 2 * ASK_BACK).then_some(lent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Counting = Counting { block: 4096, unit: 4096, map: false, in_inode: IN_INODE };
    const MAPPED: Counting = Counting { map: true, ..PLAIN };
    const CLUSTERS: Counting = Counting { unit: 65536, ..MAPPED };

    #[test]
    fn a_range_touches_every_block_it_begins_or_ends_in() {
        assert_eq!(PLAIN.span(0, 0), 0);
        assert_eq!(PLAIN.span(0, 1), 4096);
        assert_eq!(PLAIN.span(4095, 2), 8192);
        assert_eq!(PLAIN.span(4096, 4096), 4096);
        assert_eq!(PLAIN.worst(1, 4096), 8192);
        assert!(MAPPED.worst(0, 1) > PLAIN.worst(0, 1));
    }

    #[test]
    fn the_last_block_of_a_plain_file_is_not_refused() {
        assert_eq!(PLAIN.fitting(100, 1000, 4096), 1);
        assert_eq!(MAPPED.fitting(100, 0, 4096), 1);
        assert_eq!(MAPPED.fitting(100, 2, 4096), 1);
        assert_eq!(MAPPED.fitting(100, 1000, 4096), 0);
        assert_eq!(PLAIN.fitting(100, 0, 4095), 0);
    }

    #[test]
    fn what_is_lent_is_enough_for_the_longest_call_and_leaves_enough_to_ask_it_back() {
        let lent = lend(MAPPED, None).unwrap();
        assert!(lent > MAPPED.worst(4095, CALL) + ASK_BACK && lent < 3 << 30);
        assert_eq!(lend(MAPPED, Some(lent + 2 * ASK_BACK)), Some(lent));
        assert_eq!(lend(MAPPED, Some(lent + 2 * ASK_BACK - 1)), None);
    }

    #[test]
    fn one_extent_may_be_several_in_the_map_and_blocks_have_no_place_in_the_inode() {
        let group = 30_720 * 4096;
        assert_eq!((extents_of(4096, 4096), extents_of(group, 4096), extents_of(4 * group + 1, 4096)), (1, 1, 5));
        let by_blocks = Counting { in_inode: 0, ..MAPPED };
        assert_eq!((MAPPED.map_growth(1, 0), by_blocks.map_growth(1, 0)), (0, 8 * 4096));
        assert!(MAPPED.needs_no_map(4096) && !by_blocks.needs_no_map(4096));
    }

    #[test]
    fn what_comes_in_clusters_is_counted_in_clusters() {
        assert_eq!((CLUSTERS.span(0, 1), CLUSTERS.span(65535, 2)), (65536, 131_072));
        assert_eq!(CLUSTERS.anywhere(2), 131_072 + CLUSTERS.map_growth(32, u64::MAX));
        assert_eq!(CLUSTERS.map_growth(32, u64::MAX), 9 * 65536);
        // A cluster may hold more extents than the inode does.
        assert!(!CLUSTERS.needs_no_map(65536));
        // Two blocks may lie in two clusters.
        assert_eq!((CLUSTERS.fitting(2, 0, 131_071), CLUSTERS.fitting(2, 0, 131_072)), (1, 2));
        assert_eq!(CLUSTERS.fitting(1, 0, 65535), 0);
    }

    proptest! {
        #[test]
        fn what_a_fence_lets_in_is_held_with_its_map(held in 0u64..1 << 40, map: bool) {
            let counting = Counting { map, ..PLAIN };
            let inside = fence(counting, held);
            prop_assert!(inside + counting.map_growth(inside / 4096, u64::MAX) <= held);
        }

        #[test]
        fn a_fence_lets_in_what_one_write_needs(length in 1u64..1 << 31, map: bool) {
            let counting = Counting { map, ..PLAIN };
            prop_assert!(fence(counting, counting.worst(4095, length)) >= counting.span(4095, length));
        }

        #[test]
        fn what_fits_fits_and_one_more_does_not(blocks in 1u64..100_000, extents in 0u64..2000, room in 0u64..1 << 28, map: bool) {
            let counting = Counting { map, ..PLAIN };
            let n = counting.fitting(blocks, extents, room);
            let cost = |n: u64| n * 4096 + counting.map_growth(n, extents);
            prop_assert!(n <= blocks && cost(n) <= room);
            prop_assert!(n == blocks || cost(n + 1) > room);
        }

        #[test]
        fn at_least_the_need_is_asked_for(need in 0u64..1 << 40, room in proptest::option::of(0u64..1 << 40)) {
            prop_assert!(ask(need, room) >= need);
        }
    }
}
