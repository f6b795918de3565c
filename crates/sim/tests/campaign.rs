//! Whole clusters with faults: the seeds that every change must pass. More, with one's own seeds:
//! `ullage simulate --faults --seeds 10000`.

use ullage_sim::faults::{Setup, campaign};

#[test]
fn two_hundred_seeds_without_a_breach() {
    let breaches = campaign(1, 200, 2, &Setup::default(), &|_, _| {});
    let told: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(breaches.is_empty(), "{}", told.join("\n"));
}

/// The bank was rebuilt while every store was lost or given up: it began with an epoch that had been before.
#[test]
fn a_bank_rebuilt_when_no_store_is_left_is_told_the_epoch() {
    for seed in [5105, 7422, 7521] {
        let told: Vec<String> =
            campaign(seed, 1, 1, &Setup::default(), &|_, _| {}).iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
    }
}
