//! Where a listing goes on, and where it ends.
//!
//! A new entry's place comes after all others. Who renames, or makes, a file for each entry that he meets would never be done: a
//! listing ends at the entry that was the newest when it began. There are no handles of directories that could remember which that was,
//! so it is part of every position that the kernel is given.

/// Places up to this fit twice into the 31 bits of a position that programs of 32 bits can hold.
const SHORT: u32 = 15;
/// Those up to this fit twice into any other.
const EXACT: u32 = 31;
/// A position of that kind.
const LONG: u64 = 1 << 62;
/// One of the directory that had more places than that.
const FAR: u64 = 1 << 61;
/// No directory gets so many places in its life: a million a second for half a year.
const PLACE: u32 = 44;
/// There, how far the end is away, in steps of a power of two: so many bits.
const STEPS: u32 = 12;

/// Bits of the exponent of that power; those of a position that are left.
const SHIFT: u32 = 61 - PLACE - STEPS;

/// Where a listing goes on, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The place of the last entry that was listed; 0 for none.
    pub after: u64,
    /// The last place to be listed: that of the newest entry when the listing began, or a little more.
    pub end: u64,
}

impl Cursor {
    /// What a position says; the listing begins now where it says nothing.
    pub(crate) fn at(position: u64, newest: impl FnOnce() -> u64) -> Self {
        let short = 1 << (2 * SHORT);
        let twice = |bits: u32| Self { after: position & ((1 << bits) - 1), end: position >> bits & ((1 << bits) - 1) };
        if position & LONG != 0 {
            return twice(EXACT);
        }
        if position & FAR != 0 {
            let after = position & ((1 << PLACE) - 1);
            let steps = position >> PLACE & ((1 << STEPS) - 1);
            let shift = position >> (PLACE + STEPS) & ((1 << SHIFT) - 1);
            return Self { after, end: end(after, steps, shift) };
        }
        if (short..2 * short).contains(&position) {
            return twice(SHORT);
        }
        Self { after: position, end: newest() }
    }

    /// The position after an entry.
    pub(crate) fn position(self) -> u64 {
        let twice = |bits| self.end << bits | self.after;
        if self.end >> SHORT == 0 && self.after >> SHORT == 0 {
            return 1 << (2 * SHORT) | twice(SHORT);
        }
        if self.end >> EXACT == 0 && self.after >> EXACT == 0 {
            return LONG | twice(EXACT);
        }
        assert!(self.after >> PLACE == 0, "a directory had more entries than can be numbered");
        let steps = |shift: u64| (self.end >> shift).saturating_sub(self.after >> shift);
        // What is rounded up once stays as it is: the end is the same at all later positions.
        let shift = (0..1 << SHIFT).find(|shift| steps(*shift) >> STEPS == 0).unwrap_or_default();
        FAR | shift << (PLACE + STEPS) | steps(shift) << PLACE | self.after
    }

    /// Whether positions say where exactly this listing ends.
    pub(crate) fn is_exact(self) -> bool {
        self.end >> EXACT == 0
    }
}

fn end(after: u64, steps: u64, shift: u64) -> u64 {
    ((after >> shift) + steps) << shift | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(cursor: Cursor) -> Cursor {
        let position = cursor.position();
        assert!(position > 0 && i64::try_from(position).is_ok());
        Cursor::at(position, || unreachable!("the position says where the listing ends"))
    }

    #[test]
    fn what_is_no_position_is_where_a_listing_begins() {
        assert_eq!(Cursor::at(0, || 7), Cursor { after: 0, end: 7 });
        assert_eq!(Cursor::at(5, || 7), Cursor { after: 5, end: 7 });
    }

    #[test]
    fn positions_in_small_directories_are_small() {
        let position = Cursor { after: 32_000, end: 32_700 }.position();
        assert!(i32::try_from(position).is_ok(), "{position}");
        assert_eq!(next(Cursor { after: 32_000, end: 32_700 }), Cursor { after: 32_000, end: 32_700 });
    }

    proptest! {
        #[test]
        fn a_listing_ends_hardly_after_the_newest_entry_of_its_beginning(
            after in 0u64..1 << 43, far in 0u32..44, distance: u64, walk in proptest::collection::vec(any::<u64>(), 1..20)
        ) {
            let distance = distance & ((1 << far) - 1);
            let begun = Cursor { after, end: after + distance };
            let first = next(begun);
            prop_assert_eq!(first.after, after);
            prop_assert!(first.end >= begun.end && first.end - begun.end <= distance >> (STEPS - 2), "{:?} {:?}", begun, first);
            let mut here = first;
            for step in walk {
                let left = here.end - here.after;
                here.after += if left == 0 { 0 } else { step % left };
                let there = next(here);
                prop_assert_eq!(there, here, "the end stays");
            }
        }

        #[test]
        fn any_number_is_a_position(position: u64) {
            let cursor = Cursor::at(position, || 9);
            prop_assert!(cursor.after <= position.max(cursor.end));
        }
    }
}
