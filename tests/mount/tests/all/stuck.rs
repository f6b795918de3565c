//! A pool whose file system does not answer stalls what is about its own files, and nothing else.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// Every operation on the pool that answers is done by then.
const PATIENCE: Duration = Duration::from_secs(10);
const FILES: usize = 64;

/// A space with a pool on ext4 and one on an xfs that can be frozen, with files in both.
pub(crate) struct Bed {
    pub space: Space,
    pub frozen: PathBuf,
    /// Those of the pool that answers, and of the one that does not.
    pub lively: Vec<PathBuf>,
    pub stuck: Vec<PathBuf>,
}

fn bed(flags: &[&str]) -> Bed {
    bed_with(flags, "")
}

/// The same over a transport that the flags are to bring about.
pub(crate) fn bed_over(flags: &[&str], transport: &str) -> Bed {
    let bed = bed(flags);
    assert_transport(&bed.space, transport);
    bed
}

#[track_caller]
pub(crate) fn assert_transport(space: &Space, transport: &str) {
    let status = ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]);
    assert_eq!(status.json()["transport"], transport);
}

/// With a layout of the pool that can be frozen.
fn bed_with(flags: &[&str], layout: &str) -> Bed {
    let mut ground = Ground::new();
    let (disk, frozen) = (ground.ext4("disk", 256), ground.xfs("frozen", 300));
    let mut space = Space::on(ground, &disk);
    space.pools.push(format!("b={}{layout}", frozen.join("pool").display()));
    fs::create_dir(frozen.join("pool")).unwrap();
    space.flags = ["--spread", "round-robin"].iter().chain(flags).map(OsString::from).collect();
    space.up();
    fs::create_dir(space.path("new")).unwrap();
    let (mut lively, mut stuck) = (Vec::new(), Vec::new());
    for n in 0..FILES {
        let path = space.path(format!("file-{n}"));
        fs::write(&path, vec![n as u8; 20_000]).unwrap();
        let is_stuck = space.stat(&path)["pool"].as_str() == Some("b");
        if is_stuck { &mut stuck } else { &mut lively }.push(path);
    }
    rustix::fs::sync();
    // Until what was open is closed.
    std::thread::sleep(Duration::from_secs(3));
    Bed { space, frozen, lively, stuck }
}

