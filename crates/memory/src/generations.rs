//! From generations of pages (MGLRU) to LRU positions.
//!
//! Such a sampler tells, at each step, how many pages were last referenced how long ago. Pages that
//! left an old generation since the last step were referenced (or evicted, or freed), and the LRU
//! position of each was, before that, behind all pages of younger generations.
//!
//! The kernel keeps a list for each group and memory node, and memory is one: what the groups use together is needed
//! together. So positions are those in the queue of all lists, put together by age.

use crate::histogram::Histogram;

/// One age class: pages last referenced in the same interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The class's name within its list: it stays the same while the class ages.
    pub sequence: u64,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// How many pages are in it.
    pub pages: u64,
}

/// What became of one list between two steps; generations youngest first.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// At the step before.
    pub before: &'a [Generation],
    /// Now.
    pub after: &'a [Generation],
    /// Pages evicted or freed in between: eviction takes from the oldest, so they are taken off what left the old classes,
    /// and count as no access.
    pub lost: u64,
    /// Pages that came back from swap or disk: accesses beyond everything resident.
    pub revived: u64,
    /// A class up to this one was there when watching began: what was used long ago and what just now lie in it together. Its
    /// pages that were accessed are taken to be those used last of it; of a class that formed since, to be anywhere in it.
    pub unsorted: u64,
}

/// A class as it was, and what became of it.
struct Class {
    list: usize,
    generation: Generation,
    accessed: u64,
    /// How many of its pages a memory must hold that is to hold those that were accessed.
    reach: u64,
}

/// Adds to `histogram` the accesses that made the changes; gives how many, list by list. Classes of two lists that began within
/// `together_ms` of each other are of one age: all lists are aged in turn.
pub fn accesses(histogram: &mut Histogram, changes: &[Change], together_ms: u64) -> Vec<u64> {
    let classes: Vec<Class> = changes.iter().enumerate().flat_map(|(list, change)| change.classes(list)).collect();
    let resident: u64 = classes.iter().map(|class| class.generation.pages).sum();
    for class in classes.iter().filter(|class| class.accessed > 0) {
        let ahead: u64 = classes.iter().map(|other| class.behind(other, together_ms)).sum();
        histogram.add((ahead + class.reach).saturating_sub(1), class.accessed as f64);
    }
    let mut counted: Vec<u64> = changes.iter().map(|change| change.revived).collect();
    let revived: u64 = counted.iter().sum();
    if revived > 0 {
        histogram.add(resident, revived as f64);
    }
    for class in classes {
        counted[class.list] += class.accessed;
    }
    counted
}

impl Change<'_> {
    /// Sums over "this class or older" are compared rather than classes, because the kernel merges its
    /// oldest classes when it needs a new one: that changes names, not how many pages are that old.
    fn classes(&self, list: usize) -> Vec<Class> {
        let as_old = |list: &[Generation], sequence| -> u64 {
            list.iter().filter(|generation| generation.sequence <= sequence).map(|generation| generation.pages).sum()
        };
        let oldest_name = self.after.iter().map(|generation| generation.sequence).min().unwrap_or(u64::MAX);
        let mut counted = 0;
        let class = |generation: &Generation| {
            let sequence = generation.sequence;
            let gone = as_old(self.before, sequence).saturating_sub(as_old(self.after, sequence));
            let left = if sequence >= oldest_name { gone.saturating_sub(self.lost) } else { 0 };
            let accessed = left.saturating_sub(counted);
            counted += accessed;
            // The end: what is gone over again and again is the whole class, and half of it would not do.
            let used = if accessed > 0 { left.min(generation.pages) } else { 0 };
            let reach = if sequence <= self.unsorted { used } else { generation.pages };
            Class { list, generation: *generation, accessed, reach }
        };
        self.before.iter().rev().map(class).collect()
    }
}

