//! A short form of the crash campaign; the long one is `cargo run -p ullage-mount-tests --bin crash-campaign`.

use std::process::Command;
use std::time::Duration;
use ullage_mount_tests::binary;
use ullage_mount_tests::crash::failing::fail;
use ullage_mount_tests::crash::fault::{Fault, possible};
use ullage_mount_tests::crash::round;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

fn rounds(count: u64, seed: u64, flags: &[&str]) {
    rounds_with(count, seed, flags, false);
}

fn rounds_with(count: u64, seed: u64, flags: &[&str], drains: bool) {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 1024);
    let mut space = Space::on(ground, &disk);
    space.flags = ["--linger-ms", "100"].iter().chain(flags).map(Into::into).collect();
    if drains {
        space.add_beside();
    }
    space.up();
    for seed in seed..seed + count {
        space.limit(Duration::from_secs(60));
        let (wrong, promised) = round::kill(&space, seed);
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        eprintln!("seed {seed}: {promised} files promised and there");
    }
    space.down_and_check();
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_with_passthrough() {
    rounds(14, 1000, &[]);
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_through_the_server() {
    rounds(6, 2000, &["--no-passthrough"]);
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_below_a_limit() {
    rounds(6, 3000, &["--size", "900M"]);
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_while_a_pool_is_emptied() {
    rounds_with(4, 4000, &[], true);
    rounds_with(2, 4100, &["--size", "900M"], true);
}

/// The long form is `cargo run -p ullage-mount-tests --bin fault-campaign`.
#[test]
fn nothing_is_lost_or_mixed_when_system_calls_of_the_daemon_fail() {
    if !possible() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 1024);
    let mut space = Space::on(ground, &disk);
    space.flags = ["--linger-ms", "100"].map(Into::into).to_vec();
    space.up();
    let calls = [
        ("openat", "EMFILE", 3),
        ("pwrite64", "EIO", 2),
        ("ftruncate", "ENOSPC", 2),
        ("fdatasync", "EIO", 1),
        ("fsync", "EIO", 2),
        ("fsetxattr", "ENOSPC", 4),
        ("unlinkat", "EIO", 1),
        ("renameat2", "EIO", 3),
        ("getdents64", "EIO", 2),
        ("clone3", "EAGAIN", 1),
    ];
    let (mut load, mut starts) = (0, 0);
    for (call, errno, nth) in calls {
        space.limit(Duration::from_secs(120));
        let failed = fail(&space, &Fault { call: call.into(), errno: errno.into(), nth }, 4000);
        assert!(failed.wrong.is_empty(), "{call} {errno}:\n{}", failed.wrong.join("\n"));
        (load, starts) = (load + failed.calls.0, starts + failed.calls.1);
    }
    assert!(load > 0 && starts > 0, "{load} calls failed under load, {starts} at starts: this proves nothing");
    space.down_and_check();
}

/// Regression: a campaign against the known-bad daemon had to fail, and did so too where that did not start.
#[test]
fn a_canary_is_nothing_but_a_broken_promise() {
    if !possible() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let campaign = |binary: &std::path::Path, seconds: &str| {
        let mut command = Command::new("timeout");
        command.args([seconds, env!("CARGO_BIN_EXE_fault-campaign")]);
        command.args(["--canary", "--call", "openat", "--errno", "EMFILE", "--nth", "3", "--seed", "4000"]);
        let output = command.env("ULLAGE_BIN", binary).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
    };
    let said = campaign("/bin/false".as_ref(), "60");
    assert!(!said.contains("noticed"), "{said}");
    let said = campaign(binary::path(), "120");
    assert!(said.contains("was not noticed"), "{said}");
}
