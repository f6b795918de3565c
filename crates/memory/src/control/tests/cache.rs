//! File cache that nobody needs.

use super::*;

/// Regression: where the cache fills what nobody else uses, next to nothing is free, and contributed work was frozen for good.
#[test]
fn cache_that_fills_the_machine_freezes_nobody() {
    let mut controller = Controller::new(Config::default(), TOTAL, Duration::ZERO);
    let picture = Picture { total: TOTAL, free: 100, contributed: 30_000, cold_cache: 50_000 };
    for tick in 1..=20 {
        let actions = controller.tick(Observation { picture, ..observe(0, 0, None) }, seconds(f64::from(tick) / 5.0));
        assert!(!actions.contains(&Action::Freeze), "{actions:?}");
        assert!(actions.contains(&Action::Limit(79_100)), "{actions:?}");
    }
    let full = Picture { cold_cache: 0, ..picture };
    let actions = controller.tick(Observation { picture: full, ..observe(0, 0, None) }, seconds(5.0));
    assert!(actions.contains(&Action::Freeze), "of what is in use nothing is lent: {actions:?}");
}

#[test]
fn contributed_work_that_grows_into_cold_cache_keeps_what_it_was_lent() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let picture = Picture { total: TOTAL, free: 500, contributed: 1_000, cold_cache: 60_000 };
    let seen = sample(&controller, 20_000, 1000.0, 20_000);
    prime(&mut controller, &Observation { picture, ..observe(0, 0, None) }, &seen);
    let lent = controller.report().donation.limit;
    assert!(lent >= 61_400, "{lent}");
    let grown = Picture { contributed: 41_000, cold_cache: 20_000, ..picture };
    let actions = controller.tick(Observation { picture: grown, ..observe(0, 0, None) }, seconds(181.0));
    assert!(actions.contains(&Action::Limit(lent)) && !evicts(&actions), "{actions:?}");
    // What is cold and watched was not needed before: it is no room twice.
    let watched = Sample { cache_watched: true, watched: 80_000, existing: 80_000, ..seen };
    let unseen = Observation { picture, sample: Some(watched), ..observe(0, 0, None) };
    controller.tick(unseen, seconds(182.0));
    assert_eq!(controller.report().unwatched, 18_500);
}
