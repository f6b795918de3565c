//! Files that are open in a pool that asks a server, or somebody in user space, who does not answer: to look at one waits for him there.

use crate::limits::bed::limit;
use crate::pools::pool_of;
use crate::remote::{Stopped, beside_one_with, is_answered};
use crate::stuck::{LIVELY, are_answered, assert_transport, open_files, uring_is_on};
use rustix::fs::{AtFlags, CWD};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use ullage_mount_tests::binary;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

/// More than there are threads that answer the kernel, with those that take the place of held ones.
const OPEN: usize = 14;
/// Files for one round of what is asked of the other pool.
const ROUND: usize = 10;
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long the kernel does not know any more what files of the space below look like.
const UNKNOWN: Duration = Duration::from_millis(1200);

/// A space with a pool in another one, and files in both: each of those there in a directory of its own, since the kernel lets nobody make or
/// remove a name in a directory meanwhile.
struct Bed {
    below: Space,
    space: Space,
    far: Vec<PathBuf>,
    lively: Vec<PathBuf>,
}

fn bed(flags: &[&str], files: usize) -> Bed {
    let below = Space::plain();
    let space = beside_one_with(&below, "round-robin", flags);
    fs::create_dir(space.path("lively")).unwrap();
    let names: Vec<PathBuf> = (0..2 * files).map(|n| space.path(format!("lively/{n}"))).collect();
    for name in &names {
        fs::write(name, vec![1; 20_000]).unwrap();
    }
    let (there, lively): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| pool_of(&space, name) == "far");
    assert!(there.len() >= OPEN && lively.len() >= files, "{} and {}", there.len(), lively.len());
    let moved = |(n, name): (usize, PathBuf)| {
        let directory = space.path(format!("far-{n}"));
        fs::create_dir(&directory).unwrap();
        fs::rename(&name, directory.join("file")).unwrap();
        fs::write(directory.join("other"), "other").unwrap();
        directory.join("file")
    };
    let far = there.into_iter().enumerate().map(moved).collect();
    Bed { below, space, far, lively }
}

impl Bed {
    fn end(self) {
        self.space.down_and_check();
        self.below.down_and_check();
    }
}

/// Files that are open and were written to.
fn opened(paths: &[PathBuf]) -> Vec<File> {
    let files: Vec<File> =
        paths.iter().map(|path| File::options().read(true).write(true).open(path).unwrap()).collect();
    for file in &files {
        file.write_all_at(&[2; 10_000], 20_000).unwrap();
    }
    files
}

fn other(path: &Path) -> PathBuf {
    path.with_file_name("other")
}

type Done = fn(&Path) -> io::Result<()>;