/// A file system that answers no call that writes, until this is dropped.
pub(crate) struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    pub(crate) fn new(at: &'a Path) -> Self {
        program("fsfreeze", ["-f".as_ref(), at.as_os_str()]).ok();
        Self(at)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

/// Those that this process may use: in a container they need not begin at 0.
pub(crate) fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Runs a shell command on one CPU; `$1` is the file.
pub(crate) fn on_cpu(cpu: usize, script: &str, file: &Path) -> Child {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "sh", "-c", script, "sh"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Says that it is over, also where a check fails.
pub(crate) struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[track_caller]
pub(crate) fn comes_to_an_end(child: &mut Child, what: &str) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{what} waits for the pool that does not answer");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Files in each of which is so much that none of another kind is as long.
const LENGTH: usize = 3_000;
const MANY: usize = 3_000;

/// Regular files of this length below a directory.
fn count(directory: &Path) -> usize {
    let is_one = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.len() == LENGTH as u64);
    let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    entries.map(|path| if path.is_dir() { count(&path) } else { usize::from(is_one(&path)) }).sum()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

/// Nobody waits for the kernel to forget a file. But each file of the pool that does not answer took a worker to wait for it, up to a
/// thousand, and what belongs on a worker waited behind them; files of the other pool that were forgotten in one message with one of
/// those kept their backing files.
fn check_removed(transport: &str) {
    let bed = bed(&["--transport", transport]);
    fs::create_dir(bed.space.path("many")).unwrap();
    for n in 0..MANY {
        fs::write(bed.space.path(format!("many/{n}")), [1; LENGTH]).unwrap();
    }
    // So that no leaf is marked.
    bed.space.down();
    bed.space.up();
    let (pid, before) = (bed.space.pid(), threads(bed.space.pid()));
    assert!(count(&bed.space.pool()) > MANY / 3);
    {
        let _frozen = Frozen::new(&bed.frozen);
        let mut removes = on_cpu(cpus()[0], r#"rm -r "$1""#, &bed.space.path("many"));
        for file in bed.lively.iter().take(10) {
            comes_to_an_end(&mut on_cpu(cpus()[1 % cpus().len()], r#"echo more >> "$1"; sync "$1""#, file), "fsync(2)");
            std::thread::sleep(Duration::from_millis(100));
        }
        comes_to_an_end(&mut removes, "`rm`");
        eventually("what was removed from the other pool comes free", PATIENCE, || count(&bed.space.pool()) == 0);
        let now = threads(pid);
        assert!(now < before + 40, "{now} threads, {before} before");
    }
    bed.space.down_and_check();
}

#[test]
fn what_is_removed_from_a_stuck_pool_keeps_nobody_from_syncing_or_freeing_room_in_another() {
    check_removed("device");
}

#[test]
fn what_is_removed_from_a_stuck_pool_keeps_nobody_from_syncing_or_freeing_room_with_the_crate_fuser() {
    check_removed("fuser");
}

const HANGING: [&str; 7] = [
    r#"truncate -s 1 "$1""#,
    r#": > "$1""#,
    r#"echo more >> "$1""#,
    r#"exec 3< "$1"; touch -d 2001-01-01 "$1""#,
    r#"rm "$1""#,
    // The kernel lets nobody else make or remove a name in a directory meanwhile.
    r#"for n in 1 2 3 4; do echo new > "${1%/*}/new/${1##*/}-$n"; done"#,
    r#"exec 3< "$1"; cp "$1" /dev/null; echo more >> "$1"; sync "$1""#,
];

pub(crate) const LIVELY: [&str; 5] = [
    r#"cat "$1""#,
    r#"truncate -s 100 "$1""#,
    r#"echo more >> "$1" && sync "$1""#,
    r#"touch -d 2001-01-01 "$1" && stat "$1""#,
    r#"mv "$1" "$1.moved" && rm "$1.moved""#,
];

/// Every kind of call to the frozen pool, from every CPU, and many of each; then one of each kind to the other, on every CPU.
fn check(flags: &[&str], transport: &str, hanging: usize) {
    let bed = bed_over(flags, transport);
    let cpus = cpus();
    let mut waits = Vec::new();
    {
        let _frozen = Frozen::new(&bed.frozen);
        for (n, file) in bed.stuck.iter().take(hanging).enumerate() {
            waits.push(on_cpu(cpus[n / HANGING.len() % cpus.len()], HANGING[n % HANGING.len()], file));
        }
        std::thread::sleep(Duration::from_millis(500));
        // Their files can be asked for too: that may wait, and nobody else then.
        waits.push(on_cpu(cpus[0], r#"stat "$1""#, &bed.stuck[0]));
        waits.push(on_cpu(cpus[1 % cpus.len()], r#"cat "$1""#, &bed.stuck[1]));
        are_answered(&LIVELY, &bed.lively);
        assert!(waits.iter_mut().any(hangs), "nothing hangs: nothing was tested");
    }
    end(bed, waits);
}

fn hangs(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

/// One of each kind of call to files of the pool that answers, or to whatever these scripts are about, on every CPU.
#[track_caller]
pub(crate) fn are_answered(scripts: &[&str], lively: &[PathBuf]) {
    let mut files = lively.iter();
    for &cpu in cpus().iter().take(lively.len() / scripts.len()) {
        for script in scripts {
            let file = files.next().unwrap();
            let what = format!("`{script}` on CPU {cpu}");
            let status = comes_to_an_end(&mut on_cpu(cpu, script, file), &what);
            assert!(status.success(), "{what}: {status}");
        }
    }
}

/// The pool answers again.
#[track_caller]
pub(crate) fn end(bed: Bed, waits: Vec<Child>) {
    for mut child in waits {
        comes_to_an_end(&mut child, "what waited for the pool, which answers again,");
    }
    bed.space.down_and_check();
}

/// Puts so many files of the pool that can be frozen into directories of their own, and has them wait for their times: who opens one has the
/// pool write that first.
fn apart(bed: &Bed, count: usize) -> Vec<PathBuf> {
    let moved = |(n, file): (usize, &PathBuf)| {
        let directory = bed.space.path(format!("apart-{n}"));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        fs::rename(file, &path).unwrap();
        program("touch", ["-c".as_ref(), "-d".as_ref(), "2001-01-01".as_ref(), path.as_os_str()]).ok();
        path
    };
    bed.stuck.iter().enumerate().skip(1).take(count).map(moved).collect()
}

const OPENED: &str = r#"exec 3>> "$1""#;

/// Every rename waited for the thread that keeps the plain tree, and everybody for those.
#[test]
fn a_plain_tree_that_does_not_answer_stalls_no_rename() {
    let bed = bed_with(&["--transport", "device"], ",layout=mirror");
    let (moving, others) = bed.lively.split_at(14);
    for n in 0..4 {
        fs::create_dir(bed.space.path(format!("directory-{n}"))).unwrap();
    }
    rustix::fs::sync();
    std::thread::sleep(Duration::from_millis(500));
    {
        let _frozen = Frozen::new(&bed.frozen);
        fs::create_dir(bed.space.path("behind")).unwrap();
        // Until the thread stands still with that.
        std::thread::sleep(Duration::from_millis(300));
        let into = r#"mv "$1" "${1%/*}/new/""#;
        let mut moves: Vec<Child> = moving.iter().map(|file| on_cpu(cpus()[0], into, file)).collect();
        moves.extend((0..4).map(|n| on_cpu(cpus()[0], into, &bed.space.path(format!("directory-{n}")))));
        for child in &mut moves {
            comes_to_an_end(child, "a rename");
        }
        are_answered(&LIVELY, others);
        assert_eq!(fs::read_dir(bed.space.path("new")).unwrap().count(), 18);
        assert!(!bed.frozen.join("pool/behind").exists(), "it is not frozen: nothing was tested");
    }
    end(bed, Vec::new());
}

/// Each removal held a thread that answers the kernel, until none was left.
#[test]
fn what_is_opened_in_a_stuck_pool_can_be_removed_meanwhile() {
    const COUNT: usize = 14;
    let bed = bed(&["--transport", "device"]);
    let files = apart(&bed, COUNT);
    let mut waits: Vec<Child>;
    {
        let _frozen = Frozen::new(&bed.frozen);
        waits = files.iter().map(|file| on_cpu(cpus()[0], OPENED, file)).collect();
        std::thread::sleep(Duration::from_millis(500));
        assert!(waits.iter_mut().all(hangs), "they do not hang: nothing was tested");
        let mut removals: Vec<Child> = files.iter().map(|file| on_cpu(cpus()[0], r#"unlink "$1""#, file)).collect();
        are_answered(&LIVELY, &bed.lively);
        for child in &mut removals {
            comes_to_an_end(child, "a removal");
        }
    }
    end(bed, waits);
}

/// It stopped the whole mount, and with the first one whoever made a file did so too.
#[test]
fn a_limit_is_refused_while_a_pool_does_not_answer_for_what_is_open_there() {
    let bed = bed(&["--transport", "device"]);
    let files = apart(&bed, 1);
    let directory = bed.space.path("new");
    let limit = || ullage(["limit".as_ref(), directory.as_os_str(), "100M".as_ref()]);
    let mut waits = Vec::new();
    {
        let _frozen = Frozen::new(&bed.frozen);
        // Who writes through the server, as in a pool with little left, is waited for. A pool may have some files ready that nobody waits for.
        let makes = r#"for n in $(seq 400); do : > "${1%/*}/new/${1##*/}-$n"; done"#;
        waits.push(on_cpu(cpus()[0], makes, &bed.stuck[0]));
        std::thread::sleep(Duration::from_millis(500));
        assert!(waits.iter_mut().all(hangs), "it does not hang: nothing was tested");
        // Nothing is open there.
        let others = bed.space.path("apart-1");
        ullage(["limit".as_ref(), others.as_os_str(), "100M".as_ref()]).ok();
        ullage(["limit".as_ref(), others.as_os_str(), "none".as_ref()]).ok();
        waits.push(on_cpu(cpus()[0], OPENED, &files[0]));
        std::thread::sleep(Duration::from_millis(500));
        assert!(waits.iter_mut().all(hangs), "they do not hang: nothing was tested");
        std::thread::scope(|scope| {
            let refused = scope.spawn(limit);
            std::thread::sleep(Duration::from_millis(300));
            are_answered(&LIVELY, &bed.lively);
            refused.join().unwrap().refused("the pool 'b' does not answer");
        });
    }
    for child in &mut waits {
        comes_to_an_end(child, "what waited for the pool, which answers again,");
    }
    limit().ok();
    end(bed, Vec::new());
}

/// Backing files below a directory that a process has open.
pub(crate) fn open_files(pid: u32, below: &Path) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_one = |path: &Path| path.starts_with(below) && fs::metadata(path).is_ok_and(|it| it.len() >= 20_000);
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| is_one(&path))).count()
}

/// The thread that measures and closes what was closed waited for who has one of them, and no file of any pool was closed any more. Nor was
/// anybody answered who asked for `user.ullage.used`, with all the requests of his CPU.
#[test]
fn what_somebody_stands_still_with_keeps_no_file_of_another_pool_open() {
    let bed = bed(&["--transport", "device"]);
    let pid = bed.space.pid();
    let over_and_over = r#"while [ -e "$1" ]; do echo x > "$1"; done"#;
    let mut waits: Vec<Child> = bed.stuck.iter().take(4).map(|file| on_cpu(cpus()[0], over_and_over, file)).collect();
    std::thread::sleep(Duration::from_millis(500));
    {
        let _frozen = Frozen::new(&bed.frozen);
        std::thread::sleep(Duration::from_millis(500));
        for file in &bed.lively {
            comes_to_an_end(&mut on_cpu(cpus()[1 % cpus().len()], r#"echo more >> "$1""#, file), "a write");
        }
        assert!(open_files(pid, &bed.space.pool()) > 0);
        eventually("the files of the other pool are closed", PATIENCE, || open_files(pid, &bed.space.pool()) == 0);
        let asks = r#"getfattr -n user.ullage.used "$1""#;
        comes_to_an_end(&mut on_cpu(cpus()[0], asks, &bed.space.mount), "getfattr(1)");
        for child in &mut waits {
            child.kill().unwrap();
        }
    }
    for child in &mut waits {
        child.wait().unwrap();
    }
    end(bed, Vec::new());
}

/// Whether a thread of a process, of this name, is in this system call.
fn is_in(pid: u32, name: &str, call: libc::c_long) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|entry| entry.path());
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let call = format!("{call} ");
    tasks
        .into_iter()
        .any(|task| read(task.join("comm")).trim() == name && read(task.join("syscall")).starts_with(&call))
}

/// The thread that does it held the file's lock until the pool answered: who removed the file waited for that within the catalog, and a
/// second later everybody for him.
#[test]
fn an_owner_that_cannot_be_noted_in_a_stuck_pool_stalls_nobody() {
    let bed = bed(&["--transport", "device"]);
    bed.space.down();
    let settings = bed.space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("mirror_seconds = 30", "mirror_seconds = 1")).unwrap();
    bed.space.up();
    // Until what comes after a start is mirrored.
    std::thread::sleep(Duration::from_secs(3));
    let pid = bed.space.pid();
    let new: Vec<PathBuf> = (0..4).map(|n| bed.space.path(format!("new/{n}"))).collect();
    for path in &new {
        fs::write(path, "new").unwrap();
    }
    let mut removals: Vec<Child>;
    {
        let _frozen = Frozen::new(&bed.frozen);
        eventually("the owner is to be noted", PATIENCE, || is_in(pid, "mirror", libc::SYS_fsetxattr));
        removals = new.iter().map(|file| on_cpu(cpus()[0], r#"unlink "$1""#, file)).collect();
        // The log is written meanwhile.
        for lively in bed.lively.chunks(10).take(3) {
            are_answered(&LIVELY, lively);
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    for child in &mut removals {
        comes_to_an_end(child, "a removal");
    }
    end(bed, Vec::new());
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests() {
    check(&["--transport", "device"], "/dev/fuse", 28);
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests_below_a_limit() {
    check(&["--transport", "device", "--size", "1G"], "/dev/fuse", 28);
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests_with_the_crate_fuser() {
    check(&["--transport", "fuser"], "fuser", 28);
}

/// Whether the kernel's module has it switched on: a test does not change the machine.
pub(crate) fn uring_is_on() -> bool {
    let on = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value.trim() == "Y");
    if !on {
        eprintln!("skipped: FUSE over io_uring is switched off");
    }
    on
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring", 28);
    }
}
