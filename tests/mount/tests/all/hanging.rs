//! A pool whose disk stops answering while it is in use stalls who needs that disk, and nobody else.

use crate::frozen::{NAMES, directories};
use crate::limits::bed::limited;
use crate::stuck::{Ends, LIVELY, are_answered, assert_transport, cpus, on_cpu, uring_is_on};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use ullage_mount_tests::crash::cache::CachingDisk;
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{eventually, program, unmount};
use ullage_mount_tests::space::Space;

const FILES: usize = 128;

/// Files below a directory that are in the pool on this disk, or not.
fn in_pool<'a>(space: &'a Space, directory: &'a str, on_disk: bool) -> impl Iterator<Item = PathBuf> + 'a {
    let entries = fs::read_dir(space.path(directory)).unwrap().flatten().map(|entry| entry.path());
    entries.filter(move |path| (space.stat(path)["pool"].as_str() == Some("b")) == on_disk)
}

/// Opens one file after the other, and so has their pool called, as none is open any more: what was answered a moment ago is called by who answers.
fn keep_opening(files: &[PathBuf], over: &AtomicBool) {
    for file in files.iter().take_while(|_| !over.load(Relaxed)) {
        File::open(file).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A space with a pool on a disk that can hang, and what of it was read since the disk was mounted, what was not, and what lies elsewhere.
struct Bed {
    space: Space,
    disk: CachingDisk,
    warm: Vec<PathBuf>,
    cold: Vec<PathBuf>,
    lively: Vec<PathBuf>,
}

fn bed(flags: &[&str], alone: bool) -> Bed {
    let mut ground = Ground::new();
    let plain = ground.ext4("plain", 256);
    // Each inode in a block of its own: what is read of one file brings in nothing of another.
    let inodes = ["-q", "-F", "-b", "4096", "-I", "4096", "-N", "8192"];
    let (disk, point) = CachingDisk::mounted(&mut ground, 256, "mkfs.ext4", &inodes);
    let mut space = Space::on(ground, &plain);
    fs::create_dir(point.join("pool")).unwrap();
    if alone {
        space.pools.clear();
    }
    space.pools.push(format!("b={}", point.join("pool").display()));
    space.flags = ["--spread", "round-robin"].iter().chain(flags).map(Into::into).collect();
    space.up();
    for directory in ["warm", "cold", "colder", "lively"] {
        fs::create_dir(space.path(directory)).unwrap();
        // Long enough to be read ahead of, which the kernel does only while few requests of its own wait.
        let script = format!("for n in $(seq {FILES}); do head -c 32768 /dev/zero > $1/$n; done");
        program("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), space.path(directory).as_os_str()]).ok();
    }
    let warm: Vec<PathBuf> = in_pool(&space, "warm", true).collect();
    let cold: Vec<PathBuf> = in_pool(&space, "cold", true).chain(in_pool(&space, "colder", true)).collect();
    let lively = if alone { directories(&space, 1) } else { in_pool(&space, "lively", false).collect() };
    space.down();
    // Nothing of it is in memory then.
    unmount(&point);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let options = "loop,inode_readahead_blks=0";
    program("mount", ["-o".as_ref(), options.as_ref(), disk.device().as_os_str(), point.as_os_str()]).ok();
    space.up();
    for file in &warm {
        fs::read(file).unwrap();
    }
    space.down();
    // What was read ahead of them from the disk itself.
    rustix::fs::fadvise(File::open(disk.device()).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    space.up();
    Bed { space, disk, warm, cold, lively }
}

/// Where the pool has no other beside it, names are what others ask for.
fn check(flags: &[&str], transport: &str, alone: bool) {
    let Bed { space, disk, warm, cold, lively } = bed(flags, alone);
    let scripts = if alone { NAMES } else { LIVELY };
    assert_transport(&space, transport);

    let (over, mut waits) = (AtomicBool::new(false), Vec::<Child>::new());
    std::thread::scope(|scope| {
        scope.spawn(|| keep_opening(&warm, &over));
        // Also where a check fails: the other thread ends then.
        let _ends = Ends(&over);
        std::thread::sleep(Duration::from_millis(100));
        let _hanging = disk.hang();
        // Of files that are known the disk's blocks are forgotten all the same where memory is short.
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        waits.extend(cpus().into_iter().take(8).zip(&cold).map(|(cpu, file)| on_cpu(cpu, r#"cat "$1""#, file)));
        std::thread::sleep(Duration::from_millis(100));
        are_answered(&scripts, &lively);
        assert!(waits.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "who needs the disk waits for it");
    });
    for mut child in waits {
        eventually("what waited for the disk goes on", Duration::from_secs(10), || child.try_wait().unwrap().is_some());
    }
    space.down_and_check();
}

/// Of the memory that a daemon may have not much is left, whose process this gives.
fn bound_memory(space: &Space) -> u32 {
    let pid = space.pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    program("prlimit", [format!("--pid={pid}"), format!("--as={}:", (size + (16 << 10)) << 10)]).ok();
    pid
}

/// More reads of pages wait for the disk than the kernel lets be under way at once by itself; others are answered all the same.
///
/// Regression: the kernel sent no requests of its own any more, of any file, while 64 waited (with the crate 16).
fn check_reads(flags: &[&str]) {
    let Bed { space, disk, cold, lively, .. } = bed(flags, false);
    let files: Vec<File> = cold.iter().map(|path| File::open(path).unwrap()).collect();
    assert!(files.len() > 100, "{}", files.len());
    std::thread::scope(|scope| {
        let hanging = disk.hang();
        let reading: Vec<_> =
            files.iter().map(|file| scope.spawn(|| file.read_at(&mut [0; 4096], 0).unwrap())).collect();
        std::thread::sleep(Duration::from_millis(500));
        let waiting = reading.iter().filter(|reading| !reading.is_finished()).count();
        assert!(waiting > 64, "who needs the disk waits for it: {waiting} of {}", files.len());
        // Of a file that is read as a whole at once the kernel reads nothing ahead.
        let (pieces, others) = lively.split_at(lively.len() / 2);
        are_answered(&[r#"dd if="$1" of=/dev/null bs=4096"#], pieces);
        are_answered(&LIVELY, others);
        drop(hanging);
    });
    drop(files);
    space.down_and_check();
}

#[test]
fn a_disk_that_hangs_as_files_are_read_stalls_only_who_needs_it() {
    check_reads(&["--transport", "device", "--no-passthrough"]);
}

#[test]
fn a_disk_that_hangs_as_files_are_read_stalls_only_who_needs_it_with_the_crate_fuser() {
    check_reads(&["--transport", "fuser", "--no-passthrough"]);
}

#[test]
fn a_disk_that_hangs_as_files_are_opened_stalls_only_who_needs_it() {
    check(&["--transport", "device"], "/dev/fuse", false);
}

#[test]
fn a_disk_of_an_only_pool_that_hangs_stalls_only_who_needs_it() {
    check(&["--transport", "device"], "/dev/fuse", true);
}

/// The thread of a CPU's queue opened the file itself, as the pool had answered a moment ago, and all requests of that CPU waited for the disk.
#[test]
fn a_disk_that_hangs_as_files_are_opened_stalls_only_who_needs_it_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring", false);
    }
}

/// As it is the only one the queue's thread waited for the disk to open a file.
#[test]
fn a_disk_of_an_only_pool_that_hangs_stalls_only_who_needs_it_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring", true);
    }
}

/// He waited until all pools were written out, with everybody who writes, and that was to come to an end with a disk of which he wanted nothing.
#[test]
fn a_disk_that_hangs_keeps_nobody_from_being_refused_in_another_pool() {
    if !has_btrfs() {
        return;
    }
    let mut ground = Ground::new();
    let plain = ground.ext4("plain", 256);
    let (disk, point) = CachingDisk::mounted(&mut ground, 512, "mkfs.btrfs", &["-q", "-f"]);
    let mut space = Space::on(ground, &plain);
    fs::create_dir(point.join("pool")).unwrap();
    space.pools.push(format!("b={},reserve=64M", point.join("pool").display()));
    space.flags = ["--spread", "round-robin"].map(Into::into).to_vec();
    space.up();
    let dir = limited(&space, "box", 64 << 20);
    (0..16).for_each(|n| drop(File::create(dir.join(n.to_string())).unwrap()));
    for path in in_pool(&space, "box", true).take(1) {
        fs::write(path, vec![1; 32 << 20]).unwrap();
    }
    let writes = |path: PathBuf| File::options().write(true).open(path).unwrap();
    let files: Vec<File> = in_pool(&space, "box", false).take(2).map(writes).collect();
    assert_eq!(files.len(), 2);
    std::thread::sleep(Duration::from_secs(3));
    std::thread::scope(|scope| {
        let hanging = disk.hang();
        let allocate = |file: &File| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 768 << 20);
        let refused: Vec<_> = files.iter().map(|file| scope.spawn(move || allocate(file))).collect();
        eventually("who wants nothing of that disk is refused", Duration::from_secs(10), || {
            refused.iter().all(ScopedJoinHandle::is_finished)
        });
        drop(hanging);
        for outcome in refused {
            outcome.join().unwrap().unwrap_err();
        }
    });
    drop(files);
    space.down_and_check();
}

/// The whole connection was broken off where there was no memory for one more entry of a queue.
#[test]
fn a_queue_without_memory_for_more_goes_on_with_what_it_has() {
    if !uring_is_on() {
        return;
    }
    let Bed { space, disk, cold, .. } = bed(&["--transport", "io-uring", "--no-passthrough"], false);
    assert_transport(&space, "io_uring");
    let files: Vec<File> = cold.iter().map(|path| File::open(path).unwrap()).collect();
    std::thread::scope(|scope| {
        let hanging = disk.hang();
        let pid = bound_memory(&space);
        let reading: Vec<_> = files.iter().map(|file| scope.spawn(|| file.read_at(&mut [0; 4096], 0))).collect();
        std::thread::sleep(Duration::from_secs(1));
        drop(hanging);
        for read in reading {
            read.join().unwrap().unwrap();
        }
        program("prlimit", [format!("--pid={pid}"), "--as=unlimited:".into()]).ok();
    });
    assert!(space.log().contains("no more requests at once"), "it was not put to the test:\n{}", space.log());
    drop(files);
    space.down_and_check();
}
