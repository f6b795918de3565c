//! How much memory may be lent out (sections 2.3.1 and 2.3.4).
//!
//! The invariant: **what opaque work has and needs is never lent**. Opaque pages that were swapped
//! out (by whatever pressure) still exist and are still needed; the memory they left is *reserved*
//! for their return, it is not free memory that may be used regardless. So
//!
//! > limit ≤ total − margin − max(opaque resident, opaque limit)  (or the least of 256 pages)
//!
//! whenever the histogram is primed, and losing pages can never raise the limit beyond what the
//! histogram says is earned.
//!
//! Cold cache is no need of anybody's: a machine that runs for a day has next to nothing free besides. The kernel drops it by
//! itself, before anything else, as contributed work grows, so it is room like free memory.

use super::config::Config;
use super::observation::Picture;
use serde::{Deserialize, Serialize};

/// What opaque work has and needs, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// What the watched opaque memory needs by the histogram; `None` before it is primed: then opaque
    /// work keeps all it has.
    pub need: Option<u64>,
    /// Watched pages that exist, resident or swapped out: nobody needs more than there is.
    pub existing: u64,
    /// What opaque work holds that no sampler sees, without cold cache.
    pub unwatched: u64,
    /// Kept in addition after violations.
    pub boost: u64,
}

/// A decision, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Donation {
    /// What opaque work keeps.
    pub opaque_limit: u64,
    /// What contributed work may have by the histogram alone.
    pub earned: u64,
    /// The limit to set now.
    pub limit: u64,
    /// Opaque pages to evict from the tail, so that the limit can rise to what is earned.
    pub evict: u64,
}

