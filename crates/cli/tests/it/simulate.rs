//! `ullage simulate` as a user runs it: what it refuses to simulate, and where it prints.

use std::process::{Command, Output, Stdio};

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
    // It was no wrong usage to name nothing, and of two the one was passed over.
    for wrong in [&[][..], &["--seed", "3"], &["--faults", "--plan", "plan.toml"], &["--faults", study[0], study[1]]] {
        let output = simulate(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stdout));
    }
    // What says nothing of what is asked for was passed over, too.
    for wrong in [
        &["--plan", "plan.toml", "--figure", "figure-06"][..],
        &["--plan", "plan.toml", "--verbose"],
        &["--plan", "plan.toml", "--seeds", "3"],
        &["--plan", "plan.toml", "--threads", "3"],
        &["--faults", "--runs", "3"],
        &["--faults", "--verbose", "--seeds", "3"],
        &["--study", study[1], "--seeds", "3"],
    ] {
        let output = simulate(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stdout));
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

/// Regression: it panicked when its reader had seen enough, and a program that wanted JSON got messages before it.
#[test]
fn messages_go_where_nobody_minds() {
    let arguments = ["--faults", "--seed", "3", "--verbose"];
    let output = simulate(&arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let messages = text(&output.stdout).lines().count() - 1;
    assert!(messages > 1000, "only {messages}");
    let output = simulate(&[&arguments[..], &["--json"]].concat()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["first_seed"], &report["seeds"]), (&3.into(), &1.into()), "{report}");
    assert_eq!(text(&output.stderr).lines().count(), messages);
    for arguments in [&arguments[..], &[&arguments[..], &["--json"]].concat()] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = simulate(arguments).stdout(writer.try_clone().unwrap()).stderr(Stdio::from(writer)).status();
        assert_eq!(status.unwrap().code(), Some(0));
    }
}

/// A study or a plan could only be repeated by who remembered what was asked for.
#[test]
fn studies_and_plans_say_their_seed() {
    let directory = tempfile::tempdir().unwrap();
    let study =
        ["--study", directory.path().to_str().unwrap(), "--figure", "figure-06", "--runs", "1", "--time", "0.02"];
    let plan = directory.path().join("plan.toml");
    let text_of_plan = "clients = 1\nstores = 1\nusers = 1\nquota = 1000000\nwrite_rate = 1000\nclient_bandwidth = 1000\n\
                        store_outage = 60\ncheat_limit = 1000000000\n";
    std::fs::write(&plan, text_of_plan).unwrap();
    for what in [&study[..], &["--plan", plan.to_str().unwrap()]] {
        let all = [what, &["--seed", "4711"]].concat();
        let output = simulate(&all).output().unwrap();
        assert_eq!(text(&output.stdout).lines().next(), Some("seed 4711"), "{}", text(&output.stderr));
        let output = simulate(&[&all[..], &["--json"]].concat()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["seed"], 4711, "{report}");
    }
}
