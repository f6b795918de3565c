//! How many backing files to hold ready in a series.

/// The most that one series holds ready.
pub const MOST: u32 = 128;

/// Held ready at rest, in whichever series: the first files of the next process.
pub const REST: u32 = 128;

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

/// Files taken in a round by whoever does not wait for a disk.
const FAST: u32 = 4;

/// Rounds without a create before a series is filled up.
const CALM: u32 = 50;

/// How fast the files of a series are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Files taken in the last round of the worker.
    pub taken: u32,
    /// Rounds since one was taken.
    pub calm: u32,
}

/// How many of its ready files a series can spare for others: those beyond its target, and all once it is `calm`, so many
/// rounds without a create.
pub fn spare(ready: u32, target: u32, calm: u32) -> u32 {
    if calm >= CALM { ready } else { ready.saturating_sub(target) }
}

/// Files beyond the target that a series may hold when they are those of removed files: holding them costs no more than
/// putting them away.
const SPARE: u32 = 8;

/// How many files are held ready: in a series, of how many there should be, and in the whole pool, of how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Ready in the series.
    pub ready: u32,
    /// The series' target.
    pub target: u32,
    /// Ready in all series.
    pub all: u32,
    /// The most there may be in all of them.
    pub most: u32,
}

impl Held {
    /// Whether the series runs low.
    pub fn is_low(self) -> bool {
        self.ready < self.target
    }

    /// Whether to begin to make files ready: when they are taken fast, when half of them are gone, or when nobody takes
    /// any; not for each one taken now and then. Many made at once share the blocks that they are noted in, which
    /// every fsync(2) in between would have to write.
    pub fn begins(self, pace: Pace) -> bool {
        pace.taken >= FAST || pace.calm >= CALM || self.ready <= self.target / 2
    }

    /// Whether one more file is to be made ready, which costs a file to make.
    pub fn wants_new(self) -> bool {
        self.is_low() && self.all < self.most
    }

    /// Whether the file of a removed one is to be made ready. What is more than enough in some series fills only half of
    /// what there may be, so that none that runs low is kept from getting any.
    pub fn wants_used(self) -> bool {
        self.wants_new() || self.ready < self.target.saturating_mul(SPARE) && self.all < self.most / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spare_files_of_series_at_rest_keep_none_that_runs_low_from_getting_any() {
        let most = 20 * MOST * 2;
        let (mut all, mut series) = (0, [0; 20]);
        for ready in &mut series {
            while (Held { ready: *ready, target: MOST, all, most }).wants_used() {
                (*ready, all) = (*ready + 1, all + 1);
            }
        }
        assert!(series[0] > MOST, "{series:?}");
        assert!(Held { ready: 0, target: FIRST, all, most }.wants_new(), "{all} in all");
    }

    #[test]
    fn no_more_than_the_most_are_held() {
        let full = Held { ready: 0, target: MOST, all: 1000, most: 1000 };
        assert!(full.is_low() && !full.wants_new() && !full.wants_used());
        let enough = Held { ready: MOST, all: 0, ..full };
        assert!(!enough.wants_new() && enough.wants_used());
        assert!(!Held { ready: MOST * SPARE, ..enough }.wants_used());
    }

    #[test]
    fn files_taken_now_and_then_are_replaced_many_at_once() {
        let held = Held { ready: MOST - 1, target: MOST, all: 0, most: 1000 };
        let slow = Pace { taken: 1, calm: 0 };
        assert!(held.is_low() && !held.begins(slow));
        assert!(Held { ready: MOST / 2, ..held }.begins(slow));
        assert!(held.begins(Pace { taken: FAST, calm: 0 }));
        assert!(held.begins(Pace { taken: 0, calm: CALM }) && !held.begins(Pace { taken: 0, calm: 1 }));
        // The first of all.
        assert!(Held { ready: 0, target: FIRST, ..held }.begins(slow));
    }

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
