//! When windows begin.

use super::*;

/// Samples every ten seconds after priming, with so many watched pages at each; gives when windows began.
fn begun(mut watched: impl FnMut(u32) -> u64) -> Vec<u32> {
    let config = Config { eviction_per_s: 100.0, fast_for: seconds(3600.0), ..config() };
    let mut controller = Controller::new(config, TOTAL, Duration::ZERO);
    let mut seen = sample(&controller, 30_000, 1000.0, 60_000);
    prime(&mut controller, &observe(0, 40_000, None), &seen);
    let (mut begun, mut evicted) = (Vec::new(), false);
    for at in (1..180).map(|step| 180 + 10 * step) {
        seen.watched = watched(at);
        let (_, sample) = samples(&seen, &[f64::from(at)]).remove(0);
        controller.tick(observe(0, 40_000, None), seconds(f64::from(at) - 1.0));
        let actions = controller.tick(observe(0, 40_000, Some(sample)), seconds(f64::from(at)));
        evicted |= evicts(&actions);
        if actions.contains(&Action::BeginWindow) {
            begun.push(at);
        }
    }
    assert!(evicted);
    begun
}

/// Regression: without swap nothing came of any eviction, so no window ever began again, and what was referenced only grew.
#[test]
fn an_eviction_of_which_nothing_comes_holds_no_window_up() {
    assert_eq!(begun(|_| 60_000), [420, 660, 900, 1140, 1380, 1620, 1860]);
}

#[test]
fn an_eviction_that_goes_on_holds_a_window_up_for_a_period() {
    assert_eq!(begun(|at| 60_000 - u64::from(at - 180) * 10), [480, 780, 1080, 1380, 1680]);
}