impl Class {
    /// How many pages of another class were used after those of this one that were accessed, or with them.
    fn behind(&self, other: &Self, together_ms: u64) -> u64 {
        let (own, its) = (&self.generation, &other.generation);
        if self.list == other.list {
            return if its.sequence > own.sequence { its.pages } else { 0 };
        }
        if its.age_ms + together_ms < own.age_ms {
            its.pages
        } else if its.age_ms <= own.age_ms + together_ms {
            other.reach
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generations(list: &[(u64, u64)]) -> Vec<Generation> {
        list.iter()
            .map(|&(sequence, pages)| Generation { sequence, age_ms: 60_000 - 10_000 * sequence, pages })
            .collect()
    }

    /// Of one list alone.
    fn alone(
        histogram: &mut Histogram,
        (before, after): (&[Generation], &[Generation]),
        lost: u64,
        revived: u64,
        unsorted: u64,
    ) -> u64 {
        accesses(histogram, &[Change { before, after, lost, revived, unsorted }], 0)[0]
    }

    /// Regression: each group's positions were those among its own pages, and what all groups need together was taken to be
    /// what the largest one needs.
    #[test]
    fn groups_that_each_go_over_their_pages_need_them_all() {
        let (before, after) = (generations(&[(5, 0), (4, 400)]), generations(&[(6, 0), (5, 400), (4, 0)]));
        let later: Vec<Generation> = before.iter().map(|one| Generation { age_ms: one.age_ms - 300, ..*one }).collect();
        for unsorted in [0, 5] {
            let of = |before| Change { before, after: &after, lost: 0, revived: 0, unsorted };
            let mut histogram = Histogram::for_memory(2048);
            assert_eq!(accesses(&mut histogram, &[of(&before), of(&later), of(&before)], 500), [400; 3]);
            assert_eq!(histogram.memory_for_misses(0.0), 1200);
            assert!((histogram.misses_in(1199) - 1200.0).abs() < 1e-9, "those of all groups, whichever was aged first");
        }
    }

    #[test]
    fn what_another_group_used_since_is_ahead_and_what_it_used_before_is_not() {
        let mine = (generations(&[(5, 0), (3, 100), (2, 0)]), generations(&[(6, 0), (5, 100), (3, 0)]));
        let other = (generations(&[(4, 30), (1, 700)]), generations(&[(4, 30), (1, 700)]));
        let of = |(before, after)| Change { before, after, lost: 0, revived: 0, unsorted: 0 };
        let mut histogram = Histogram::for_memory(2048);
        let counted = accesses(&mut histogram, &[of((&mine.0, &mine.1)), of((&other.0, &other.1))], 500);
        assert_eq!((counted, histogram.memory_for_misses(0.0)), (vec![100, 0], 130));
    }

    #[test]
    fn pages_that_left_an_old_class_were_accessed_behind_all_younger_ones() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 200), (3, 700)]);
        let after = generations(&[(6, 50), (5, 100), (4, 200), (3, 650)]);
        assert_eq!(alone(&mut histogram, (&before, &after), 0, 0, 0), 50);
        assert!((histogram.misses_in(300) - 50.0).abs() < 1e-9);
        assert!((histogram.misses_in(999) - 50.0).abs() < 1e-9, "at the end of the class");
        assert!(histogram.misses_in(1001) < 1e-9);
    }

    #[test]
    fn evicted_pages_are_no_accesses_and_returning_ones_are_beyond_all_resident() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 900)]);
        let after = generations(&[(6, 30), (5, 100), (4, 500)]);
        assert_eq!(alone(&mut histogram, (&before, &after), 400, 30, 0), 30);
        assert!((histogram.misses_in(1000) - 30.0).abs() < 1e-9);
    }

    #[test]
    fn merging_the_two_oldest_classes_is_no_access() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 200), (3, 300), (2, 400)]);
        let after = generations(&[(6, 10), (5, 100), (4, 200), (3, 690)]);
        assert_eq!(alone(&mut histogram, (&before, &after), 0, 0, 0), 10);
    }

    /// Regression: what was used in the first period seemed to need all that was there when watching began.
    #[test]
    fn in_a_class_from_before_the_watch_the_pages_used_last_are_used_again() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 0), (4, 1000)]);
        let after = generations(&[(6, 0), (5, 600), (4, 400)]);
        assert_eq!(alone(&mut histogram, (&before, &after), 0, 0, 5), 600);
        assert_eq!(histogram.memory_for_misses(0.0), 600);
    }
}
