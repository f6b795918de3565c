//! The bound on misses: how much memory opaque work needs (section 2.3.1).

use super::config::Config;
use crate::histogram::Histogram;

/// The memory, in pages, with which opaque work misses at most beta times as often as with all of
/// `total_pages`.
///
/// Where it misses (almost) nothing with all memory, as is usual today, beta times nothing would
/// remember every page ever touched, however long ago; `miss_floor` says what is negligible.
pub fn opaque_need(config: &Config, histogram: &Histogram, total_pages: u64) -> u64 {
    let allowed = (config.beta * histogram.misses_in(total_pages)).max(config.miss_floor * histogram.total());
    histogram.memory_for_misses(allowed).min(total_pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_misses_the_whole_working_set_is_kept() {
        let mut histogram = Histogram::for_memory(2048);
        histogram.add(0, 1000.0);
        histogram.add(799, 1.0);
        assert_eq!(opaque_need(&Config::default(), &histogram, 2048), 800);
    }

    #[test]
    fn a_working_set_larger_than_memory_leaves_next_to_nothing() {
        let mut histogram = Histogram::for_memory(2048);
        histogram.add(3000, 100.0);
        histogram.add(2047, 100.0);
        assert_eq!(opaque_need(&Config::default(), &histogram, 2048), 2048);
    }

    proptest! {
        #[test]
        fn misses_grow_by_at_most_beta(positions in prop::collection::vec(0u64..4096, 1..200), beta in 1.0f64..2.0) {
            let config = Config { beta, ..Config::default() };
            let mut histogram = Histogram::for_memory(2048);
            for position in positions {
                histogram.add(position, 1.0);
            }
            let need = opaque_need(&config, &histogram, 2048);
            let bound = (beta * histogram.misses_in(2048)).max(config.miss_floor * histogram.total());
            prop_assert!(histogram.misses_in(need) <= bound + 1e-9);
            prop_assert!(need == 0 || histogram.misses_in(need - 1) > bound, "and no memory is kept in vain");
        }
    }
}
