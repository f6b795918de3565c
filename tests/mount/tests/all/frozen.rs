//! A pool whose file system is frozen while it is in use, as for a snapshot, stalls what is about its own files, and nothing else.

use crate::stuck::{Ends, Frozen, LIVELY, are_answered, assert_transport, bed_over, cpus, end, uring_is_on};
use std::fs::{self, FileTimes, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

/// Each time other files are asked for.
const ROUNDS: usize = 3;

/// Calls to the pool without a pause, by a thread of one CPU.
fn keep_busy(file: &Path, cpu: usize, over: &AtomicBool) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    while !over.load(Relaxed) {
        let file = OpenOptions::new().write(true).truncate(true).open(file).unwrap();
        file.set_len(100).unwrap();
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
    }
}

/// Freezes a file system again and again while files on it are in use on every CPU; what the scripts do meanwhile with others is answered.
fn freeze_in_use(point: &Path, busy: &[PathBuf], scripts: &[&str], others: &[PathBuf]) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (cpu, file) in cpus().into_iter().take(8).zip(busy) {
            let over = &over;
            scope.spawn(move || keep_busy(file, cpu, over));
        }
        // Also where a check fails: they end then.
        let _ends = Ends(&over);
        for round in others.chunks(others.len() / ROUNDS).take(ROUNDS) {
            std::thread::sleep(Duration::from_millis(100));
            let _frozen = Frozen::new(point);
            are_answered(scripts, round);
        }
    });
}

fn check(flags: &[&str], transport: &str) {
    let bed = bed_over(flags, transport);
    freeze_in_use(&bed.frozen, &bed.stuck, &LIVELY, &bed.lively);
    end(bed, Vec::new());
}

/// What needs the catalog alone.
pub(crate) const NAMES: [&str; 5] = [
    r#"stat "$1" && ls -l "$1""#,
    r#"mkdir "$1/directory" && mkfifo "$1/fifo" && ln -s fifo "$1/link""#,
    r#"mv "$1" "$1.moved" && rmdir "$1.moved""#,
    r#"chmod 700 "$1" && touch -d 2001-01-01 "$1""#,
    r#"ln "${1%/*}/../kept" "$1/linked" && rm "$1/linked""#,
];

/// Directories for these, and a file for other names, in a space: so many for each CPU.
pub(crate) fn directories(space: &Space, rounds: usize) -> Vec<PathBuf> {
    fs::write(space.path("kept"), "data").unwrap();
    let count = rounds * NAMES.len() * cpus().len().min(8);
    let made = (0..count).map(|n| space.path(format!("names/{n}")));
    made.inspect(|directory| fs::create_dir_all(directory).unwrap()).collect()
}

/// The only pool is frozen, and the catalog lies elsewhere.
fn check_alone(flags: &[&str], transport: &str) {
    let mut ground = Ground::new();
    let (disk, frozen) = (ground.ext4("disk", 256), ground.xfs("frozen", 300));
    let mut space = Space::on(ground, &frozen);
    space.state = disk.join("state");
    space.flags = flags.iter().map(Into::into).collect();
    space.up();
    assert_transport(&space, transport);
    let busy: Vec<PathBuf> = (0..8).map(|n| space.path(format!("busy-{n}"))).collect();
    for file in &busy {
        fs::write(file, "data").unwrap();
    }
    let directories = directories(&space, ROUNDS);
    std::thread::sleep(Duration::from_secs(3));
    freeze_in_use(&frozen, &busy, &NAMES, &directories);
    space.down_and_check();
}

#[test]
fn an_only_pool_that_is_frozen_in_use_stalls_only_what_is_about_its_files() {
    check_alone(&["--transport", "device"], "/dev/fuse");
}

/// As it is the only one the thread of a CPU's queue made such calls itself.
#[test]
fn an_only_pool_that_is_frozen_in_use_stalls_only_what_is_about_its_files_over_io_uring() {
    if uring_is_on() {
        check_alone(&["--transport", "io-uring"], "io_uring");
    }
}

#[test]
fn a_pool_that_is_frozen_in_use_stalls_only_its_own_requests() {
    check(&["--transport", "device"], "/dev/fuse");
}

/// The thread of a CPU's queue made such calls itself, as they had been answered a moment ago, and all requests of that CPU waited for the thaw.
#[test]
fn a_pool_that_is_frozen_in_use_stalls_only_its_own_requests_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring");
    }
}
