//! The controller as a whole, on made-up observations.

use super::*;

mod cache;
mod windows;

const TOTAL: u64 = 100_000;

fn config() -> Config {
    Config { margin: 0.0, ..Config::default() }
}

fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(value)
}

/// A sample with a loop over `working_set` pages, `rate` accesses a second for a minute.
fn sample(controller: &Controller, working_set: u64, rate: f64, watched: u64) -> Sample {
    let mut histogram = controller.histogram().empty_like();
    histogram.add(working_set.saturating_sub(1), rate);
    let beyond = if working_set > TOTAL / 10 { (rate * 60.0) as u64 } else { 0 };
    Sample {
        histogram,
        beyond_noise: beyond,
        referenced: Some(working_set),
        busy: Some(rate / 1000.0),
        watched,
        cache_watched: false,
        existing: watched.max(working_set),
        window: seconds(60.0),
    }
}

fn observe(free: u64, contributed: u64, sample: Option<Sample>) -> Observation {
    Observation {
        picture: Picture { total: TOTAL, free, contributed, cold_cache: 0 },
        sample,
        feedback: Some(Feedback::default()),
        has_contributed: true,
    }
}

/// As many samples, all alike but for the accesses that have come since.
fn samples(seen: &Sample, at: &[f64]) -> Vec<(f64, Sample)> {
    let later = |at: f64| Sample { beyond_noise: (at * 1e6) as u64, window: seconds(at), ..seen.clone() };
    at.iter().map(|&at| (at, later(at))).collect()
}

/// Three periods of three samples each; gives the actions of the last tick.
fn prime(controller: &mut Controller, picture: &Observation, seen: &Sample) -> Vec<Action> {
    let mut actions = Vec::new();
    for (at, sample) in samples(seen, &[20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0]) {
        actions = controller.tick(Observation { sample: Some(sample), ..picture.clone() }, seconds(at));
    }
    actions
}

fn evicts(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::EvictTail(1..) | Action::EvictIdle(1..)))
}

#[test]
fn before_the_first_period_only_free_pages_are_lent() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let actions = controller.tick(observe(40_000, 0, None), seconds(0.1));
    assert!(actions.contains(&Action::Limit(40_000)), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, Action::EvictTail(_))));
}

#[test]
fn once_primed_all_beyond_the_working_set_is_lent_and_the_tail_evicted() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let seen = sample(&controller, 30_000, 1000.0, 60_000);
    let actions = prime(&mut controller, &observe(0, 40_000, None), &seen);
    let report = controller.report();
    assert_eq!((report.aged, report.aged_well), (3, 3));
    assert!((69_900..=70_000).contains(&report.donation.earned), "{report:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::EvictTail(1..))), "{actions:?}");
}

#[test]
fn nothing_is_evicted_on_the_word_of_too_few_periods_or_too_few_samples() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let seen = sample(&controller, 30_000, 1000.0, 60_000);
    // One sample a minute: every tick came late.
    let minutes: Vec<f64> = (1..=10).map(|minute| 60.0 * f64::from(minute)).collect();
    for (at, late) in samples(&seen, &minutes) {
        let actions = controller.tick(observe(0, 40_000, Some(late)), seconds(at));
        assert!(!evicts(&actions), "{actions:?}");
    }
    assert_eq!((controller.report().aged, controller.report().aged_well), (10, 0));
}

#[test]
fn between_two_samples_no_more_is_evicted_than_the_first_found_unreferenced() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let mut seen = sample(&controller, 30_000, 1000.0, 60_000);
    seen.referenced = Some(58_000);
    prime(&mut controller, &observe(0, 40_000, None), &seen);
    let mut evicted = 0;
    for tick in 1..100 {
        for action in controller.tick(observe(0, 40_000, None), seconds(180.0 + f64::from(tick))) {
            if let Action::EvictTail(pages) | Action::EvictIdle(pages) = action {
                evicted += pages;
            }
        }
    }
    assert!(evicted <= 2_000, "{evicted}");
}

