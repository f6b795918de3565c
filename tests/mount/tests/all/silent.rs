//! A daemon that does not answer, since somebody stopped it: who asks is told so, and need not wait for it.

use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};
use ullage_mount_tests::process;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// Regression: `up` took it for one that had lost its mount; `down` waited without a word, and so did whoever asked of a file, or named a
/// path within the space.
#[test]
fn who_asks_a_daemon_that_was_stopped_is_told_so() {
    let space = Space::plain();
    let file = space.path("directory/file");
    fs::create_dir(space.path("directory")).unwrap();
    fs::write(&file, "content").unwrap();
    let pid = space.pid();
    process::signal(pid, Signal::STOP);
    let why = format!("process {pid}, does not answer: `kill -CONT {pid}`");
    std::thread::scope(|scope| {
        scope.spawn(|| space.try_up().refused(&why));
        scope.spawn(|| space.try_down().refused(&why));
        for command in ["stat", "du", "limit"] {
            let (path, why) = (space.path("directory"), &why);
            scope.spawn(move || ullage([command.as_ref(), path.join("file").as_os_str()]).refused(why));
        }
        for command in
            [&["status"][..], &["df"], &["pool", "list"], &["check"], &["down"], &["down", "--lazy"], &["up"]]
        {
            let (path, why) = (space.path("directory"), &why);
            let words = command.iter().map(AsRef::as_ref);
            scope.spawn(move || ullage(words.chain([path.as_os_str()])).refused(why));
        }
    });
    assert!(is_mounted(&space.mount));
    process::signal(pid, Signal::CONT);
    assert_eq!(fs::read(&file).unwrap(), b"content");
    space.down_and_check();
}

/// Regression: `down --lazy` waited for the daemon too.
#[test]
fn a_space_whose_daemon_was_stopped_is_taken_away_lazily() {
    let space = Space::plain();
    let pid = space.pid();
    process::signal(pid, Signal::STOP);
    let began = Instant::now();
    let said = ullage(["down".as_ref(), "--lazy".as_ref(), space.mount.as_os_str()]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("was taken away, but the daemon"), "{}", said.err);
    assert!(began.elapsed() < Duration::from_secs(20) && !is_mounted(&space.mount));
    process::signal(pid, Signal::CONT);
    process::wait(pid);
    space.check();
}
