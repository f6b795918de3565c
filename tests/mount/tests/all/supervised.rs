//! A daemon in the foreground that a supervisor starts again when it dies: what happens to its clients.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ullage_mount_tests::binary;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{LIMIT, eventually, program, run, ullage};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

const NOBODY: u32 = 65534;

/// As a supervisor starts it.
fn start(space: &Space) -> Child {
    let mut command = Command::new(binary::path());
    command.arg("up").arg(&space.mount).arg("--state").arg(&space.state).arg("--foreground");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("it is up", LIMIT, || {
        let status = ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]);
        status.code == Some(0) && status.json()["pid"] == child.id()
    });
    child
}

/// What a supervisor is told next.
fn told(supervisor: &UnixDatagram) -> String {
    let mut said = [0; 64];
    loop {
        match supervisor.recv(&mut said) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            length => return String::from_utf8_lossy(&said[..length.unwrap()]).into_owned(),
        }
    }
}

/// The same, on a machine however busy.
fn told_but_to_wait(supervisor: &UnixDatagram) -> String {
    loop {
        let said = told(supervisor);
        if !said.starts_with("EXTEND_TIMEOUT_USEC=") {
            return said;
        }
    }
}

/// Regressions: the link to the state was made in the background only, so that whoever came after a kill was told that there was no space;
/// `--json` printed nothing; and a supervisor could not know when it was mounted.
#[test]
fn a_space_in_the_foreground_says_when_it_is_up_and_is_found_after_a_kill() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    let supervisor = UnixDatagram::bind(space.ground.join("notify")).unwrap();
    supervisor.set_read_timeout(Some(LIMIT)).unwrap();
    let told = || told_but_to_wait(&supervisor);
    let start = || {
        let mut command = Command::new(binary::path());
        command.args(space.up_arguments()).args(["--foreground", "--json"]);
        command
            .env("NOTIFY_SOCKET", space.ground.join("notify"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut daemon = start();
    assert_eq!(told(), "READY=1");
    assert!(is_mounted(&space.mount));
    daemon.kill().unwrap();
    let said: serde_json::Value = serde_json::from_reader(daemon.stdout.take().unwrap()).unwrap();
    assert_eq!((&said["pid"], &said["mountpoint"]), (&daemon.id().into(), &space.mount.to_str().unwrap().into()));
    daemon.wait().unwrap();
    program("umount", ["-l".as_ref(), space.mount.as_os_str()]).ok();
    ullage(["check".as_ref(), space.mount.as_os_str()]).ok();
    let mut daemon = start();
    assert_eq!(told(), "READY=1");
    process::signal(daemon.id(), Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert!(daemon.wait().unwrap().success());
    // One in the background is nobody's to wait for.
    run(Command::new(binary::path()).arg("up").arg(&space.mount).env("NOTIFY_SOCKET", space.ground.join("notify")))
        .ok();
    space.down_and_check();
    supervisor.set_nonblocking(true).unwrap();
    assert!(supervisor.recv(&mut [0; 64]).is_err());
}

/// Regression: a start or an end that took longer than a supervisor gives, as recovery may and an import, was ended by it, and began anew each time.
#[test]
fn a_supervisor_is_told_to_wait_while_a_start_goes_on() {
    let space = Space::plain();
    space.down();
    let supervisor = UnixDatagram::bind(space.ground.join("notify")).unwrap();
    supervisor.set_read_timeout(Some(LIMIT)).unwrap();
    // It is waited for, for ten seconds.
    let lock = File::open(space.state.join("catalog/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut command = Command::new(binary::path());
    command.args(space.up_arguments()).arg("--foreground").env("NOTIFY_SOCKET", space.ground.join("notify"));
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let said = told(&supervisor);
    let microseconds = said.strip_prefix("EXTEND_TIMEOUT_USEC=").and_then(|text| text.parse::<u64>().ok());
    assert!(microseconds.is_some_and(|more| more > 10_000_000), "{said}");
    assert!(!is_mounted(&space.mount));
    drop(lock);
    assert_eq!(told_but_to_wait(&supervisor), "READY=1");
    process::signal(daemon.id(), Signal::TERM);
    assert_eq!(told_but_to_wait(&supervisor), "STOPPING=1");
    assert!(daemon.wait().unwrap().success());
    space.check();
}

#[test]
fn after_a_restart_paths_work_at_once_and_old_descriptors_as_is_said() {
    let space = Space::new();
    space.down();
    let mut daemon = start(&space);
    let name = space.path("file");
    let old = OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
    old.write_all_at(&[1; 4096], 0).unwrap();
    old.sync_all().unwrap();
    File::open(&space.mount).unwrap().sync_all().unwrap();
    let passthrough = space.uses_passthrough();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let mut daemon = start(&space);
    // By path everything is as before.
    assert_eq!(fs::read(&name).unwrap(), [1; 4096]);
    fs::write(space.path("other"), "new").unwrap();
    // What the server must answer fails on a descriptor of before; what the kernel does alone goes on, in this file.
    assert!(old.sync_all().is_err());
    assert!(old.set_len(10).is_err());
    let written = old.write_all_at(&[2; 4096], 4096);
    assert_eq!(written.is_ok(), passthrough, "{written:?}");
    if passthrough {
        eventually("it is seen in the file", Duration::from_secs(20), || {
            fs::read(&name).is_ok_and(|bytes| bytes == [[1; 4096], [2; 4096]].concat())
        });
    }
    drop(old);
    let again = OpenOptions::new().write(true).open(&name).unwrap();
    again.write_all_at(&[3; 10], 0).unwrap();
    again.sync_all().unwrap();
    drop(again);
    space.compare_du(&space.mount);
    // Without a moment in between: the one that ends is waited for.
    daemon.kill().unwrap();
    let mut last = start_beside(&space, &mut daemon);
    assert_eq!(fs::read_to_string(space.path("other")).unwrap(), "new");
    // A supervisor waits for its child.
    let ended = std::thread::spawn(move || last.wait().unwrap());
    space.down_and_check();
    assert!(ended.join().unwrap().success());
}

/// A space in the foreground is looked at by its daemon, which has that done by a process apart: no signal ends a wait for its own answer.
#[test]
fn who_owns_the_top_directory_of_a_supervised_space_changes_it_before_anybody_has_looked_at_it() {
    let space = Space::plain();
    fs::set_permissions(space.ground.path(), Permissions::from_mode(0o755)).unwrap();
    chown(&space.mount, Some(NOBODY), Some(NOBODY)).unwrap();
    space.down();
    let mut daemon = start(&space);
    let touch =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "touch", "-d", "2020-01-01T00:00:00Z"].map(OsStr::new);
    program("setpriv", touch.into_iter().chain([space.mount.as_os_str()])).ok();
    assert_eq!(fs::metadata(&space.mount).unwrap().mtime(), 1_577_836_800);
    process::signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
    space.check();
}

/// Regression: who was told to end before it had said that it was ready died of that, and left a mount that nobody served.
#[test]
fn a_daemon_that_is_told_to_end_as_soon_as_it_is_mounted_unmounts() {
    let space = Space::plain();
    space.down();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().cycle().take(9) {
        let mut daemon = Command::new(binary::path())
            .args(space.up_arguments())
            .arg("--foreground")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + LIMIT;
        while !is_mounted(&space.mount) {
            assert!(Instant::now() < until, "it is not mounted");
        }
        process::signal(daemon.id(), signal);
        eventually("it ends", LIMIT, || daemon.try_wait().unwrap().is_some());
        assert!(daemon.wait().unwrap().success(), "{signal:?} killed it");
        assert!(!is_mounted(&space.mount), "a mount without a server is left");
    }
    space.check();
}

/// What a server says when it is ready.
fn first_line(server: &mut Child) -> String {
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    said
}

/// Regression: it was ended by the hangup of the terminal that it was started from, though by `nohup`.
#[test]
fn a_daemon_that_was_started_by_nohup_goes_on_after_a_hangup() {
    let space = Space::plain();
    space.down();
    let mut daemon = Command::new("env")
        .arg("--ignore-signal=HUP")
        .arg(binary::path())
        .args(space.up_arguments())
        .args(["--foreground", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    first_line(&mut daemon);
    process::signal(daemon.id(), Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_mounted(&space.mount) && process::runs(daemon.id()));
    process::signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
    space.check();
}

/// Regression: a bank or a store that had just said where it listens died of the signal, without its last snapshot, and of a hangup at any
/// time.
#[test]
fn a_server_that_is_told_to_end_as_soon_as_it_listens_ends_in_order() {
    let ground = Ground::new();
    let place = |name: &str| ground.join(name).to_str().unwrap().to_owned();
    let (pki, accounts, chunks) = (place("pki"), place("accounts"), place("chunks"));
    ullage(["pki", "init", &pki]).ok();
    ullage(["pki", "issue", &pki, "bank0", "--role", "bank", "--host", "127.0.0.1"]).ok();
    ullage(["pki", "issue", &pki, "store-1", "--role", "store", "--host", "127.0.0.1"]).ok();
    let bank = ["bank", "serve", "--name", "bank0", "--directory", &accounts];
    let store = ["store", &chunks, "--name", "store-1", "--bank", "127.0.0.1:1"];
    let signals = [Signal::TERM, Signal::HUP, Signal::INT].into_iter().cycle();
    for (words, signal) in [bank, store].into_iter().cycle().take(18).zip(signals) {
        let mut server = Command::new(binary::path())
            .args(words)
            .args(["--pki", &pki, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = first_line(&mut server);
        process::signal(server.id(), signal);
        eventually("it ends", LIMIT, || server.try_wait().unwrap().is_some());
        assert!(said.contains("listens on") && server.wait().unwrap().success(), "{words:?}: {said}");
    }
}

/// Starts the next one while the killed one may still be ending.
fn start_beside(space: &Space, dying: &mut Child) -> Child {
    let next = start(space);
    dying.wait().unwrap();
    next
}

/// Regression: the kernel's own descriptors go a moment after the last handle's end; `down` did not wait, and the next start
/// went through leaves as after a crash.
#[test]
fn an_orderly_end_leaves_nothing_to_recover() {
    let space = Space::new();
    let path = space.path("file");
    fs::write(&path, "content").unwrap();
    let writer = fs::OpenOptions::new().write(true).open(space.backing(&path)).unwrap();
    let held = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(writer);
    });
    space.down();
    held.join().unwrap();
    space.up();
    assert!(!space.log().contains("unclean"), "{}", space.log());
    // Who goes on holding it does not hold the end up for long, and is looked after.
    let writer = fs::OpenOptions::new().write(true).open(space.backing(&path)).unwrap();
    fs::write(&path, "new content").unwrap();
    let began = std::time::Instant::now();
    space.down();
    assert!(began.elapsed() < Duration::from_secs(10));
    writer.write_all_at(b"NEW", 0).unwrap();
    drop(writer);
    space.up();
    assert!(space.log().contains("unclean"), "{}", space.log());
    assert_eq!(fs::read(&path).unwrap(), b"NEW content");
    space.down_and_check();
}
