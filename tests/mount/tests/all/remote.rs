//! A pool on a file system that asks somebody else, who does not answer: a server's, or one in user space.

use crate::hazards::privileges::as_nobody;
use crate::pools::pool_of;
use crate::stuck::comes_to_an_end;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{program, ullage};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::{binary, process};

/// A process that is stopped, until this is dropped.
pub(crate) struct Stopped(u32);

impl Stopped {
    pub(crate) fn new(pid: u32) -> Self {
        process::signal(pid, Signal::STOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        process::signal(self.0, Signal::CONT);
    }
}

/// A space with a pool of its own, `main`, and one in another space, `far`.
fn beside_one_in(below: &Space, spread: &str) -> Space {
    beside_one_with(below, spread, &[])
}

/// The same, started with these flags too.
pub(crate) fn beside_one_with(below: &Space, spread: &str, flags: &[&str]) -> Space {
    let far = below.path("pool");
    fs::create_dir(&far).unwrap();
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools.push(format!("far={}", far.display()));
    space.flags = ["--spread", spread].iter().chain(flags).map(Into::into).collect();
    space.up();
    space.flags.clear();
    space
}

#[track_caller]
pub(crate) fn is_answered<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let status = comes_to_an_end(&mut command.spawn().unwrap(), program);
    assert!(status.success(), "{command:?}");
}

/// Each new file waited for all pools to say what they have free, whichever it was to go to, and so did statfs(2) and `ullage status`.
#[test]
fn a_pool_that_does_not_say_what_it_has_free_keeps_no_file_from_the_others() {
    let below = Space::plain();
    let space = beside_one_in(&below, "first-fit");
    fs::write(space.path("old"), "old").unwrap();
    let free = || rustix::fs::statvfs(&space.mount).unwrap().f_blocks;
    let before = free();
    {
        let _stopped = Stopped::new(below.pid());
        let (new, directory) = (space.path("new"), space.path("directory"));
        is_answered("touch", [&new]);
        is_answered("mkdir", [&directory]);
        is_answered("cp", [&space.path("old"), &directory.join("copy")]);
        is_answered("rm", [&space.path("old")]);
        is_answered("stat", [OsStr::new("-f"), space.mount.as_os_str()]);
        for command in [&["status"][..], &["df"], &["pool", "list"]] {
            let words = command.iter().map(OsStr::new).chain([space.mount.as_os_str()]);
            is_answered(binary::path().to_str().unwrap(), words);
        }
        assert_eq!(pool_of(&space, &directory.join("copy")), "main");
        assert_eq!(free(), before, "what it had when it last said so counts");
    }
    space.down_and_check();
    below.down_and_check();
}

/// Who gives back what was removed asked for what is free wherever anything ever was, and who removed something waited behind that.
#[test]
fn a_pool_that_does_not_say_what_it_has_free_keeps_nothing_removed_from_going() {
    let below = Space::plain();
    let space = beside_one_in(&below, "round-robin");
    let files: Vec<_> = (0..8).map(|n| space.path(n.to_string())).collect();
    for path in &files {
        fs::write(path, vec![1; 2 << 20]).unwrap();
    }
    let (far, near): (Vec<_>, Vec<_>) = files.iter().partition(|path| pool_of(&space, path) == "far");
    assert!(far.len() > 1 && near.len() > 2, "{far:?}, {near:?}");
    let is_written =
        |path: &Path| is_answered("sh", ["-c".as_ref(), "echo more >> $1".as_ref(), "sh".as_ref(), path.as_os_str()]);
    fs::remove_file(far[0]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    fs::remove_file(far[1]).unwrap();
    {
        let _stopped = Stopped::new(below.pid());
        is_written(near[0]);
        // For so long it may be taken for one with room.
        std::thread::sleep(Duration::from_secs(3));
        let new = space.path("new");
        for file in near {
            is_answered("rm", ["-f".as_ref(), file.as_os_str()]);
            std::thread::sleep(Duration::from_millis(200));
            is_written(&new);
        }
        assert_eq!(pool_of(&space, &new), "main");
    }
    space.down_and_check();
    below.down_and_check();
}

/// Regression: a file can be without a name while it is copied on few file systems of servers and in user space, and on others none could go
/// there: a pool was never empty, and a full one had no other.
#[test]
fn files_go_to_a_pool_where_none_can_be_without_a_name() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut below = Space::on(ground, &disk);
    below.flags = ["--transport", "fuser"].map(Into::into).to_vec();
    below.up();
    let space = beside_one_in(&below, "first-fit");
    let files: Vec<_> = (0..20).map(|n| (space.path(format!("file-{n}")), vec![n as u8; 5000 * n])).collect();
    for (path, content) in &files {
        fs::write(path, content).unwrap();
    }
    space.pool_command("remove", &["main"]).ok();
    for (path, content) in &files {
        assert_eq!(pool_of(&space, path), "far");
        assert!(fs::read(path).unwrap() == *content);
    }
    space.down_and_check();
    below.down_and_check();
}

/// What moves in the kernel is opened there in the name of whoever opens it in the space, and with that one's flags. File systems in user space are
/// told of both: mergerfs refused everybody but root, and bindfs, asked for O_TMPFILE on a file, ended.
#[test]
fn everybody_writes_to_a_pool_on_a_file_system_in_user_space() {
    for tool in ["mergerfs", "bindfs"] {
        let mut ground = Ground::new();
        let [below, disk] = ["below", "disk"].map(|name| ground.directory(name));
        program(tool, ["-o".as_ref(), "allow_other".as_ref(), below.as_os_str(), disk.as_os_str()]).ok();
        ground.will_unmount(&disk);
        let mut space = Space::on(ground, &disk);
        space.state = space.ground.join("state");
        space.up();
        assert!(!space.uses_passthrough(), "{tool}");
        fs::set_permissions(&space.mount, Permissions::from_mode(0o777)).unwrap();
        let name = space.path("file");
        assert_eq!(as_nobody("echo content > $1; cat $1", &name), "content\n", "{tool}");
        let mut unnamed = OpenOptions::new();
        unnamed.write(true).custom_flags(libc::O_TMPFILE);
        unnamed.open(&space.mount).unwrap().write_all(b"content").unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"content\n", "{tool}");
        space.down_and_check();
    }
}

/// Whether writes can be refused was tried in the pool that files go to first, where none is made in the kernel: nothing was lent in the others.
#[test]
fn a_pool_whose_data_moves_through_the_server_says_nothing_of_what_the_kernel_can_do() {
    let mut ground = Ground::new();
    let [below, far, disk] = ["below", "far", "disk"].map(|name| ground.directory(name));
    program("bindfs", [&below, &far]).ok();
    ground.will_unmount(&far);
    let mut space = Space::on(ground, &disk);
    space.pools.insert(0, format!("far={}", far.display()));
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    fs::write(space.path("file"), "content").unwrap();
    assert_eq!(pool_of(&space, &space.path("file")), "far");
    let listed = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let mediates = |pool: &Value| {
        let way = pool["ways"].as_array().unwrap().iter().find(|way| way["way"] == "mediated");
        way.unwrap()["used"].as_bool()
    };
    let mediated: Vec<_> = listed["pools"].as_array().unwrap().iter().map(mediates).collect();
    assert_eq!(mediated, [Some(false), Some(true)], "{listed}");
    space.down_and_check();
}
