//! Many who ask at one time, or never come to the end of it.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{LIMIT, eventually, ullage};
use ullage_mount_tests::space::Space;
use ullage_posix_tests::check::{ALICE, as_user};

/// Regression: whoever asked a daemon that was stopped waited for ever, and was not told for what.
#[test]
fn a_daemon_that_does_not_answer_is_named() {
    let space = Space::plain();
    let pid = space.pid();
    process::signal(pid, Signal::STOP);
    let asked: Vec<_> = std::thread::scope(|scope| {
        let ask = |command| ullage([OsStr::new(command), space.mount.as_os_str()]);
        let asking = ["status", "df", "limit"].map(|command| scope.spawn(move || ask(command)));
        asking.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    process::signal(pid, Signal::CONT);
    for outcome in asked {
        outcome.unwrap().refused(&format!("process {pid}, does not answer: `kill -CONT {pid}`"));
    }
    space.down_and_check();
}

fn line(stream: &UnixStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

/// Regression: anybody could take all threads and descriptors of the process that serves everybody.
#[test]
fn one_user_has_few_connections_and_others_do_not_wait_for_them() {
    let space = Space::plain();
    let socket = space.state.join("control.sock");
    let connect = |count| as_user(ALICE, || Ok((0..count).map(|_| UnixStream::connect(&socket).unwrap()).collect()));
    let many: Vec<UnixStream> = connect(12).unwrap();
    let (inside, outside) = many.split_at(8);
    for stream in outside {
        assert!(line(stream).contains("too many connections"));
    }
    ullage(["df".as_ref(), space.mount.as_os_str()]).ok();
    for mut stream in inside {
        stream.write_all(b"{\"ask\":\"df\"}\n").unwrap();
        assert!(line(stream).contains("\"total\""));
    }
    drop(many);
    eventually("the user may ask again", LIMIT, || {
        let one: Vec<UnixStream> = connect(1).unwrap();
        let _ = (&one[0]).write_all(b"{\"ask\":\"df\"}\n");
        line(&one[0]).contains("\"total\"")
    });
    space.down_and_check();
}