#[test]
fn a_break_changes_nothing_however_long() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let busy = sample(&controller, 30_000, 1000.0, 60_000);
    controller.tick(observe(0, 40_000, Some(busy)), seconds(60.0));
    let before = controller.report().donation.opaque_limit;
    for minute in 2..600 {
        let idle = sample(&controller, 50, 10.0, 60_000);
        controller.tick(observe(0, 40_000, Some(idle)), seconds(60.0 * f64::from(minute)));
    }
    assert_eq!(controller.report().donation.opaque_limit, before);
    assert_eq!(controller.report().aged, 1);
    assert!(controller.report().filtered > 50);
}

#[test]
fn a_violation_takes_memory_back_and_ages_at_once() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let small = sample(&controller, 20_000, 1000.0, 20_000);
    controller.tick(observe(0, 80_000, Some(small)), seconds(60.0));
    let mut hurt = observe(0, 80_000, None);
    hurt.feedback = Some(Feedback { opaque_refaults: 5_000, ..Feedback::default() });
    let actions = controller.tick(hurt, seconds(61.0));
    assert!(actions.contains(&Action::Sample), "a sample now, not when it is due: {actions:?}");
    assert!(actions.contains(&Action::Freeze), "{actions:?}");
    let larger = sample(&controller, 50_000, 1000.0, 20_000);
    controller.tick(observe(0, 80_000, Some(larger)), seconds(61.2));
    assert_eq!(controller.report().aged, 2);
    assert!(controller.report().donation.earned <= 50_001, "{:?}", controller.report());
}

#[test]
fn when_shrunk_the_contributed_go_on() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let small = sample(&controller, 50_000, 1000.0, 50_000);
    controller.tick(observe(0, 50_000, Some(small)), seconds(60.0));
    let mut hurt = observe(0, 50_000, None);
    hurt.feedback = Some(Feedback { opaque_refaults: 5_000, ..Feedback::default() });
    controller.tick(hurt, seconds(61.0));
    assert!(matches!(controller.report().phase, Phase::Shrinking { .. }));
    let limit = controller.report().donation.limit;
    let actions = controller.tick(observe(50_000 - limit, limit, None), seconds(62.0));
    assert!(actions.contains(&Action::Thaw), "{actions:?}");
}

#[test]
fn when_the_contributed_are_gone_nothing_stays_frozen() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    controller.report.phase = Phase::Shrinking { since: Duration::ZERO };
    let mut alone = observe(50_000, 0, None);
    alone.has_contributed = false;
    assert!(controller.tick(alone, seconds(1.0)).contains(&Action::Thaw));
}

#[test]
fn the_bits_of_the_last_use_are_kept_through_a_break_and_cleared_on_return() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let mut busy = sample(&controller, 30_000, 1000.0, 30_000);
    controller.tick(observe(70_000, 0, Some(busy.clone())), seconds(50.0));
    busy.busy = Some(0.01);
    let actions = controller.tick(observe(70_000, 0, Some(busy.clone())), seconds(60.0));
    assert!(!actions.contains(&Action::BeginWindow), "the user just left: {actions:?}");
    let actions = controller.tick(observe(70_000, 0, Some(busy.clone())), seconds(120.0));
    assert!(!actions.contains(&Action::BeginWindow));
    assert_eq!(controller.report().aged, 1, "one window ages the histogram once");
    busy.busy = Some(0.5);
    assert!(controller.tick(observe(70_000, 0, Some(busy)), seconds(130.0)).contains(&Action::BeginWindow));
}

#[test]
fn the_kernel_is_not_let_choose_while_the_bits_do_not_cover_the_working_set() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let mut partly = sample(&controller, 30_000, 1000.0, 60_000);
    partly.referenced = Some(25_000);
    let actions = prime(&mut controller, &observe(0, 40_000, None), &partly);
    assert!(!actions.iter().any(|action| matches!(action, Action::EvictTail(_))), "{actions:?}");
    assert!(evicts(&actions), "ranges known to be idle may go: {actions:?}");
}

