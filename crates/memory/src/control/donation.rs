//! How much memory may be lent out (sections 2.3.1 and 2.3.4).

use super::config::Config;
use super::observation::Picture;
use serde::{Deserialize, Serialize};

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

/// Decides. `need` is what the watched opaque memory needs (`None` before the histogram is primed:
/// then it keeps all it has), `unwatched` what opaque work holds that no sampler sees.
pub fn decide(config: &Config, picture: &Picture, need: Option<u64>, unwatched: u64, boost: u64) -> Donation {
    let margin = (picture.total as f64 * config.margin) as u64;
    let floor = (picture.total as f64 * config.opaque_floor).ceil() as u64;
    let needed = need.map_or(picture.opaque(), |need| need + unwatched.saturating_sub(picture.cold_cache));
    let opaque_limit = (needed + boost).max(floor).min(picture.total);
    let earned = picture.total.saturating_sub(opaque_limit + margin).max(config.minimum_pages);
    // Free pages may be used regardless of any limit, down to the margin; after a violation that much
    // more is freed ahead of what opaque work is fetching back.
    let room = (picture.contributed + picture.free).saturating_sub(margin + boost).max(config.minimum_pages);
    if room >= earned {
        return Donation { opaque_limit, earned, limit: room, evict: 0 };
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

    #[test]
    fn a_full_working_set_still_leaves_256_pages() {
        let picture = Picture { total: 100_000, free: 0, contributed: 100, cold_cache: 0 };
        let donation = decide(&config(), &picture, Some(100_000), 0, 0);
        assert_eq!((donation.earned, donation.limit), (256, 256));
    }

    #[test]
    fn opaque_memory_keeps_a_tenth_even_when_it_uses_nothing() {
        let picture = Picture { total: 100_000, free: 99_000, contributed: 0, cold_cache: 0 };
        let donation = decide(&config(), &picture, Some(0), 0, 0);
        assert_eq!(donation.opaque_limit, 10_000);
        assert_eq!(donation.earned, 90_000);
    }

    #[test]
    fn free_pages_may_be_used_before_anything_is_known() {
        let picture = Picture { total: 100_000, free: 30_000, contributed: 5_000, cold_cache: 0 };
        assert_eq!(decide(&config(), &picture, None, 0, 0).limit, 35_000);
    }

    #[test]
    fn room_beyond_free_pages_is_made_by_evicting_the_tail() {
        let picture = Picture { total: 100_000, free: 0, contributed: 30_000, cold_cache: 0 };
        let donation = decide(&config(), &picture, Some(40_000), 0, 0);
        assert_eq!((donation.limit, donation.evict), (30_000, 30_000));
    }

    proptest! {
        #[test]
        fn never_more_than_all_and_opaque_need_comes_first(
            free in 0u64..60_000, contributed in 0u64..60_000, need in 0u64..120_000, unwatched in 0u64..50_000, cold in 0u64..20_000,
        ) {
            let total = 120_000;
            let config = Config::default();
            let picture = Picture { total, free, contributed, cold_cache: cold };
            let donation = decide(&config, &picture, Some(need), unwatched, 0);
            prop_assert!(donation.limit >= config.minimum_pages);
            prop_assert!(donation.opaque_limit >= total / 10);
            prop_assert!(donation.earned <= total - total / 10);
            // Whatever exceeds what is earned is backed by free pages, not by opaque ones.
            let room = (contributed + free).saturating_sub((total as f64 * config.margin) as u64);
            prop_assert!(donation.limit <= room.max(donation.earned));
        }
    }
}
