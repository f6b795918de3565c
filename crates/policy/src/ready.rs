//! How many backing files to hold ready in a series.

/// The most that one series holds ready.
pub const MOST: u32 = 128;

/// What a series starts with once it is used at all.
const FIRST: u32 = 8;

/// What happened in a series since the target was last set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Files taken, from the ready ones or not.
    pub taken: u32,
    /// Files among them for which none was ready.
    pub missed: u32,
    /// How many times in a row, this one included, nothing was taken.
    pub idle: u32,
}

/// The next target: 0 for a series nobody uses, doubled while the ready files run low, halved every
/// `patience` idle rounds.
pub fn target(now: u32, demand: Demand, patience: u32) -> u32 {
    if demand.missed > 0 || demand.taken > now / 2 {
        (now * 2).clamp(FIRST, MOST)
    } else if demand.taken == 0 && demand.idle > 0 && demand.idle.is_multiple_of(patience.max(1)) {
        let half = now / 2;
        if half < FIRST { 0 } else { half }
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn missed(missed: u32) -> Demand {
        Demand { taken: missed, missed, idle: 0 }
    }

    #[test]
    fn unused_series_hold_nothing_and_used_ones_double_up_to_the_most() {
        assert_eq!(target(0, Demand { idle: 9, ..Demand::default() }, 1), 0);
        let mut now = 0;
        for expected in [8, 16, 32, 64, 128, 128] {
            now = target(now, missed(1), 1);
            assert_eq!(now, expected);
        }
    }

    #[test]
    fn idle_series_shrink_to_nothing() {
        let mut now = MOST;
        for idle in 1..=50 {
            now = target(now, Demand { idle, ..Demand::default() }, 10);
        }
        assert_eq!(now, 0);
    }

    proptest! {
        #[test]
        fn a_target_stays_in_bounds_and_never_drops_while_files_are_taken(
            now in 0u32..=MOST, taken in 1u32..1000, part in 0u32..1000, patience in 0u32..20,
        ) {
            let next = target(now, Demand { taken, missed: part.min(taken), idle: 0 }, patience);
            prop_assert!(next >= now && next <= MOST);
        }
    }
}
