use super::*;
use crate::worker::tests::helper;
use crate::worker::{Crew, Job};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const FILES: usize = 300;
const TRANSACTIONS: u64 = 1000;
const SEEDS: u64 = 8;

/// One run's figures by name.
type Figures = BTreeMap<&'static str, f64>;

fn ours(job: PostMark) -> Counts {
    let mut finished = Crew::start(&helper(), &[Job::PostMark(job)]).unwrap().run(|| ()).unwrap();
    assert_eq!(finished.phases.len(), PHASES);
    serde_json::from_value(finished.results.remove(0)).unwrap()
}

fn job(directory: &Path, seed: u64) -> PostMark {
    PostMark { files: FILES, transactions: TRANSACTIONS, ..PostMark::new(directory.to_owned(), seed) }
}

fn figures(counts: &Counts) -> Figures {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Figures::from([
        ("created", counts.created as f64),
        ("created mixed", counts.created_mixed as f64),
        ("read", counts.read as f64),
        ("appended", counts.appended as f64),
        ("deleted", counts.deleted as f64),
        ("deleted mixed", counts.deleted_mixed as f64),
        ("MB read", megabytes(counts.bytes_read)),
        ("MB written", megabytes(counts.bytes_written)),
    ])
}

/// Debian's program with the same parameters.
fn debians(directory: &Path, seed: u64) -> Figures {
    let mut child = Command::new("postmark")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Debian's package postmark is needed for this test");
    let orders = format!(
        "set location {}\nset number {FILES}\nset transactions {TRANSACTIONS}\nset size 8192 65536\nset seed {seed}\nrun\nquit\n",
        directory.display()
    );
    child.stdin.take().unwrap().write_all(orders.as_bytes()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let number = |line: &str| -> f64 { line.split_whitespace().find_map(|word| word.parse().ok()).unwrap() };
    let mut figures = Figures::new();
    let mut mixed = "created mixed";
    for line in output.lines() {
        let name = match line.trim() {
            l if l.contains(" created (") => "created",
            l if l.contains(" deleted (") => {
                mixed = "deleted mixed";
                "deleted"
            }
            l if l.starts_with("Mixed with transactions") => mixed,
            l if l.contains("megabytes read") => "MB read",
            l if l.contains("megabytes written") => "MB written",
            l if l.contains(" read (") => "read",
            l if l.contains(" appended (") => "appended",
            _ => continue,
        };
        figures.insert(name, number(line));
    }
    figures
}

/// Mean and variance of the mean.
fn mean(runs: &[Figures], name: &str) -> (f64, f64) {
    let values: Vec<f64> = runs.iter().map(|run| run[name]).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n)
}

#[test]
fn does_what_debians_postmark_does() {
    let place = tempfile::tempdir().unwrap();
    let mine: Vec<Figures> = (0..SEEDS).map(|seed| figures(&ours(job(place.path(), seed)))).collect();
    let theirs: Vec<Figures> = (0..SEEDS).map(|seed| debians(place.path(), 1000 + seed)).collect();
    for name in mine[0].keys() {
        let ((a, a_variance), (b, b_variance)) = (mean(&mine, name), mean(&theirs, name));
        // Five standard errors: fails by chance less than once in ten thousand with eight runs a side.
        let allowed = 5.0 * (a_variance + b_variance).sqrt();
        assert!(a > 0.0 && (a - b).abs() <= allowed, "{name}: {a} here, {b} in Debian's, {allowed} allowed");
        // And not so wide that it would pass for anything.
        assert!(allowed < 0.2 * b, "{name}: runs differ too much to tell: {allowed} of {b}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn every_transaction_is_two_operations_and_every_file_is_deleted() {
    let place = tempfile::tempdir().unwrap();
    let counts = ours(job(place.path(), 3));
    // An append to a file that is full already is left out, as published; it is rare.
    let touched = counts.read + counts.appended;
    assert!(touched <= TRANSACTIONS && touched + 5 > TRANSACTIONS, "{counts:?}");
    assert_eq!(counts.created_mixed + counts.deleted_mixed, TRANSACTIONS);
    assert_eq!(counts.created, FILES as u64 + counts.created_mixed);
    assert_eq!(counts.created, counts.deleted);
}

#[test]
fn the_same_seed_does_the_same_and_another_something_else() {
    let place = tempfile::tempdir().unwrap();
    let small = |seed| PostMark { files: 20, transactions: 50, ..job(place.path(), seed) };
    assert_eq!(ours(small(1)), ours(small(1)));
    assert_ne!(ours(small(1)), ours(small(2)));
}

#[test]
fn biases_lock_operations_out() {
    let place = tempfile::tempdir().unwrap();
    let job = PostMark { files: 20, transactions: 15, bias_read: 10, bias_create: 0, ..job(place.path(), 1) };
    let counts = ours(job);
    assert_eq!((counts.read, counts.appended, counts.created_mixed, counts.deleted_mixed), (15, 0, 0, 15));
}

#[test]
fn a_pool_that_empties_ends_the_run_early() {
    let place = tempfile::tempdir().unwrap();
    let counts = ours(PostMark { files: 3, transactions: 50, bias_create: 0, ..job(place.path(), 1) });
    assert_eq!((counts.created, counts.deleted, counts.deleted_mixed), (3, 3, 3));
}
