//! `ullage bench` as a user runs it: what it prints, what it writes, what it leaves.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn bench(work: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ullage"));
    command.args(["bench", "--quick", "--image-size", "300", "--work"]).arg(work);
    command.arg("--out").arg(work.join("out"));
    command
}

fn finished(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// No mount, no loop device, no image below `work`.
fn assert_clean(work: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*work.to_string_lossy()), "still mounted: {mounts}");
    // The kernel lets a loop device go a moment after its last user.
    let mounted = || {
        let loops = Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().unwrap().stdout;
        String::from_utf8_lossy(&loops).contains(&*work.to_string_lossy())
    };
    let freed = (0..100).any(|_| {
        let freed = !mounted();
        if !freed {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        freed
    });
    assert!(freed, "a loop device is left");
    let left: Vec<_> = fs::read_dir(work).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "out"), "left behind: {left:?}");
}

#[test]
fn the_list_names_every_workload() {
    let work = tempfile::tempdir().unwrap();
    let text = String::from_utf8(finished(bench(work.path()).arg("--list")).stdout).unwrap();
    for name in ["postmark-8", "find-cold-sizes", "build", "io", "metarates-32768-4", "fsync", "git", "sqlite", "mail"]
    {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name} is not in {text}");
    }
    let json = finished(bench(work.path()).args(["--list", "--json"])).stdout;
    assert!(serde_json::from_slice::<serde_json::Value>(&json).unwrap().as_array().unwrap().len() > 20);
}

#[test]
fn a_quick_run_compares_writes_its_files_and_cleans_up() {
    let work = tempfile::tempdir().unwrap();
    let output = finished(bench(work.path()).args([
        "--system",
        "native",
        "--system",
        "bindfs",
        "--workload",
        "postmark",
        "--workload",
        "find-cold",
        "--json",
    ]));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let series = report["series"].as_array().unwrap();
    assert!(series.iter().any(|s| s["workload"] == "postmark" && s["metric"] == "total"), "{report}");
    assert!(series.iter().any(|s| s["workload"] == "find-cold"), "{report}");
    assert!(series.iter().all(|s| s["ratio"]["median"].as_f64().unwrap() > 0.0));
    assert!(report["skipped"].as_array().unwrap().is_empty(), "{report}");
    let written: serde_json::Value =
        serde_json::from_slice(&fs::read(work.path().join("out/bench.json")).unwrap()).unwrap();
    assert_eq!(written, report);
    assert!(work.path().join("out/bench.svg").exists());
    assert_clean(work.path());
}

#[test]
fn unknown_names_are_refused_before_anything_is_mounted() {
    let work = tempfile::tempdir().unwrap();
    for wrong in [["--workload", "nothing"], ["--system", "zfs"]] {
        let output = bench(work.path()).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong[1]));
    }
    assert_clean(work.path());
}

/// Starts a bench that would run for long, and waits until it works on bindfs.
fn started(work: &Path) -> Child {
    started_with(work, Stdio::null())
}

/// The same with another standard error.
fn started_with(work: &Path, stderr: Stdio) -> Child {
    started_as(bench(work), work, stderr)
}

/// The same by this command.
fn started_as(mut command: Command, work: &Path, stderr: Stdio) -> Child {
    let child = command
        .args(["--system", "native", "--system", "bindfs", "--workload", "postmark", "--runs", "1000"])
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let busy = work.join(format!("ullage-bench.{}/root/system1/mnt/bench/postmark0", child.id()));
    let begun = Instant::now();
    while !busy.exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing at {}", busy.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

#[test]
fn a_signal_cleans_up() {
    let work = tempfile::tempdir().unwrap();
    let mut child = started(work.path());
    Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_clean(work.path());
}

/// Regression: a run that was to go on when its user leaves ended with the terminal.
#[test]
fn a_hangup_that_was_ignored_at_the_start_ends_nothing() {
    let work = tempfile::tempdir().unwrap();
    let bench = bench(work.path());
    let mut nohup = Command::new("nohup");
    nohup.arg(bench.get_program()).args(bench.get_args());
    let mut child = started_as(nohup, work.path(), Stdio::null());
    let tell = |signal: &str| Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(tell("-HUP").success());
    std::thread::sleep(Duration::from_secs(1));
    assert!(tell("-TERM").success());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_clean(work.path());
}

/// Regression: named as seen from where it is started, the place was left mounted, and ullage could not be measured at all.
#[test]
fn a_place_is_named_as_seen_from_here_and_through_links() {
    let directory = tempfile::tempdir().unwrap();
    let work = directory.path().join("work");
    fs::create_dir(&work).unwrap();
    std::os::unix::fs::symlink("work", directory.path().join("link")).unwrap();
    let mut command = bench(Path::new("link"));
    command.args(["--system", "native", "--system", "ullage", "--workload", "fsync", "--json"]);
    let output = finished(command.current_dir(&directory));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        !report["series"].as_array().unwrap().is_empty() && report["skipped"].as_array().unwrap().is_empty(),
        "{report}"
    );
    assert_clean(&work);
}

/// Regression: the word about the signal could not be written, nothing ended, and no later signal was heard.
#[test]
fn a_signal_cleans_up_where_nobody_reads_standard_error() {
    let work = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = started_with(work.path(), writer.into());
    drop(reader);
    Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() < Duration::from_secs(60) => std::thread::sleep(Duration::from_millis(50)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it does not end");
            }
        }
    };
    assert_eq!(status.code(), Some(128 + 15));
    assert_clean(work.path());
}

#[test]
fn what_a_killed_run_left_is_cleared_by_the_next() {
    let work = tempfile::tempdir().unwrap();
    let mut child = started(work.path());
    child.kill().unwrap();
    child.wait().unwrap();
    finished(bench(work.path()).args(["--system", "native", "--workload", "fsync"]));
    assert_clean(work.path());
}