/// A name, what is done to such files, and whether it waits for their pool.
type Case = (&'static str, Done, bool);

const DONE: [Case; 7] = [
    ("stat", |path| fs::metadata(path).map(drop), true),
    ("chmod", |path| fs::set_permissions(path, Permissions::from_mode(0o600)), true),
    ("link", |path| fs::hard_link(path, path.with_file_name("link")), true),
    ("open", |path| File::open(path).map(drop), true),
    ("list", |path| list(path.parent().unwrap()), false),
    ("rename", |path| Ok(rustix::fs::renameat(CWD, path, CWD, other(path))?), false),
    ("unlink", |path| Ok(rustix::fs::unlinkat(CWD, other(path), AtFlags::empty())?), false),
];

/// What keeps limits from being set, where there are any.
const KEEPS_LIMITS: [Case; 2] = [
    ("chown", |path| chown(path, Some(77), Some(77)), true),
    ("link", |path| fs::hard_link(path, path.with_file_name("link")), true),
];

fn list(directory: &Path) -> io::Result<()> {
    fs::read_dir(directory)?.try_for_each(|entry| entry.map(drop))
}

fn comes_to_an_end(done: &[JoinHandle<()>], what: &str) {
    eventually(what, PATIENCE, || done.iter().all(JoinHandle::is_finished));
}

fn check(flags: &[&str], transport: &str) {
    let bed = bed(flags, ROUND * DONE.len());
    assert_transport(&bed.space, transport);
    check_each(bed, &DONE);
}

fn check_each(bed: Bed, cases: &[Case]) {
    let paths = &bed.far[..OPEN];
    for (&(name, done, waits), lively) in cases.iter().zip(bed.lively.chunks(ROUND)) {
        // What has no name of its own any more was renamed before.
        let now = |path: &PathBuf| if path.exists() { path.clone() } else { other(path) };
        let files = opened(&paths.iter().map(now).collect::<Vec<_>>());
        if name == "rename" {
            for file in &files {
                file.sync_all().unwrap();
            }
        }
        std::thread::sleep(UNKNOWN);
        let stopped = Stopped::new(bed.below.pid());
        let started = |path: &PathBuf| {
            let path = path.clone();
            std::thread::sleep(Duration::from_millis(30));
            std::thread::spawn(move || done(&path).unwrap())
        };
        let threads: Vec<_> = paths.iter().map(started).collect();
        std::thread::sleep(Duration::from_millis(300));
        are_answered(&LIVELY, lively);
        if waits {
            let hang = threads.iter().all(|thread| !thread.is_finished());
            assert!(hang, "{name} does not wait for the pool: nothing was tested");
        } else {
            comes_to_an_end(&threads, name);
        }
        drop(stopped);
        comes_to_an_end(&threads, name);
        for thread in threads {
            thread.join().unwrap();
        }
        for path in paths.iter().filter(|_| name == "link") {
            fs::remove_file(path.with_file_name("link")).unwrap();
        }
    }
    bed.end();
}

/// Regression: who looks at an open file asks its pool what it looks like now. Ten such files of one that did not answer held all threads that
/// answer the kernel, and nobody was answered any more.
#[test]
fn files_that_are_open_in_a_pool_that_asks_others_stall_nobody_who_wants_nothing_of_them() {
    check(&["--transport", "device"], "/dev/fuse");
}

/// Regression: the same with another transport.
#[test]
fn files_that_are_open_in_a_pool_that_asks_others_stall_nobody_who_wants_nothing_of_them_with_the_crate_fuser() {
    check(&["--transport", "fuser"], "fuser");
}

/// Regression: one such file held the thread of its CPU's queue, whose place nobody can take.
#[test]
fn files_that_are_open_in_a_pool_that_asks_others_stall_nobody_who_wants_nothing_of_them_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring");
    }
}

/// Regression: before a rename the kernel looks up what it replaces, while it keeps all others from renaming anything from one directory to another.
/// That waited for the pool, to say what the file is like.
#[test]
fn who_replaces_a_file_that_is_open_in_a_pool_that_asks_others_keeps_nobody_from_renaming() {
    let bed = bed(&["--transport", "device"], 2 * ROUND);
    let files = opened(&bed.far[..2]);
    let elsewhere = bed.space.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(&bed.lively[0], "new").unwrap();
    std::thread::sleep(UNKNOWN);
    {
        let _stopped = Stopped::new(bed.below.pid());
        let renames = [
            (&bed.lively[0], bed.far[0].clone()),
            (&bed.far[1], elsewhere.join("a")),
            (&bed.lively[1], elsewhere.join("b")),
        ];
        for (from, to) in renames {
            let from = from.clone();
            comes_to_an_end(&[std::thread::spawn(move || fs::rename(from, to).unwrap())], "a rename");
        }
    }
    assert_eq!(fs::read(&bed.far[0]).unwrap(), b"new");
    // What was written to it since is not lost, nor what it is like.
    for file in &files {
        assert_eq!(file.metadata().unwrap().len(), 30_000);
    }
    assert_eq!(fs::read(elsewhere.join("a")).unwrap().len(), 30_000);
    drop(files);
    bed.end();
}

/// Regression: where there is any limit, whoever gave such a file an owner or a name kept others from opening and making files until its pool
/// answered.
#[test]
fn files_that_are_open_in_a_pool_that_asks_others_keep_nobody_from_opening_others_where_there_is_a_limit() {
    let bed = bed(&["--transport", "device"], ROUND * KEEPS_LIMITS.len());
    let limited = bed.space.path("limited");
    fs::create_dir(&limited).unwrap();
    limit(&["1G"], &limited);
    check_each(bed, &KEEPS_LIMITS);
}

