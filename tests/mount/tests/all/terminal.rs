//! What a person at a terminal does to commands: leaving off reading, full disks, wrong words.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use ullage_mount_tests::binary;
use ullage_mount_tests::run::{LIMIT, eventually, program, run, ullage};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// Runs a command whose output nobody reads any more.
fn unread(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(binary::path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// `ullage status MNT | head -1` panicked.
#[test]
fn a_closed_pipe_ends_quietly() {
    let space = Space::plain();
    let mount = space.mount.to_str().unwrap();
    let state = space.state.to_str().unwrap();
    for command in [
        &["status", mount][..],
        &["status", mount, "--json"],
        &["df", mount],
        &["du", mount],
        &["stat", mount],
        &["limit", mount],
        &["pool", "list", mount],
        &["completions", "bash"],
        &["bench", "--list"],
        &["--help"],
        &["--version"],
        &["up", "--help"],
    ] {
        assert_eq!(unread(command), (Some(0), String::new()), "{command:?}");
    }
    space.down();
    assert_eq!(unread(&["check", mount, "--state", state]), (Some(0), String::new()));
    // The work is done to its end all the same.
    let (code, said) = unread(&["check", "--repair", mount, "--state", state]);
    assert_eq!((code, said.contains("panicked")), (Some(0), false), "{said}");
    space.check();
}

/// Regression: who ended `ullage up` while its daemon was starting, by closing the terminal for example, had a mount whose server aborted when it was
/// to say that it was ready.
#[test]
fn a_mount_serves_though_nobody_waits_for_it_any_more() {
    let space = Space::plain();
    space.down();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = Command::new(binary::path())
        .args(space.up_arguments())
        .args(["--foreground", "--report-ready"])
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it is mounted", LIMIT, || is_mounted(&space.mount));
    eventually("it is up", LIMIT, || ullage(["status".as_ref(), space.mount.as_os_str()]).code == Some(0));
    std::fs::write(space.path("file"), "content").unwrap();
    assert_eq!(std::fs::read(space.path("file")).unwrap(), b"content");
    let ended = std::thread::spawn(move || daemon.wait().unwrap());
    space.down_and_check();
    assert!(ended.join().unwrap().success());
}

/// `ullage down` of a directory took down the whole space that it was in.
#[test]
fn down_takes_a_mount_point_and_nothing_else() {
    let space = Space::plain();
    let directory = space.path("directory");
    std::fs::create_dir(&directory).unwrap();
    ullage(["down".as_ref(), directory.as_os_str()]).refused("lies in the space at");
    assert!(directory.exists());
    let nothing = space.ground.directory("nothing");
    for command in ["status", "df", "down", "limit"] {
        let said = ullage([command.as_ref(), nothing.as_os_str()]);
        assert_eq!(said.code, Some(1), "{command}: {}", said.out);
        assert!(said.err.contains("no space at") || said.err.contains("not in a mounted space"), "{}", said.err);
    }
}

/// Regression: whoever mounts something says where it comes from, and `down` of the space whose state they named failed: that were still
/// mounted there.
#[test]
fn what_somebody_else_says_to_come_from_the_state_is_no_mount_of_the_space() {
    let space = Space::plain();
    std::fs::set_permissions(space.ground.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let theirs = space.ground.directory("theirs");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let (held, helpers) = UnixStream::pair().unwrap();
    let mut helper = Command::new("setpriv");
    helper.args(["--reuid=65534", "--regid=65534", "--clear-groups", "fusermount3", "-o"]);
    helper.arg(format!("fsname={},subtype=ullage", space.state.display())).arg("--").arg(&theirs);
    assert!(helper.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(helpers)).status().unwrap().success());
    assert!(is_mounted(&theirs));
    let down = space.try_down();
    program("umount", ["-l".as_ref(), theirs.as_os_str()]).ok();
    drop(held);
    down.ok();
    space.check();
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(binary::path()).args(["completions", "zsh"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("ullage: cannot write the output"), "{said}");
}

/// They said that there was no space, and how one is made.
#[test]
fn who_asks_of_a_space_whose_link_leads_to_no_state_is_told_so() {
    let space = Space::plain();
    space.down();
    let away = space.state.with_extension("away");
    std::fs::rename(&space.state, &away).unwrap();
    for words in [&["status"][..], &["df"], &["down"], &["check"], &["check", "--repair"], &["pool", "list"]] {
        ullage(words.iter().map(AsRef::as_ref).chain([space.mount.as_os_str()]))
            .refused("mount the disk that it is on");
    }
    std::fs::rename(&away, &space.state).unwrap();
    space.up();
    space.down_and_check();
}

/// Regression: the link was replaced, though only the disk of the state was not mounted yet.
#[test]
fn a_link_to_a_state_that_is_not_there_is_not_replaced() {
    let space = Space::plain();
    space.down();
    let link = space.mount.with_extension("ullage");
    assert_eq!(std::fs::read_link(&link).unwrap(), space.state);
    let (away, other) = (space.state.with_extension("away"), space.ground.join("other"));
    std::fs::rename(&space.state, &away).unwrap();
    let pool = space.ground.directory("other-pool");
    for state in [&link, &other] {
        run(Command::new(binary::path())
            .arg("up")
            .arg(&space.mount)
            .arg("--state")
            .arg(state)
            .arg(format!("--pool=main={}", pool.display())))
        .refused("mount the disk that it is on");
    }
    assert_eq!(std::fs::read_link(&link).unwrap(), space.state);
    assert!(!other.exists());
    // Who names another state that is there is told what becomes of the link.
    let up = |state: &std::path::Path| {
        ullage(["up".as_ref(), space.mount.as_os_str(), "--state".as_ref(), state.as_os_str()])
    };
    let said = up(&away);
    assert!(said.code == Some(0) && said.err.contains("which is not there, and leads to"), "{}", said.err);
    space.down();
    std::fs::rename(&away, &space.state).unwrap();
    up(&space.state).ok();
    space.down();
    assert_eq!(up(&space.state).err, "");
    space.down_and_check();
}

/// A first `up` that was refused left its mount point and an empty state behind.
#[test]
fn an_up_that_is_refused_leaves_nothing_behind() {
    let space = Space::plain();
    let ground = space.ground.path();
    let (mount, state) = (ground.join("other/mnt"), ground.join("other.state"));
    run(Command::new(binary::path())
        .arg("up")
        .arg(&mount)
        .arg("--state")
        .arg(&state)
        .args(["--pool", "a=/nowhere/at/all"]))
    .refused("/nowhere/at/all");
    assert!(!mount.exists() && !state.exists());
}
