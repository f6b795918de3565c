//! What stat(2) says while data moves in the kernel.

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

#[test]
fn stat_after_every_write_is_exact_for_all() {
    let space = Space::new();
    let name = space.path("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
    let mut last = SystemTime::UNIX_EPOCH;
    for n in 1..300u64 {
        file.write_all_at(&[1; 100], (n - 1) * 100).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().len(), n * 100, "by name");
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), n * 100, "by descriptor");
        assert!(meta.modified().unwrap() >= last, "time goes back");
        last = meta.modified().unwrap();
    }
    let size = program("stat", ["-c".as_ref(), "%s".as_ref(), name.as_os_str()]).ok();
    assert_eq!(size.trim(), "29900");
    assert_eq!(space.stat(&name)["size"], 29900);
    drop(file);
    space.down_and_check();
}

#[test]
fn a_write_moves_the_time_at_once() {
    let space = Space::new();
    let name = space.path("file");
    let mut file = File::create(&name).unwrap();
    file.write_all(b"x").unwrap();
    let past = SystemTime::now() - Duration::from_secs(86400);
    file.set_times(FileTimes::new().set_modified(past)).unwrap();
    assert_eq!(fs::metadata(&name).unwrap().modified().unwrap(), past);
    file.write_all(b"y").unwrap();
    std::thread::sleep(Duration::from_millis(15));
    assert!(fs::metadata(&name).unwrap().modified().unwrap() > past + Duration::from_secs(3600));
    drop(file);
    space.down_and_check();
}

#[test]
fn times_that_were_set_stay_after_close_settling_and_restart() {
    let space = Space::new();
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let times = FileTimes::new().set_modified(past).set_accessed(past);
    let (a, b, c) = (space.path("written-then-set"), space.path("set-after-close"), space.path("set-while-mapped"));
    let mut file = File::create(&a).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    file.set_times(times).unwrap();
    drop(file);
    fs::write(&b, "content").unwrap();
    program("touch", ["-d".as_ref(), "@1000000000.123456789".as_ref(), b.as_os_str()]).ok();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&c).unwrap();
    file.set_len(8192).unwrap();
    let map = ullage_mount_tests::map::Map::new(&file, 8192).unwrap();
    file.set_times(times).unwrap();
    drop((file, map));
    let look = |when: &str| {
        for name in [&a, &b, &c] {
            let meta = fs::metadata(name).unwrap();
            assert_eq!(meta.modified().unwrap(), past, "{} {when}", name.display());
        }
    };
    look("at once");
    std::thread::sleep(Duration::from_secs(3));
    look("after settling");
    space.down();
    space.up();
    look("after a restart");
    // Opening it again, for reading and for writing without a write, changes nothing.
    for name in [&a, &b, &c] {
        drop(OpenOptions::new().read(true).write(true).open(name).unwrap());
    }
    look("after an open for writing");
    space.kill();
    space.up();
    look("after a kill");
    space.down_and_check();
}

/// Those of a file that was open for writing changed when it was next looked at, others never.
#[test]
fn times_that_the_pool_cannot_keep_are_cut_to_those_it_can_at_once() {
    let space = Space::new();
    let native = space.pool().with_file_name("native");
    fs::write(&native, "content").unwrap();
    let set = |path: &Path, seconds: i64| {
        let time = Timespec { tv_sec: seconds, tv_nsec: 5 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    };
    let times = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        [(meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec())]
    };
    let mut kept = Vec::new();
    for seconds in [i64::MIN, -(1 << 31) - 1, -(1 << 31), 1 << 33, (1 << 34) - (1 << 31), 1 << 40] {
        set(&native, seconds);
        let is = times(&native);
        for access in ["none", "write", "both"] {
            let name = space.path(format!("{access}{seconds}"));
            fs::write(&name, "content").unwrap();
            let open = OpenOptions::new().write(true).read(access == "both").open(&name).unwrap();
            let open = (access != "none").then_some(open);
            if let Some(mut open) = open.as_ref() {
                open.write_all(b"x").unwrap();
            }
            set(&name, seconds);
            assert_eq!(times(&name), is, "{}", name.display());
            drop(open);
            kept.push((name, is));
        }
    }
    let look = || kept.iter().for_each(|(name, is)| assert_eq!(times(name), *is, "{}", name.display()));
    look();
    std::thread::sleep(Duration::from_secs(3));
    look();
    space.down();
    space.up();
    look();
    for (name, is) in &kept {
        drop(OpenOptions::new().read(true).write(true).open(name).unwrap());
        assert_eq!(times(name), *is, "{}", name.display());
    }
    space.down_and_check();
}

#[test]
fn attributes_of_a_file_that_others_write_are_seen_by_all() {
    let space = Space::new();
    let name = space.path("log");
    fs::write(&name, "").unwrap();
    let inode = fs::metadata(&name).unwrap().ino();
    for n in 1..20 {
        program("sh", ["-c".as_ref(), "echo 0123456 >> \"$1\"".as_ref(), "sh".as_ref(), name.as_os_str()]).ok();
        let meta = fs::metadata(&name).unwrap();
        assert_eq!((meta.len(), meta.ino()), (n * 8, inode));
    }
    space.down_and_check();
}
