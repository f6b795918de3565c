//! Other spaces, other people's links and files, and other mounts, where a space's own are looked for.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

const NOBODY: u32 = 65534;

fn words<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> Outcome {
    ullage(words.map(|word| word.as_ref().to_owned()))
}

/// A second space of which nothing is left to the first one's.
fn up(ground: &mut Ground, point: &Path, pool: &Path) {
    fs::create_dir_all(pool).unwrap();
    ground.will_unmount(point);
    words([&"up", &point, &"--pool", &format!("p={}", pool.display())]).ok();
}

/// Regression: commands went by the path that a mount says it comes from. After the directory above it was renamed and another space made
/// where it had been, a limit on a directory of the old one bounded one of the new one, and the old one's end took the new one's socket.
#[test]
fn a_space_whose_directory_was_renamed_is_not_taken_for_the_one_in_its_old_place() {
    let mut ground = Ground::new();
    let (srv, before) = (ground.directory("srv"), ground.join("srv.before"));
    let (point, moved) = (srv.join("space"), before.join("space"));
    let pools = [ground.join("pa"), ground.join("pb")];
    up(&mut ground, &point, &pools[0]);
    fs::create_dir(point.join("old")).unwrap();
    fs::rename(&srv, &before).unwrap();
    fs::create_dir(&srv).unwrap();
    ground.will_unmount(&moved);
    up(&mut ground, &point, &pools[1]);
    fs::create_dir(point.join("precious")).unwrap();
    words([&"limit", &moved.join("old"), &"1M"]).ok();
    fs::write(point.join("precious/file"), vec![1; 4 << 20]).unwrap();
    fs::write(moved.join("old/file"), vec![1; 4 << 20]).unwrap_err();
    unmount(&moved);
    eventually("the old one ends", Duration::from_secs(20), || !before.join("space.ullage/control.sock").exists());
    words([&"status", &point]).ok();
    words([&"down", &point]).ok();
}

/// Regression: what was bound from a space was unmounted in its place, where it was covered or gone.
#[test]
fn what_is_bound_from_a_space_stays_when_the_space_itself_is_covered() {
    let mut space = Space::plain();
    let (home, bound) = (space.path("home"), space.ground.directory("bound"));
    fs::create_dir(&home).unwrap();
    program("mount", ["--bind".as_ref(), home.as_os_str(), bound.as_os_str()]).ok();
    space.ground.will_unmount(&bound);
    let pid = space.pid();
    program("mount", ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), space.mount.as_os_str()]).ok();
    process::signal(pid, Signal::TERM);
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_mounted(&bound) && process::runs(pid));
    unmount(&space.mount);
    unmount(&bound);
    space.down_and_check();
}

/// Regression: the kernel has no number for a process of another container, and who had none was not answered.
#[test]
fn a_daemon_in_a_process_namespace_of_its_own_is_asked_from_outside() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    let arguments = space.up_arguments();
    let mut inside = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(ullage_mount_tests::binary::path())
        .args(&arguments)
        .arg("--foreground")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ask = || words([&"status", &space.mount, &"--state", &space.state, &"--json"]);
    // It listens a moment after it is mounted.
    eventually("it is up", Duration::from_secs(20), || ask().code == Some(0));
    let status = ask().json();
    assert_eq!(status["mountpoint"], space.mount.to_str().unwrap());
    words([&"down", &space.mount, &"--state", &space.state]).ok();
    assert!(inside.wait().unwrap().success() && !is_mounted(&space.mount));
}

