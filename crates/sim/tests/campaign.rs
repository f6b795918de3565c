//! Whole clusters with faults: the seeds that every change must pass. More, with one's own seeds:
//! `ullage simulate --faults --seeds 10000`.

use ullage_sim::faults::{Setup, campaign};

#[test]
fn two_hundred_seeds_without_a_breach() {
    let breaches = campaign(1, 200, 2, &Setup::default(), &|_, _| {});
    let told: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(breaches.is_empty(), "{}", told.join("\n"));
}