/// Regression: in a window of several periods only the first aged the histogram, since the bits of a
/// working set are set but once; the others looked like breaks.
#[test]
fn work_that_touches_nothing_new_is_no_break() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let seen = sample(&controller, 30_000, 1000.0, 60_000);
    for minute in 1..=3 {
        for part in [20.0, 40.0, 60.0] {
            let at = 60.0 * f64::from(minute - 1) + part;
            controller.tick(observe(0, 40_000, Some(seen.clone())), seconds(at));
        }
    }
    assert_eq!((controller.report().aged, controller.report().filtered), (3, 0));
}

/// Regression: on a fast machine an application that is worked in takes less than a twentieth of a CPU. No window began any more, one period
/// aged the histogram, and nothing was ever evicted on its word.
#[test]
fn work_that_takes_little_of_a_cpu_is_no_break() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let mut seen = sample(&controller, 30_000, 1000.0, 60_000);
    seen.busy = Some(0.004);
    let (mut began, mut evicted) = (0, false);
    for at in (1..=12).map(|step| 20.0 * f64::from(step)) {
        let actions = controller.tick(observe(0, 40_000, Some(seen.clone())), seconds(at));
        began += usize::from(actions.contains(&Action::BeginWindow));
        evicted |= evicts(&actions);
    }
    assert_eq!((controller.report().aged, controller.report().filtered), (4, 0));
    assert!(evicted && began >= 1, "{began}");
    // The break: what runs by itself takes a tenth of that.
    seen.busy = Some(0.0004);
    for at in (1..=12).map(|step| 240.0 + 20.0 * f64::from(step)) {
        let actions = controller.tick(observe(0, 40_000, Some(seen.clone())), seconds(at));
        assert!(!actions.contains(&Action::BeginWindow));
    }
    assert_eq!(controller.report().aged, 4);
}

/// Regression: a limit that was raised left a histogram in which all beyond the old one was alike.
#[test]
fn a_box_that_grows_gets_a_histogram_that_reaches_as_far() {
    let mut controller = Controller::new(config(), TOTAL / 10, Duration::ZERO);
    let seen = sample(&controller, TOTAL / 20, 1000.0, TOTAL / 10);
    for (at, sample) in samples(&seen, &[20.0, 40.0, 60.0, 80.0]) {
        let actions = controller.tick(observe(0, 300, Some(sample)), seconds(at));
        assert!(!actions.is_empty());
        // What was seen in the shape of the smaller memory is folded in all the same.
        assert!(controller.histogram().memory_pages() >= TOTAL);
    }
    let (aged, need) = (controller.report().aged, controller.report().need.unwrap());
    assert!(aged > 0 && need.abs_diff(TOTAL / 20) <= TOTAL / 100, "{aged} {need}");
}

/// Regression: what was missed since the last look, up to a second before, was taken for that of one tick, and what was missed before anything was
/// lent for a violation.
#[test]
fn steady_misses_seen_now_and_then_violate_nothing_when_the_first_process_comes() {
    let mut controller = Controller::new(config(), TOTAL, Duration::ZERO);
    let (mut looked, mut begun) = (0, false);
    for tick in 1..=400 {
        let has_contributed = tick > 302;
        let look = has_contributed || tick % 5 == 0;
        // A hundred a second, five ticks a second.
        let misses = Feedback { opaque_refaults: 20 * (tick - looked), ..Feedback::default() };
        if look {
            looked = tick;
        }
        let feedback = look.then_some(misses);
        let contributed = if has_contributed { 40_000 } else { 0 };
        let actions = controller.tick(
            Observation { feedback, has_contributed, ..observe(20_000, contributed, None) },
            seconds(tick as f64 / 5.0),
        );
        begun |= has_contributed;
        let report = controller.report();
        assert!(tick < 100 || (99.0..101.0).contains(&report.misses_per_s), "tick {tick}: {}", report.misses_per_s);
        assert!(report.violations == 0 && !actions.contains(&Action::Freeze), "tick {tick}: {actions:?}");
    }
    assert!(begun);
}