/// Regression: a stranger who asked for the end all the time, and read the answers slowly, kept root's daemon from ending.
#[test]
fn who_may_not_end_a_space_does_not_keep_it_from_ending() {
    let space = Space::plain();
    let ends = AtomicBool::new(false);
    let socket = space.state.join("control.sock");
    std::thread::scope(|scope| {
        for at in 0..8 {
            let (socket, ends) = (&socket, &ends);
            scope.spawn(move || {
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).unwrap();
                let Ok(mut stream) = UnixStream::connect(socket) else { return };
                stream.set_nonblocking(true).unwrap();
                std::thread::sleep(Duration::from_millis(300 * at));
                while !ends.load(Relaxed) {
                    while stream.write(&b"{\"ask\":\"down\",\"lazy\":false}\n".repeat(200)).is_ok_and(|sent| sent > 0) {
                    }
                    std::thread::sleep(Duration::from_secs(2));
                    let _ = stream.read(&mut vec![0; 190_000]);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        let began = Instant::now();
        let said = space.try_down();
        ends.store(true, Relaxed);
        assert!(said.code == Some(0) && began.elapsed() < Duration::from_secs(30), "{}", said.err);
    });
    space.check();
}

/// Regression: `down` said that it was done, and a dead mount stayed.
#[test]
fn a_daemon_that_is_killed_while_it_is_asked_to_end_leaves_no_mount() {
    let space = Space::plain();
    let pid = space.pid();
    process::signal(pid, Signal::STOP);
    std::thread::scope(|scope| {
        let down = scope.spawn(|| space.try_down());
        std::thread::sleep(Duration::from_secs(1));
        process::signal(pid, Signal::KILL);
        down.join().unwrap().ok();
    });
    assert!(!is_mounted(&space.mount));
    space.check();
}

/// Regression: `up` waited for ever for another space's daemon that had been stopped.
#[test]
fn a_space_is_not_started_over_or_upon_one_that_does_not_answer() {
    let space = Space::plain();
    let (pool, state) = (space.ground.directory("q"), space.ground.join("other"));
    fs::create_dir(space.path("inner")).unwrap();
    let pid = space.pid();
    process::signal(pid, Signal::STOP);
    let why = format!("process {pid}, does not answer");
    std::thread::scope(|scope| {
        let pools = [(&space.mount, pool.clone()), (&space.ground.join("m2"), space.path("inner"))];
        for (point, pool) in pools.map(|(point, pool)| (point.clone(), pool)) {
            let (why, state) = (&why, &state);
            scope.spawn(move || {
                words([&"up", &point, &"--state", state, &"--pool", &format!("q={}", pool.display())]).refused(why);
            });
        }
    });
    process::signal(pid, Signal::CONT);
    words([&"up", &space.mount, &"--state", &state, &"--pool", &format!("q={}", pool.display())])
        .refused("another space is mounted at");
    assert!(!state.exists());
    space.down_and_check();
}

/// Regression: a directory that was named as the state was given another mode, the sticky bit of /tmp taken away.
#[test]
fn a_directory_that_is_named_as_the_state_keeps_its_mode() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    fs::create_dir(&space.state).unwrap();
    fs::set_permissions(&space.state, Permissions::from_mode(0o1777)).unwrap();
    space.try_up().refused("everybody may write in");
    fs::set_permissions(&space.state, Permissions::from_mode(0o700)).unwrap();
    let said = space.try_up();
    assert!(said.err.contains("chmod a+x"), "{}", said.err);
    said.ok();
    assert_eq!(fs::metadata(&space.state).unwrap().permissions().mode() & 0o7777, 0o700);
    space.down_and_check();
}

/// Regression: root's commands read a user's settings without bounds: a pipe held them for ever, /dev/zero took all memory.
#[test]
fn settings_that_are_no_file_are_not_read() {
    let space = Space::plain();
    space.down();
    let (settings, kept) = (space.state.join("space.toml"), space.state.join("kept"));
    fs::rename(&settings, &kept).unwrap();
    for odd in ["pipe", "/dev/zero"] {
        if odd == "pipe" {
            program("mkfifo", [&settings]).ok();
        } else {
            symlink(odd, &settings).unwrap();
        }
        for command in ["up", "check"] {
            words([&command, &space.mount, &"--state", &space.state]).refused("it is no file");
        }
        fs::remove_file(&settings).unwrap();
    }
    fs::rename(&kept, &settings).unwrap();
    space.check();
}

/// Regression: a link that a user had made in the place of a state led root to another of root's spaces.
#[test]
fn a_users_link_in_the_place_of_a_state_is_not_followed_by_root() {
    let space = Space::plain();
    space.down();
    let home = space.ground.directory("home");
    let (point, link) = (home.join("space"), home.join("space.ullage"));
    symlink(&space.state, &link).unwrap();
    lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    words([&"up", &point]).refused("belongs to user 65534");
    assert!(!is_mounted(&point));
    space.check();
}

/// Regression: the directories that were made for its state stayed.
#[test]
fn a_first_start_that_is_refused_leaves_no_directory_above_its_state() {
    let ground = Ground::new();
    let there = ground.directory("there");
    for point in [ground.join("new/deep/m"), there.join("m")] {
        words([&"up", &point, &"--pool", &"p=/nonexistent"]).refused("/nonexistent");
    }
    assert!(!ground.join("new").exists() && fs::read_dir(&there).unwrap().next().is_none());
}

/// Regression: starts that were refused left directories, a log, or a space that could not be made any more.
#[test]
fn a_start_that_is_refused_changes_nothing() {
    let ground = Ground::new();
    let [state, pool, point, deep] = ["state", "p", "m", "a/b/c"].map(|name| ground.join(name));
    fs::create_dir(&pool).unwrap();
    let pooled = format!("p={}", pool.display());
    let listed = || program("find", [ground.path()]).ok();
    let before = listed();
    words([&"up", &point, &"--state", &state, &"--pool", &pooled, &"--size", &"15E"]).refused("too large");
    assert_eq!(listed(), before);
    words([&"up", &deep, &"--state", &state, &"--pool", &"p=/nonexistent"]).refused("/nonexistent");
    assert_eq!(listed(), before);
    words([&"up", &point, &"--state", &pool, &"--pool", &pooled]).refused("");
    assert_eq!(listed(), before);
    fs::create_dir(&point).unwrap();
    fs::create_dir(&state).unwrap();
    for theirs in [&state, &pool] {
        std::os::unix::fs::chown(theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let before = listed();
    let binary = ullage_mount_tests::binary::path();
    let up: [&OsStr; 7] = [
        binary.as_ref(),
        "up".as_ref(),
        point.as_ref(),
        "--state".as_ref(),
        state.as_ref(),
        "--pool".as_ref(),
        pooled.as_ref(),
    ];
    ullage_mount_tests::run::by_user(NOBODY, up).refused("is not yours to write in");
    assert_eq!(listed(), before);
}
