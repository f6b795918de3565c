//! `ullage simulate` as a user runs it: what it refuses to simulate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_ullage"), "simulate"]).args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Regression: success with nothing done, verdicts of NaN over files that were there, no breaches of no seeds; and one did not end.
#[test]
fn nothing_and_nonsense_are_not_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let study = ["--study", directory.path().to_str().unwrap()];
    for wrong in [
        &["--figure", "nope"][..],
        &["--runs", "0"],
        &["--time", "0"],
        &["--time", "nan"],
        &["--time", "inf"],
        &["--time", "-1"],
        &["--scientific-time", "0"],
    ] {
        let output = simulate(&[&study[..], wrong].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stdout));
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        let lists = text(&output.stderr).contains("figure-06");
        assert_eq!(lists, wrong[0] == "--figure", "{}", text(&output.stderr));
    }
    let little = ["--figure", "figure-12", "--runs", "1", "--time", "0.01", "--scientific-time", "0.01"];
    let output = simulate(&[&study[..], &little].concat()).output().unwrap();
    assert_eq!((output.status.code(), directory.path().read_dir().unwrap().count()), (Some(1), 0));
    assert!(text(&output.stderr).contains("raise --time"), "{}", text(&output.stderr));
    for wrong in [&["--seeds", "0"][..], &["--seeds", "0", "--seed", "0"], &["--seed", "18446744073709551615"]] {
        let output = simulate(&[&["--faults"][..], wrong].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stdout));
    }
    let last = (u64::MAX / 2).to_string();
    let Output { status, stdout, .. } = simulate(&["--faults", "--seed", &last, "--seeds", "2"]).output().unwrap();
    assert!(status.success() && text(&stdout).starts_with(&format!("seeds {last} to 9223372036854775808: ")));
}
