//! `put` and `get` in pipes, and interrupted.

use crate::site::{Plan, Site, ULLAGE, ullage};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

const PLAN: Plan = Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None };

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A local file of this name was looked for, or made.
#[test]
fn put_and_get_stand_in_pipes() {
    let site = Site::start(&PLAN);
    site.user("alice", 1 << 30);
    let at = |name: &str| site.directory.path().join(name);
    let (file, temporary) = (at("file"), at("temporary"));
    fs::create_dir(&temporary).unwrap();
    let data: Vec<u8> = (0..300_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(&file, &data).unwrap();
    let run = |arguments: &[&str]| -> Output {
        let config = ["--config", site.config("alice").to_str().unwrap()].map(str::to_owned);
        let mut command = Command::new(ULLAGE);
        command.args(arguments).args(config).current_dir(&temporary).env("TMPDIR", &temporary);
        command.stdin(File::open(&file).unwrap()).output().unwrap()
    };
    let put = run(&["put", "-", "there", "--stripe", "64KiB"]);
    assert!(put.status.success(), "{put:?}");
    let got = run(&["get", "there", "-"]);
    assert!(got.status.success() && got.stderr.is_empty(), "{}", String::from_utf8_lossy(&got.stderr));
    assert!(got.stdout == data, "{} bytes", got.stdout.len());
    for refused in [&["put", "-"][..], &["get", "there", "-", "--json"], &["get", "missing", "-"]] {
        let refused = run(refused);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
    }
    assert_eq!(names(&temporary), [""; 0]);
}

fn interrupted(child: Child, begun: impl Fn() -> bool) -> Option<i32> {
    after(child, Signal::INT, begun).signal()
}

/// How it ends that is sent this once it has begun.
fn after(mut child: Child, signal: Signal, begun: impl Fn() -> bool) -> ExitStatus {
    let until = Instant::now() + Duration::from_secs(30);
    while !begun() {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap()
}

/// Regression: below nohup(1) a transfer ended with the terminal all the same, and took back what it had made.
#[test]
fn a_transfer_below_nohup_survives_a_hangup() {
    let site = Site::start(&PLAN);
    site.user("alice", 40 << 20);
    let (file, config) = (site.directory.path().join("file"), site.config("alice"));
    File::create(&file).unwrap().set_len(2 << 20).unwrap();
    let mut put = Command::new("nohup");
    put.args([
        ULLAGE,
        "put",
        file.to_str().unwrap(),
        "there",
        "--stripe",
        "4KiB",
        "--config",
        config.to_str().unwrap(),
    ]);
    put.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = after(put.spawn().unwrap(), Signal::HUP, || site.on_disk() > 16 << 10);
    assert!(ended.success(), "{ended}");
    let listed = ullage(&["ls", "--config", config.to_str().unwrap()]);
    assert!(listed.contains("there"), "{listed}");
}

/// The stripes of one that was interrupted stayed charged until somebody looked for them a day later, its vouchers until they expired, and a part of
/// a file beside its place for ever.
#[test]
fn a_transfer_that_is_interrupted_takes_back_what_it_made() {
    let site = Site::start(&PLAN);
    site.user("alice", 40 << 20);
    let at = |name: &str| site.directory.path().join(name);
    let (file, place, config) = (at("file"), at("place"), site.config("alice"));
    File::create(&file).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(&place).unwrap();
    let (file, config) = (file.to_str().unwrap(), config.to_str().unwrap());
    let start = |arguments: &[&str]| {
        let mut command = Command::new(ULLAGE);
        command.args(arguments).args(["--config", config]).current_dir(&place).stderr(Stdio::null()).spawn().unwrap()
    };
    let put = start(&["put", file, "there", "--stripe", "4KiB"]);
    assert_eq!(interrupted(put, || site.on_disk() > 100 << 10), Some(2));
    assert_eq!(site.on_disk(), 0);

    // There is room for one.
    ullage(&["put", file, "there", "--stripe", "8KiB", "--config", config]);
    let get = start(&["get", "there", "here"]);
    assert_eq!(interrupted(get, || !names(&place).is_empty()), Some(2));
    assert_eq!(names(&place), [""; 0]);
}
