//! Blocks that a file was given ahead of its data, and what its map may take while that is written out.
//!
//! ext4 and xfs have such blocks as allocated and never written until the disk has the data. What is written out of them at a time is an
//! extent of its own until then, and one with its neighbours afterwards: the map of the file may have a block more for that moment.

use ullage_policy::headroom::Counting;

/// What a file was given and may not have on the disk yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Bytes that were ever given, and how far of that all was written out. They only grow, as in [`crate::headroom::grant::Grant`].
    total: u64,
    out: u64,
    /// In the ledger, for the map.
    held: u64,
    /// What was given when somebody last asked whether it is idle, and how often he has seen that.
    seen: (u64, u32),
}

/// How far giving had come at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upto(u64);

impl Given {
    /// So much was given to a file that has `all`; what is held for it is taken from `free`, which was held for the write.
    pub(crate) fn add(&mut self, bytes: u64, all: u64, free: u64, counting: Counting) {
        if counting.needs_no_map(all) {
            return;
        }
        if self.held == 0 {
            // What was given before is on the disk, or takes no map.
            self.out = self.total;
        }
        self.total += bytes;
        // What is written and given again and again is no more than the file.
        self.out = self.out.max(self.total.saturating_sub(all));
        self.held += self.grows(counting).saturating_sub(self.held).min(free);
    }

    /// What was written unseen was given its blocks; so much was `owed` for their map.
    pub(crate) fn pay(&mut self, bytes: u64, owed: u64) {
        self.total += bytes;
        self.held += owed;
    }

    /// What is held.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// What is to be written out so that nothing is held any more.
    pub(crate) fn waits(&self) -> Option<Upto> {
        (self.held > 0).then_some(Upto(self.total))
    }

    /// How often this was asked since something was given, if something waits.
    pub(crate) fn idle(&mut self) -> Option<u32> {
        let looks = if self.seen.0 == self.total { self.seen.1.saturating_add(1) } else { 0 };
        self.seen = (self.total, looks);
        (self.held > 0).then_some(looks)
    }

    /// The file was written out as far as this.
    pub(crate) fn written_out(&mut self, Upto(upto): Upto, counting: Counting) {
        self.out = self.out.max(upto);
        self.held = self.held.min(self.grows(counting));
    }

    fn grows(&self, counting: Counting) -> u64 {
        counting.map_growth((self.total - self.out).div_ceil(counting.block), u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTING: Counting = Counting { block: 4096, unit: 4096, map: true, in_inode: 4 };
    const PIECE: u64 = 1 << 20;

    fn map(bytes: u64) -> u64 {
        COUNTING.map_growth(bytes / 4096, u64::MAX)
    }

    #[test]
    fn what_the_map_may_take_is_held_until_all_of_it_was_written_out() {
        let mut given = Given::default();
        assert_eq!(given.waits(), None);
        given.add(PIECE, PIECE, u64::MAX, COUNTING);
        let first = given.waits().unwrap();
        given.add(PIECE, 2 * PIECE, u64::MAX, COUNTING);
        assert_eq!(given.held(), map(2 * PIECE));
        given.written_out(first, COUNTING);
        assert_eq!(given.held(), map(PIECE), "the second may not be on the disk");
        given.written_out(given.waits().unwrap(), COUNTING);
        assert_eq!((given.held(), given.waits()), (0, None));
        assert_eq!(given.idle(), None);
        // An end that comes late.
        given.written_out(first, COUNTING);
        given.pay(PIECE, 4096);
        assert_eq!(given.held(), 4096);
        assert_eq!([given.idle(), given.idle(), given.idle()], [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn no_more_is_held_than_for_the_whole_file_and_than_there_is() {
        let mut given = Given::default();
        for _ in 0..100 {
            given.add(PIECE, 2 * PIECE, u64::MAX, COUNTING);
        }
        assert_eq!(given.held(), map(2 * PIECE));
        let mut given = Given::default();
        given.add(PIECE, PIECE, 4096, COUNTING);
        assert_eq!(given.held(), 4096);
    }

    #[test]
    fn a_file_of_a_few_blocks_and_one_without_a_counted_map_hold_nothing() {
        let mut given = Given::default();
        given.add(16384, 16384, u64::MAX, COUNTING);
        given.add(PIECE, PIECE, u64::MAX, Counting { map: false, ..COUNTING });
        assert_eq!(given.waits(), None);
    }
}
