//! Names of users as the system knows them, wherever it keeps them: a `getent` of the test's own says so.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use ullage_mount_tests::binary;
use ullage_mount_tests::run::{Outcome, run};
use ullage_mount_tests::space::Space;

/// Runs `ullage limit` where `getent` is this script.
fn limit<S: AsRef<OsStr>>(space: &Space, script: &str, words: impl IntoIterator<Item = S>) -> Outcome {
    let dir = space.ground.join("bin");
    let getent = dir.join("getent");
    fs::create_dir_all(&dir).unwrap();
    fs::write(&getent, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&getent, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    run(Command::new(binary::path()).arg("limit").arg(&space.mount).args(words).env("PATH", path))
}

/// Regression: who is known by another name than was asked for, as users of a company's directory are, was taken for nobody.
#[test]
fn a_user_is_who_the_system_says_whatever_it_calls_him() {
    let space = Space::plain();
    let company = "case \"$3\" in anna|4711) echo 'anna@example.com:*:4711:4711::/:/bin/sh' ;; *) exit 2 ;; esac";
    limit(&space, company, ["--user", "anna", "1G"]).ok();
    let told = limit(&space, company, ["--user", "anna", "--json"]).json();
    assert_eq!((&told["limits"][0]["subject"]["user"], &told["limits"][0]["limit"]), (&4711.into(), &(1 << 30).into()));
    let shown = limit(&space, company, [""; 0]).ok();
    assert!(shown.contains("user anna@example.com"), "{shown}");
    limit(&space, company, ["--user", "berta", "1G"]).refused("no user 'berta'");
    space.down_and_check();
}

/// Regression: the daemon waits ten seconds for a question, and was connected to before the name was asked for.
#[test]
fn a_name_that_takes_long_to_be_found_is_waited_for() {
    let space = Space::plain();
    let slow = "sleep 11; echo 'anna:*:4711:4711::/:/bin/sh'";
    limit(&space, slow, ["--user", "anna", "1G"]).ok();
    space.down_and_check();
}
