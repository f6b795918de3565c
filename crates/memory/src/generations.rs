//! From generations of pages (MGLRU, idle bitmap) to LRU positions.
//!
//! Such a sampler tells, at each step, how many pages were last referenced how long ago. Pages that
//! left an old generation since the last step were referenced (or evicted, or freed), and the LRU
//! position of each was, before that, behind all pages of younger generations.

use crate::histogram::Histogram;

/// One age class: pages last referenced in the same interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The class's name: it stays the same while the class ages.
    pub sequence: u64,
    /// How many pages are in it.
    pub pages: u64,
}

/// Adds to `histogram` the accesses that turned `before` into `after`; both youngest first.
///
/// `lost` is how many pages were evicted or freed in between: eviction takes from the oldest, so
/// they are taken off what left the old classes, and count as no access. `revived` are pages that
/// came back from swap or disk: accesses beyond everything resident. Gives the accesses added.
///
/// A class up to `unsorted` was there when watching began: what was used long ago and what just now lie in it together. Its
/// pages that were accessed are taken to be those used last of it; of a class that formed since, to be anywhere in it.
///
/// Sums over "this class or older" are compared rather than classes, because the kernel merges its
/// oldest classes when it needs a new one: that changes names, not how many pages are that old.
pub fn accesses(
    histogram: &mut Histogram,
    before: &[Generation],
    after: &[Generation],
    lost: u64,
    revived: u64,
    unsorted: u64,
) -> u64 {
    let resident: u64 = before.iter().map(|generation| generation.pages).sum();
    let as_old = |list: &[Generation], sequence| -> u64 {
        list.iter().filter(|generation| generation.sequence <= sequence).map(|generation| generation.pages).sum()
    };
    let oldest_name = after.iter().map(|generation| generation.sequence).min().unwrap_or(u64::MAX);
    if revived > 0 {
        histogram.add(resident, revived as f64);
    }
    let mut counted = 0;
    for old in before.iter().rev().filter(|old| old.sequence >= oldest_name) {
        let older_or_same = as_old(before, old.sequence);
        let left = older_or_same.saturating_sub(as_old(after, old.sequence)).saturating_sub(lost);
        if left > counted {
            // The end: what is gone over again and again is the whole class, and half of it would not do.
            let reach = if old.sequence <= unsorted { left.min(old.pages) } else { old.pages };
            histogram.add((resident - older_or_same) + reach.saturating_sub(1), (left - counted) as f64);
            counted = left;
        }
    }
    counted + revived
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generations(list: &[(u64, u64)]) -> Vec<Generation> {
        list.iter().map(|&(sequence, pages)| Generation { sequence, pages }).collect()
    }

    #[test]
    fn pages_that_left_an_old_class_were_accessed_behind_all_younger_ones() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 200), (3, 700)]);
        let after = generations(&[(6, 50), (5, 100), (4, 200), (3, 650)]);
        assert_eq!(accesses(&mut histogram, &before, &after, 0, 0, 0), 50);
        assert!((histogram.misses_in(300) - 50.0).abs() < 1e-9);
        assert!((histogram.misses_in(999) - 50.0).abs() < 1e-9, "at the end of the class");
        assert!(histogram.misses_in(1001) < 1e-9);
    }

    #[test]
    fn evicted_pages_are_no_accesses_and_returning_ones_are_beyond_all_resident() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 900)]);
        let after = generations(&[(6, 30), (5, 100), (4, 500)]);
        assert_eq!(accesses(&mut histogram, &before, &after, 400, 30, 0), 30);
        assert!((histogram.misses_in(1000) - 30.0).abs() < 1e-9);
    }

    #[test]
    fn merging_the_two_oldest_classes_is_no_access() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 100), (4, 200), (3, 300), (2, 400)]);
        let after = generations(&[(6, 10), (5, 100), (4, 200), (3, 690)]);
        assert_eq!(accesses(&mut histogram, &before, &after, 0, 0, 0), 10);
    }

    /// Regression: what was used in the first period seemed to need all that was there when watching began.
    #[test]
    fn in_a_class_from_before_the_watch_the_pages_used_last_are_used_again() {
        let mut histogram = Histogram::for_memory(2048);
        let before = generations(&[(5, 0), (4, 1000)]);
        let after = generations(&[(6, 0), (5, 600), (4, 400)]);
        assert_eq!(accesses(&mut histogram, &before, &after, 0, 0, 5), 600);
        assert_eq!(histogram.memory_for_misses(0.0), 600);
    }
}
