//! The controller on the model of a machine: the paper's break, in milliseconds.

use super::*;

/// 16 MiB: a thirty-second of the bench's box.
const TOTAL: u64 = 4096;

/// The defaults, with the noise filter to the scale of the model.
fn config() -> Config {
    Config { noise_accesses_per_s: 10.0 / 32.0, ..Config::default() }
}

/// A person at work from second 0 to `away_s`, then from `back_s` for a minute: sweeps over `working_set`
/// pages; before that, touches `cold` others once.
fn break_trace(working_set: u64, cold: u64, away_s: u64, back_s: u64) -> Vec<Access> {
    let per_s = 480;
    let start = (0..cold).map(|page| Access { at_s: 0.0, page: 1_000_000 + page });
    let work = (0..away_s * per_s).chain(back_s * per_s..(back_s + 60) * per_s);
    start.chain(work.map(|index| Access { at_s: index as f64 / per_s as f64, page: index % working_set })).collect()
}

struct Came {
    /// Misses a second in the first minute after the break.
    per_s: f64,
    /// Lent at the end of the break, of what one who knows the working set would lend.
    of_oracle: f64,
}

fn break_with(working_set: u64, cold: u64, scene: Scene) -> Came {
    let (away_s, back_s) = (240, 540);
    let trace = break_trace(working_set, cold, away_s, back_s);
    let scene = Scene { wanted: TOTAL * 14 / 10, from_s: away_s as f64, ..scene };
    let seconds = Machine::new(config(), TOTAL).run(&trace, &scene);
    let back = back_s as f64;
    let lent = seconds.iter().rfind(|second| second.at_s <= back).unwrap().contributed;
    let misses: u64 = seconds.iter().filter(|second| second.at_s > back).map(|second| second.misses).sum();
    Came { per_s: misses as f64 / 60.0, of_oracle: lent as f64 / (TOTAL - working_set) as f64 }
}

/// Working set and cold memory of the bench's three sets.
const SETS: [(u64, u64); 3] =
    [(TOTAL * 20 / 100, TOTAL * 12 / 100), (TOTAL * 40 / 100, TOTAL * 15 / 100), (TOTAL * 66 / 100, TOTAL * 8 / 100)];

#[test]
fn a_break_costs_nothing_and_nearly_all_is_lent() {
    for (working_set, cold) in SETS {
        let came = break_with(working_set, cold, Scene::default());
        assert!(came.per_s <= 4.0, "{working_set}: {} misses/s", came.per_s);
        assert!(came.of_oracle >= 0.9, "{working_set}: {}", came.of_oracle);
    }
}

/// Regression: pages that opaque work loses to pressure from outside during the break were lent out,
/// and on its return every page it fetched back pushed another out.
#[test]
fn pressure_from_outside_does_not_ratchet() {
    for (working_set, cold) in SETS {
        let lost = 10;
        let pressure = (0..lost).map(|step| (300.0 + f64::from(step), working_set / 20)).collect();
        let came = break_with(working_set, cold, Scene { pressure, ..Scene::default() });
        assert!(came.of_oracle <= 1.0, "{working_set}: {} of the oracle", came.of_oracle);
        // What was lost has to come back, once.
        let lost_per_s = (working_set / 2 + cold) as f64 / 60.0;
        assert!(came.per_s <= lost_per_s, "{working_set}: {} misses/s, {lost_per_s} were lost", came.per_s);
    }
}

/// Ticks that come late, before, at and after the break, are not idleness.
#[test]
fn late_ticks_are_not_idleness() {
    for (working_set, cold) in SETS {
        let stalls = vec![(20.0, 45.0), (70.0, 110.0), (200.0, 215.0), (238.0, 250.0), (300.0, 330.0), (538.0, 545.0)];
        let came = break_with(working_set, cold, Scene { stalls, ..Scene::default() });
        assert!(came.per_s <= 4.0, "{working_set}: {} misses/s", came.per_s);
        assert!(came.of_oracle >= 0.9, "{working_set}: {}", came.of_oracle);
    }
}

#[test]
fn a_loop_needs_what_it_loops_over() {
    let trace: Vec<_> = (0..60_000u64).map(|i| Access { at_s: i as f64 / 1000.0, page: i % 3000 }).collect();
    let config = Config { fast_period: std::time::Duration::from_secs(20), ..Config::default() };
    let outcome = run(&trace, &config, 10_000);
    assert!((2990..=3020).contains(&outcome.exact_need_pages), "{outcome:?}");
    assert!((2990..=3200).contains(&outcome.estimated_need_pages.unwrap()), "{outcome:?}");
}

/// Regression: what was missed in the last second, if that was not full, was not counted.
#[test]
fn misses_of_a_trace_that_is_shorter_than_a_second_count() {
    let trace: Vec<_> = (0..500u64).map(|i| Access { at_s: i as f64 / 1000.0, page: i % 200 }).collect();
    let seconds = Machine::new(Config::default(), 100).run(&trace, &Scene::default());
    assert_eq!(seconds.len(), 1);
    let misses = run(&trace, &Config::default(), 100).misses_alone;
    assert!((200..=300).contains(&misses), "a loop over twice the memory: {misses}");
}
