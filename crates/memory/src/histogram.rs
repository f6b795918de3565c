//! The LRU histogram: how many accesses fall on each position of the LRU queue (section 2.3.2).

use serde::{Deserialize, Serialize};

/// How many buckets cover the physical memory; as many again cover pages that are not resident.
const BUCKETS_PER_MEMORY: u64 = 2048;

/// Accesses by LRU queue position, over *virtual* pages, so positions beyond physical memory exist.
///
/// Position 0 is the most recently used page. An access at position `x` is a hit in any memory of
/// more than `x` pages. Weights are accesses, accesses per second or fractions: only ratios matter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    bucket_pages: u64,
    weights: Vec<f64>,
}

impl Histogram {
    /// An empty histogram for a machine (or box) of `memory_pages`, reaching to twice that.
    pub fn for_memory(memory_pages: u64) -> Self {
        let bucket_pages = memory_pages.div_ceil(BUCKETS_PER_MEMORY).max(1);
        let buckets = 2 * memory_pages.div_ceil(bucket_pages) + 1;
        Self { bucket_pages, weights: vec![0.0; buckets as usize] }
    }

    /// An empty histogram of the same shape.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self { bucket_pages: self.bucket_pages, weights: vec![0.0; self.weights.len()] }
    }

    /// The same accesses in the shape for another size of memory. Those of a bucket count as its farthest.
    #[must_use]
    pub fn reshaped(&self, memory_pages: u64) -> Self {
        let mut other = Self::for_memory(memory_pages);
        for (bucket, weight) in self.weights.iter().enumerate() {
            other.add((bucket as u64 + 1) * self.bucket_pages - 1, *weight);
        }
        other
    }

    /// The same accesses in the shape of another.
    #[must_use]
    pub fn reshaped_like(&self, other: &Self) -> Self {
        let alike = (self.bucket_pages, self.weights.len()) == (other.bucket_pages, other.weights.len());
        if alike { self.clone() } else { self.reshaped(other.memory_pages()) }
    }

    /// The size of memory that its shape is for, or a bucket more.
    pub fn memory_pages(&self) -> u64 {
        self.weights.len() as u64 / 2 * self.bucket_pages
    }

    /// Pages covered by one bucket.
    pub fn bucket_pages(&self) -> u64 {
        self.bucket_pages
    }

    /// Adds accesses at a position; positions past the end count in the last bucket.
    pub fn add(&mut self, position_pages: u64, weight: f64) {
        let last = self.weights.len().saturating_sub(1);
        let bucket = ((position_pages / self.bucket_pages.max(1)) as usize).min(last);
        if let Some(slot) = self.weights.get_mut(bucket) {
            *slot += weight.max(0.0);
        }
    }

    /// All accesses.
    pub fn total(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Accesses that miss in a memory of `pages`: those at that position or beyond. A bucket that
    /// straddles the boundary counts whole, so misses are never understated.
    pub fn misses_in(&self, pages: u64) -> f64 {
        let first = (pages / self.bucket_pages.max(1)) as usize;
        self.weights.iter().skip(first).sum()
    }

    /// The smallest memory, in pages and a multiple of the bucket, in which at most `allowed`
    /// accesses miss.
    pub fn memory_for_misses(&self, allowed: f64) -> u64 {
        let mut misses = 0.0;
        for (bucket, weight) in self.weights.iter().enumerate().rev() {
            misses += weight;
            if misses > allowed {
                return (bucket as u64 + 1) * self.bucket_pages;
            }
        }
        0
    }

    /// Divides by the number of accesses, so that the weights are hit ratios (section 2.3.5).
    pub fn normalise(&mut self) {
        let total = self.total();
        if total > 0.0 {
            self.weights.iter_mut().for_each(|weight| *weight /= total);
        }
    }

    /// Folds in a newer histogram of the same shape: exponentially weighted moving average.
    ///
    /// An empty `self` takes the newer one over as it is: an average with nothing would halve
    /// nothing and forget nothing, but start at 1/16 of what was just seen.
    pub fn age(&mut self, newer: &Self, alpha: f64) {
        if self.total() == 0.0 {
            self.clone_from(newer);
            return;
        }
        debug_assert_eq!(self.weights.len(), newer.weights.len(), "histograms of one controller have one shape");
        for (old, new) in self.weights.iter_mut().zip(&newer.weights) {
            *old = *old * (1.0 - alpha) + new * alpha;
        }
    }

    /// For charts: `(position in pages, share of accesses that hit in a memory of that size)`.
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let total = self.total().max(f64::MIN_POSITIVE);
        let mut sum = 0.0;
        let points = self.weights.iter().enumerate().map(|(bucket, weight)| {
            sum += weight;
            ((bucket as u64 + 1) * self.bucket_pages, sum / total)
        });
        std::iter::once((0, 0.0)).chain(points).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_the_accesses_at_or_beyond_the_memory_size() {
        let mut histogram = Histogram::for_memory(2048);
        histogram.add(0, 10.0);
        histogram.add(100, 5.0);
        histogram.add(9999, 1.0);
        assert!((histogram.misses_in(0) - 16.0).abs() < 1e-9);
        assert!((histogram.misses_in(100) - 6.0).abs() < 1e-9);
        assert!((histogram.misses_in(101) - 1.0).abs() < 1e-9, "accesses past the end are kept");
        assert_eq!(histogram.memory_for_misses(1.0), 101);
        assert_eq!(histogram.memory_for_misses(6.0), 1);
        assert_eq!(histogram.memory_for_misses(16.0), 0);
    }

    #[test]
    fn ageing_is_an_exponentially_weighted_average_of_ratios() {
        let mut old = Histogram::for_memory(2048);
        old.add(500, 100.0);
        old.normalise();
        let mut new = old.empty_like();
        new.add(10, 7.0);
        new.normalise();
        old.age(&new, 1.0 / 16.0);
        assert!((old.misses_in(400) - 15.0 / 16.0).abs() < 1e-9);
        assert!((old.total() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_larger_memory_keeps_what_was_seen_in_a_smaller_one() {
        let mut small = Histogram::for_memory(10_000);
        assert!((10_000..10_010).contains(&small.memory_pages()));
        small.add(3_000, 5.0);
        let large = small.reshaped(1_000_000);
        assert!((1_000_000..1_001_000).contains(&large.memory_pages()));
        assert!((large.total() - 5.0).abs() < 1e-9);
        assert!((3_001..4_000).contains(&large.memory_for_misses(0.0)));
    }

    #[test]
    fn the_first_period_primes_the_histogram_as_it_is() {
        let mut empty = Histogram::for_memory(2048);
        let mut new = empty.empty_like();
        new.add(10, 1.0);
        empty.age(&new, 1.0 / 16.0);
        assert_eq!(empty, new);
    }
}