/// Regression: where anything is limited a file is measured when it is closed, by the thread that answers the kernel, which waited for its pool.
#[test]
fn files_that_are_closed_below_a_limit_in_a_pool_that_asks_others_stall_nobody_else() {
    let bed = bed(&["--transport", "device"], 2 * ROUND);
    limit(&["1G"], &bed.space.mount);
    let files = opened(&bed.far[..OPEN]);
    std::thread::sleep(UNKNOWN);
    {
        let _stopped = Stopped::new(bed.below.pid());
        for file in files {
            drop(file);
            std::thread::sleep(Duration::from_millis(30));
        }
        std::thread::sleep(Duration::from_millis(300));
        are_answered(&LIVELY, &bed.lively);
    }
    bed.end();
}

/// More than there are threads that may wait.
const MANY: usize = 1100;

/// Regression: the kernel lets go of any number of handles at a time. Those of files in such a pool held all threads that may wait, and nobody who
/// needed one was answered any more.
#[test]
fn a_thousand_files_that_are_closed_in_a_pool_that_asks_others_stall_nobody_else() {
    let mut bed = bed(&["--transport", "device"], 2 * ROUND);
    bed.space.limit(Duration::from_secs(200));
    bed.below.limit(Duration::from_secs(200));
    limit(&["1G"], &bed.space.mount);
    let most = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: most.maximum, ..most }).unwrap();
    let mut files = Vec::new();
    for n in 0.. {
        let path = bed.space.path(format!("lively/many-{n}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"many").unwrap();
        if xattr(&path, "user.ullage.pool") == b"far" {
            files.push(file);
        } else {
            fs::remove_file(path).unwrap();
        }
        if files.len() == MANY {
            break;
        }
    }
    std::thread::sleep(UNKNOWN);
    {
        let _stopped = Stopped::new(bed.below.pid());
        drop(files);
        std::thread::sleep(Duration::from_millis(500));
        are_answered(&LIVELY, &bed.lively);
    }
    bed.end();
}

/// Regression: the thread that measures and closes what was closed waited for the pool of one of those files, and whoever asked what is used, or how
/// a space does, waited for that thread; no file of any pool was closed any more.
#[test]
fn what_was_closed_in_a_pool_that_asks_others_keeps_nobody_from_knowing_what_is_used_and_no_other_file_open() {
    let bed = bed(&[], 2 * ROUND);
    let (pid, mount, one) = (bed.space.pid(), bed.space.mount.as_os_str(), &bed.lively[0]);
    let files = opened(&bed.far[..3]);
    std::thread::sleep(UNKNOWN);
    {
        let _stopped = Stopped::new(bed.below.pid());
        drop(files);
        std::thread::sleep(Duration::from_millis(600));
        for path in &bed.lively {
            fs::write(path, vec![3; 25_000]).unwrap();
        }
        assert!(open_files(pid, &bed.space.pool()) > 0);
        for command in [["status"], ["df"]] {
            is_answered(binary::path().to_str().unwrap(), command.iter().map(OsStr::new).chain([mount]));
        }
        is_answered(binary::path().to_str().unwrap(), ["du".as_ref(), bed.space.path("lively").as_os_str()]);
        for question in ["charge", "used"] {
            let question = format!("user.ullage.{question}");
            let of = if question.ends_with("used") { mount } else { one.as_os_str() };
            is_answered("getfattr", ["-n".as_ref(), question.as_ref(), of]);
        }
        eventually("files of the other pool are closed", PATIENCE, || open_files(pid, &bed.space.pool()) == 0);
    }
    // What is asked for once it answers is right, whoever measures the file; nobody waits for who lets go of a handle.
    let charge = || String::from_utf8(xattr(&bed.far[0], "user.ullage.charge")).unwrap().parse::<usize>().unwrap();
    for n in 1..20 {
        fs::write(&bed.far[0], vec![4; 20_000 * n]).unwrap();
        eventually("what it is charged is known", PATIENCE, || charge() >= 20_000 * n);
    }
    bed.end();
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}