/// Decides.
pub fn decide(config: &Config, picture: &Picture, demand: &Demand) -> Donation {
    let margin = (picture.total as f64 * config.margin) as u64;
    let floor = (picture.total as f64 * config.opaque_floor).ceil() as u64;
    let warm = picture.opaque().saturating_sub(picture.cold_cache);
    let needed = demand.need.map_or(warm, |need| need.min(demand.existing) + demand.unwatched);
    let opaque_limit = (needed + demand.boost).max(floor).min(picture.total);
    let earned = picture.total.saturating_sub(opaque_limit + margin).max(config.minimum_pages);
    // Available memory beyond what opaque work keeps; after a violation that much more is freed ahead of
    // what it is fetching back.
    let available = picture.contributed + picture.available();
    let room = available.saturating_sub(margin + demand.boost).max(config.minimum_pages);
    if room >= earned {
        return Donation { opaque_limit, earned, limit: earned, evict: 0 };
    }
    // Opaque memory is over its limit. What contributed work has it keeps, up to what it earned; more
    // only as the tail is evicted, so that it is the tail and not whatever the kernel finds first.
    let limit = room.max(picture.contributed.min(earned)).max(config.minimum_pages);
    let wants_more = picture.contributed + margin >= limit;
    Donation { opaque_limit, earned, limit, evict: if wants_more { earned - room } else { 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> Config {
        Config { margin: 0.0, ..Config::default() }
    }

    fn needs(need: u64) -> Demand {
        Demand { need: Some(need), existing: u64::MAX, ..Demand::default() }
    }

    #[test]
    fn a_full_working_set_still_leaves_256_pages() {
        let picture = Picture { total: 100_000, free: 0, contributed: 100, cold_cache: 0 };
        let donation = decide(&config(), &picture, &needs(100_000));
        assert_eq!((donation.earned, donation.limit), (256, 256));
    }

    #[test]
    fn opaque_memory_keeps_a_tenth_even_when_it_uses_nothing() {
        let picture = Picture { total: 100_000, free: 99_000, contributed: 0, cold_cache: 0 };
        let donation = decide(&config(), &picture, &needs(0));
        assert_eq!(donation.opaque_limit, 10_000);
        assert_eq!(donation.earned, 90_000);
    }

    #[test]
    fn free_pages_may_be_used_before_anything_is_known() {
        let picture = Picture { total: 100_000, free: 30_000, contributed: 5_000, cold_cache: 0 };
        assert_eq!(decide(&config(), &picture, &Demand::default()).limit, 35_000);
    }

    #[test]
    fn room_beyond_free_pages_is_made_by_evicting_the_tail() {
        let picture = Picture { total: 100_000, free: 0, contributed: 30_000, cold_cache: 0 };
        let donation = decide(&config(), &picture, &needs(40_000));
        assert_eq!((donation.limit, donation.evict), (30_000, 30_000));
    }

    /// Regression: pages that opaque work lost during a break (to pressure from outside its box) were
    /// lent out as free memory, and never given back.
    #[test]
    fn memory_that_opaque_work_lost_is_kept_for_its_return() {
        let lost = |pages: u64| Picture { total: 100_000, free: pages, contributed: 30_000, cold_cache: 0 };
        let demand = Demand { need: Some(70_000), existing: 70_000, ..Demand::default() };
        for pages in [0, 10_000, 40_000] {
            assert_eq!(decide(&config(), &lost(pages), &demand).limit, 30_000, "{pages} pages lost");
        }
    }

    #[test]
    fn memory_of_applications_that_ended_is_lent() {
        let picture = Picture { total: 100_000, free: 50_000, contributed: 30_000, cold_cache: 0 };
        let ended = Demand { need: Some(70_000), existing: 20_000, ..Demand::default() };
        assert_eq!(decide(&config(), &picture, &ended).limit, 80_000);
    }

    /// Regression: on a machine that has run for a day the cache fills what nobody else uses, and contributed work got the
    /// least there is.
    #[test]
    fn memory_that_only_cold_cache_fills_is_lent() {
        let picture = Picture { total: 100_000, free: 500, contributed: 0, cold_cache: 60_000 };
        let unprimed = decide(&Config::default(), &picture, &Demand::default());
        assert_eq!((unprimed.limit, unprimed.evict), (59_500, 0));
        // The user has 20,000 in processes, and 19,500 in kernel and cache that are no colder.
        let seen = Demand { unwatched: 19_500, existing: 20_000, ..needs(20_000) };
        let primed = decide(&Config::default(), &picture, &seen);
        assert_eq!((primed.earned, primed.limit, primed.evict), (59_500, 59_500, 0), "it goes by itself");
    }

    #[test]
    fn cache_that_is_used_is_not_lent() {
        let picture = Picture { total: 100_000, free: 500, contributed: 10_000, cold_cache: 0 };
        assert_eq!(decide(&config(), &picture, &Demand::default()).limit, 10_500);
        let needed = Demand { unwatched: 9_500, existing: 80_000, ..needs(70_000) };
        let picture = Picture { cold_cache: 20_000, ..picture };
        assert_eq!(decide(&config(), &picture, &needed).limit, 20_500, "cold as it looks, it is needed");
    }

    proptest! {
        #[test]
        fn what_opaque_work_has_and_needs_is_never_lent(
            free in 0u64..60_000, contributed in 0u64..60_000, need in 0u64..120_000, existing in 0u64..120_000,
            unwatched in 0u64..50_000, boost in 0u64..30_000, cold_cache in 0u64..50_000,
        ) {
            let total = 120_000_u64;
            let config = Config::default();
            let margin = (total as f64 * config.margin) as u64;
            let cold_cache = cold_cache.min(total.saturating_sub(free + contributed));
            let picture = Picture { total, free, contributed, cold_cache };
            let demand = Demand { need: Some(need), existing, unwatched, boost };
            let donation = decide(&config, &picture, &demand);
            prop_assert!(donation.limit >= config.minimum_pages);
            prop_assert!(donation.opaque_limit >= total / 10);
            prop_assert!(donation.limit <= donation.earned);
            prop_assert!(donation.earned <= (total - margin).saturating_sub(need.min(existing) + unwatched + boost).max(config.minimum_pages));
            // What it holds beyond the available pages it held before.
            let room = (contributed + free + cold_cache).saturating_sub(margin).max(config.minimum_pages);
            prop_assert!(donation.limit <= room.max(contributed));
        }
    }
}
