//! One suite over every transport.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::mirrorfs::Knobs;
use common::{Kind, Mount};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Each test of the suite, over each transport.
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod device { $(#[test] fn $test() { super::common::timed(|| super::$test(super::Kind::Device)); })* }
        mod one_reader { $(#[test] fn $test() { super::common::timed(|| super::$test(super::Kind::OneReader)); })* }
        mod spinning { $(#[test] fn $test() { super::common::timed(|| super::$test(super::Kind::Spinning)); })* }
        mod io_uring { $(#[test] fn $test() { super::common::timed(|| super::$test(super::Kind::IoUring)); })* }
    };
}

suite!(
    files_are_created_written_read_and_removed,
    large_reads_and_writes_come_back_as_written,
    names_of_every_kind,
    renames,
    extended_attributes,
    attributes_and_times,
    a_directory_of_a_thousand_entries,
    mapped_files,
    passthrough_moves_data_in_the_kernel,
    direct_files,
    allocation_holes_and_copies,
    truncation,
    a_strangers_truncating_open_clears_setuid,
    unnamed_and_unlinked_files,
    many_clients_at_once,
    a_stuck_fsync_stalls_nobody_else,
    many_stuck_fsyncs_stall_nobody_else,
    requests_that_wait_for_an_entry_are_fetched,
    requests_that_wait_behind_directories_are_fetched,
    blocking_io_is_carried_out_by_workers,
    aborting_ends_every_call,
    unmounting_while_busy,
    a_dead_transport_thread_ends_the_connection,
    one_allowed_cpu_is_enough,
    every_lookup_is_forgotten_at_the_end,
    messages_are_counted,
    calls_without_meaning_are_refused,
    clients_on_every_cpu_are_served,
);

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed)) as u8).collect()
}

fn lines(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).unwrap().lines().count()
}

fn files_are_created_written_read_and_removed(kind: Kind) {
    let mount = Mount::new(kind);
    for size in [0, 1, 4095, 4096, 4097, 100_000] {
        let path = mount.path(&format!("file{size}"));
        let data = pattern(size, size);
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        assert_eq!(fs::read(mount.backing.join(format!("file{size}"))).unwrap(), data);
        assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
    let mut log = OpenOptions::new().append(true).create(true).open(mount.path("log")).unwrap();
    log.write_all(b"one ").unwrap();
    OpenOptions::new().append(true).open(mount.path("log")).unwrap().write_all(b"two ").unwrap();
    log.write_all(b"three").unwrap();
    assert_eq!(fs::read(mount.path("log")).unwrap(), b"one two three");
    drop(log);
    mount.unmount();
}

fn large_reads_and_writes_come_back_as_written(kind: Kind) {
    let mount = Mount::new(kind);
    let data = pattern(9 << 20, 7);
    fs::write(mount.path("large"), &data).unwrap();
    rustix::fs::fadvise(File::open(mount.path("large")).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(fs::read(mount.path("large")).unwrap() == data);
    let file = OpenOptions::new().read(true).write(true).open(mount.path("large")).unwrap();
    file.write_all_at(&pattern(3 << 20, 1), 4_000_001).unwrap();
    let mut back = vec![0; 3 << 20];
    file.read_exact_at(&mut back, 4_000_001).unwrap();
    assert!(back == pattern(3 << 20, 1));
    let counts = mount.mounted.counters().snapshot();
    assert!(counts["WRITE"] < 30, "writes of 1 MiB were cut into small ones: {counts:?}");
}

fn names_of_every_kind(kind: Kind) {
    let mount = Mount::new(kind);
    fs::create_dir_all(mount.path("a/b/c")).unwrap();
    symlink("../target that is not there", mount.path("a/link")).unwrap();
    assert_eq!(fs::read_link(mount.path("a/link")).unwrap().to_str(), Some("../target that is not there"));
    fs::write(mount.path("a/file"), b"x").unwrap();
    fs::hard_link(mount.path("a/file"), mount.path("a/b/other")).unwrap();
    assert_eq!(fs::metadata(mount.path("a/file")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(mount.path("a/file")).unwrap().ino(), fs::metadata(mount.path("a/b/other")).unwrap().ino());
    let device = rustix::fs::makedev(7, 300);
    for (name, file_type) in [("fifo", rustix::fs::FileType::Fifo), ("device", rustix::fs::FileType::CharacterDevice)] {
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, mount.path(name), file_type, mode, device).unwrap();
    }
    assert!(fs::metadata(mount.path("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(mount.path("device")).unwrap().rdev(), device);
    let longest = "n".repeat(255);
    fs::write(mount.path(&longest), b"").unwrap();
    assert_eq!(fs::write(mount.path(&"n".repeat(256)), b"").unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    assert_eq!(fs::remove_dir(mount.path("a")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_dir_all(mount.path("a")).unwrap();
    assert!(!mount.backing.join("a").exists());
}

fn renames(kind: Kind) {
    let mount = Mount::new(kind);
    fs::write(mount.path("one"), b"1").unwrap();
    fs::write(mount.path("two"), b"2").unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    let with = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(rustix::fs::CWD, mount.path(from), rustix::fs::CWD, mount.path(to), flags)
    };
    assert_eq!(with("one", "two", rustix::fs::RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    with("one", "two", rustix::fs::RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(mount.path("one")).unwrap(), b"2");
    fs::rename(mount.path("one"), mount.path("dir/moved")).unwrap();
    fs::rename(mount.path("two"), mount.path("dir/moved")).unwrap();
    assert_eq!(fs::read(mount.path("dir/moved")).unwrap(), b"1");
    assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 1);
    fs::rename(mount.path("dir"), mount.path("elsewhere")).unwrap();
    assert_eq!(fs::read(mount.path("elsewhere/moved")).unwrap(), b"1");
}

fn extended_attributes(kind: Kind) {
    let mount = Mount::new(kind);
    let path = mount.path("file");
    fs::write(&path, b"").unwrap();
    let value = pattern(3000, 3);
    rustix::fs::setxattr(&path, "user.long", &value, rustix::fs::XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.empty", b"", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(
        rustix::fs::setxattr(&path, "user.long", b"", rustix::fs::XattrFlags::CREATE),
        Err(rustix::io::Errno::EXIST)
    );
    let mut back = vec![0u8; 4000];
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut back[..]).unwrap(), 3000);
    assert_eq!(back[..3000], value);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.long").unwrap(), 3000);
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut [0u8; 10][..]), Err(rustix::io::Errno::RANGE));
    let mut list = vec![0u8; 4000];
    let length = rustix::fs::listxattr(&path, &mut list[..]).unwrap();
    let names: BTreeSet<&[u8]> = list[..length].split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
    assert!(names.contains(&b"user.long"[..]) && names.contains(&b"user.empty"[..]));
    rustix::fs::removexattr(&path, "user.long").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut back[..]), Err(rustix::io::Errno::NODATA));
}

fn attributes_and_times(kind: Kind) {
    let mount = Mount::new(kind);
    let path = mount.path("file");
    fs::write(&path, b"abc").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(1001)).unwrap();
    let at = std::time::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    let it = fs::metadata(&path).unwrap();
    assert_eq!((it.uid(), it.gid(), it.mtime(), it.mtime_nsec()), (1000, 1001, 1_234_567_890, 123_456_789));
    // chown by root clears setuid, as on any Linux file system.
    assert_eq!(it.permissions().mode() & 0o7777, 0o711);
    let backing = fs::metadata(mount.backing.join("file")).unwrap();
    assert_eq!(it.created().unwrap(), backing.created().unwrap());
    assert_eq!((it.ctime(), it.ctime_nsec()), (backing.ctime(), backing.ctime_nsec()));
    let statfs = rustix::fs::statvfs(&mount.at).unwrap();
    let under = rustix::fs::statvfs(&mount.backing).unwrap();
    assert_eq!((statfs.f_blocks, statfs.f_namemax), (under.f_blocks, under.f_namemax));
}

fn a_directory_of_a_thousand_entries(kind: Kind) {
    let mount = Mount::new(kind);
    let wanted: BTreeSet<String> = (0..1000).map(|i| format!("entry number {i}")).collect();
    for name in &wanted {
        fs::write(mount.path(name), name).unwrap();
    }
    for _ in 0..3 {
        let seen: Vec<String> =
            fs::read_dir(&mount.at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(seen.len(), 1000);
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
    let find = Command::new("find").arg(&mount.at).args(["-type", "f", "-size", "-2"]).output().unwrap();
    assert_eq!(lines(&find.stdout), 1000);
    for name in &wanted {
        fs::remove_file(mount.path(name)).unwrap();
    }
    assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 0);
}

/// A program that maps a file, reads and writes through the mapping.
const MAPPER: &str = "import mmap,sys
f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0)
assert m[8190:8194]==b'abcd', m[8190:8194]
m[8190:8194]=b'WXYZ'; m.flush(); m.close()";

fn map(mount: &Mount) {
    let path = mount.path("mapped");
    let mut data = vec![0; 20_000];
    data[8190..8194].copy_from_slice(b"abcd");
    fs::write(&path, &data).unwrap();
    assert!(Command::new("python3").args(["-c", MAPPER]).arg(&path).status().unwrap().success());
    assert_eq!(fs::read(mount.backing.join("mapped")).unwrap()[8190..8194], *b"WXYZ");
    assert_eq!(fs::read(&path).unwrap()[8190..8194], *b"WXYZ");
}

fn mapped_files(kind: Kind) {
    map(&Mount::new(kind));
    let knobs = Knobs::default();
    knobs.passthrough.store(true, Ordering::Relaxed);
    map(&Mount::with(kind, kind.options(), knobs));
}

fn passthrough_moves_data_in_the_kernel(kind: Kind) {
    let knobs = Knobs::default();
    knobs.passthrough.store(true, Ordering::Relaxed);
    let mount = Mount::with(kind, kind.options(), knobs);
    let data = pattern(3 << 20, 9);
    fs::write(mount.path("file"), &data).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == data);
    assert!(fs::read(mount.backing.join("file")).unwrap() == data);
    let (one, two) = (File::open(mount.path("file")).unwrap(), File::open(mount.path("file")).unwrap());
    drop((one, two));
    let counts = mount.mounted.counters().snapshot();
    assert!(!counts.contains_key("WRITE") && !counts.contains_key("READ"), "{counts:?}");
    assert!(!counts.contains_key("FLUSH"), "{counts:?}");
}

fn direct_files(kind: Kind) {
    let knobs = Knobs::default();
    knobs.direct.store(true, Ordering::Relaxed);
    let mount = Mount::with(kind, kind.options(), knobs);
    let data = pattern(2_500_000, 2);
    fs::write(mount.path("file"), &data).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == data);
    let reads = mount.mounted.counters().snapshot()["READ"];
    assert!(fs::read(mount.path("file")).unwrap() == data);
    assert!(mount.mounted.counters().snapshot()["READ"] > reads, "a direct file was read from the page cache");
}

fn allocation_holes_and_copies(kind: Kind) {
    let mount = Mount::new(kind);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("sparse")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    file.set_len(8 << 20).unwrap();
    file.write_all_at(b"data", 4 << 20).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(2 << 20)).unwrap(), 4 << 20);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(4 << 20)).unwrap(), (4 << 20) + 4096);
    file.seek(SeekFrom::Start(0)).unwrap();
    let copy = OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("copy")).unwrap();
    let mut from = 4 << 20;
    let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, None, 4).unwrap();
    assert_eq!(copied, 4);
    assert_eq!(fs::read(mount.path("copy")).unwrap(), b"data");
    let counts = mount.mounted.counters().snapshot();
    assert!(counts.keys().any(|name| name.starts_with("COPY_FILE_RANGE")), "{counts:?}");
}

fn truncation(kind: Kind) {
    let mount = Mount::new(kind);
    let path = mount.path("file");
    fs::write(&path, pattern(10_000, 0)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert_eq!(fs::read(&path).unwrap(), pattern(10_000, 0)[..5000]);
    File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let counts = mount.mounted.counters().snapshot();
    // O_TRUNC is one of its own: the kernel knows of programs that run, and we do not.
    assert_eq!(counts["SETATTR"], 2, "{counts:?}");
}

/// HANDLE_KILLPRIV_V2: the kernel leaves it to us, and must not go on showing the mode it knew.
fn a_strangers_truncating_open_clears_setuid(kind: Kind) {
    let mount = Mount::new(kind);
    let path = mount.path("file");
    fs::write(&path, b"abc").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::set_permissions(mount.at.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&mount.at, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o6777);
    let shell = Command::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups", "sh", "-c", ": > \"$0\""])
        .arg(&path)
        .status()
        .unwrap();
    assert!(shell.success());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
}

fn unnamed_and_unlinked_files(kind: Kind) {
    let mount = Mount::new(kind);
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(&mount.at).unwrap();
    file.write_all(b"unnamed").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut back = String::new();
    file.read_to_string(&mut back).unwrap();
    assert_eq!(back, "unnamed");
    let mut open = OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("gone")).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    open.write_all(b"still here").unwrap();
    let mut back = vec![0; 10];
    open.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, b"still here");
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&mount.backing).unwrap().count(), 0);
}

fn many_clients_at_once(kind: Kind) {
    let mount = Mount::new(kind);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let at = mount.path(&format!("client{client}"));
            scope.spawn(move || {
                fs::create_dir(&at).unwrap();
                for round in 0..60 {
                    let (path, data) = (at.join(format!("f{round}")), pattern(round * 700, client));
                    fs::write(&path, &data).unwrap();
                    assert!(fs::read(&path).unwrap() == data);
                    fs::rename(&path, at.join("renamed")).unwrap();
                    if round % 10 == 0 {
                        File::open(at.join("renamed")).unwrap().sync_all().unwrap();
                    }
                }
                fs::remove_dir_all(&at).unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(&mount.backing).unwrap().count(), 0);
}

/// Waits until so many fsyncs hang.
fn wait_for_hanging(mount: &Mount, count: usize) {
    let until = Instant::now() + Duration::from_secs(10);
    while mount.knobs.hanging.load(Ordering::SeqCst) < count {
        assert!(Instant::now() < until, "{} of {count} hang", mount.knobs.hanging.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stuck(kind: Kind, count: usize, options: ullage_fuse::MountOptions) {
    let mount = Mount::with(kind, options, Knobs::default());
    for index in 0..count {
        fs::write(mount.path(&format!("stuck{index}")), b"x").unwrap();
    }
    mount.knobs.stuck.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for index in 0..count {
            let path = mount.path(&format!("stuck{index}"));
            scope.spawn(move || File::open(path).unwrap().sync_all().unwrap());
        }
        wait_for_hanging(&mount, count);
        for round in 0..50 {
            let path = mount.path(&format!("lively{round}"));
            fs::write(&path, b"y").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"y");
        }
        assert_eq!(mount.knobs.hanging.load(Ordering::SeqCst), count);
        mount.knobs.stuck.store(false, Ordering::SeqCst);
    });
}

fn a_stuck_fsync_stalls_nobody_else(kind: Kind) {
    stuck(kind, 1, kind.options());
}

fn many_stuck_fsyncs_stall_nobody_else(kind: Kind) {
    stuck(kind, 100, kind.options());
}

/// The same where no regular file is at hand, which the kernel needs for a message of our own.
fn requests_that_wait_behind_directories_are_fetched(kind: Kind) {
    let mount = Mount::with(kind, ullage_fuse::MountOptions { ring_depth: 2, ..kind.options() }, Knobs::default());
    for index in 0..20 {
        fs::create_dir(mount.path(&format!("stuck{index}"))).unwrap();
    }
    mount.knobs.stuck.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for index in 0..20 {
            let path = mount.path(&format!("stuck{index}"));
            scope.spawn(move || File::open(path).unwrap().sync_all().unwrap());
        }
        wait_for_hanging(&mount, 20);
        mount.knobs.stuck.store(false, Ordering::SeqCst);
    });
}

/// A request that finds no ring entry waits in the kernel, and registering an entry does not fetch it.
fn requests_that_wait_for_an_entry_are_fetched(kind: Kind) {
    for ring_depth in [1, 2, 4] {
        stuck(kind, 30, ullage_fuse::MountOptions { ring_depth, ..kind.options() });
    }
}

fn blocking_io_is_carried_out_by_workers(kind: Kind) {
    let options = ullage_fuse::MountOptions { blocking_io: true, ..kind.options() };
    let mount = Mount::with(kind, options, Knobs::default());
    let data = pattern(5 << 20, 4);
    fs::write(mount.path("file"), &data).unwrap();
    rustix::fs::fadvise(File::open(mount.path("file")).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == data);
}

fn aborting_ends_every_call(kind: Kind) {
    let mount = Mount::new(kind);
    fs::write(mount.path("file"), b"x").unwrap();
    mount.knobs.stuck.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let path = mount.path("file");
        let hung = scope.spawn(move || File::open(path).unwrap().sync_all());
        wait_for_hanging(&mount, 1);
        mount.mounted.abort();
        let error = hung.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNABORTED));
    });
    assert!(fs::write(mount.path("other"), b"x").is_err());
    mount.knobs.stuck.store(false, Ordering::SeqCst);
    assert!(mount.mounted.wait_for(Duration::from_secs(10)), "the threads did not end after the connection did");
}

fn unmounting_while_busy(kind: Kind) {
    let mount = Mount::new(kind);
    let mut file = File::create(mount.path("file")).unwrap();
    assert_eq!(mount.mounted.unmount().unwrap_err().raw_os_error(), Some(libc::EBUSY));
    mount.mounted.detach().unwrap();
    file.write_all(b"after the name is gone").unwrap();
    file.sync_all().unwrap();
    assert!(!mount.mounted.wait_for(Duration::from_millis(50)));
    drop(file);
    assert!(mount.mounted.wait_for(Duration::from_secs(10)));
    assert_eq!(fs::read(mount.backing.join("file")).unwrap(), b"after the name is gone");
}

fn a_dead_transport_thread_ends_the_connection(kind: Kind) {
    let mount = Mount::new(kind);
    fs::write(mount.path("file"), b"x").unwrap();
    // The test file system panics at this name, on the thread that handles it.
    let error = fs::metadata(mount.path("panic")).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENOTCONN)), "{error}");
    assert!(fs::metadata(mount.path("file")).is_err() || fs::write(mount.path("new"), b"").is_err());
    assert!(mount.mounted.wait_for(Duration::from_secs(10)));
}

/// Binds the calling thread to a CPU.
fn pin(cpu: usize) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

/// A mount over io_uring, and the calling thread on one CPU from then on.
fn mount_for_one_cpu() -> Mount {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu)).unwrap();
    let mount = Mount::new(Kind::IoUring);
    pin(last);
    mount
}

/// Each call of a caller alone went to the queue's thread, a worker and the queue's thread again.
#[test]
fn who_syncs_is_answered_by_a_thread_of_his_own_cpu() {
    common::timed(|| {
        let mount = mount_for_one_cpu();
        let file = File::create(mount.path("file")).unwrap();
        let sync = || {
            file.sync_all().unwrap();
            mount.knobs.synced_by.lock().clone()
        };
        for round in 0..50 {
            let (by, class) = sync();
            assert!(by.starts_with("fuse-peer-"), "{round}: {by}");
            // Others may wait for what a flush holds: it gives way to nobody, as such a thread does otherwise where CPUs are idle.
            assert_eq!(class, libc::SCHED_OTHER, "{round}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Such a thread dies as loudly as the queue's does.
        assert!(fs::metadata(mount.path("panic")).is_err());
        drop(file);
        assert!(mount.mounted.wait_for(Duration::from_secs(10)));
    });
}

/// A file is written, made durable and closed.
fn write_durably(mount: &Mount, name: &str) {
    let mut file = File::create(mount.path(name)).unwrap();
    file.write_all(b"x").unwrap();
    file.sync_all().unwrap();
}

/// Where many had made files durable at once, the queue's thread stayed in front, and gave each fsync(2) of whoever came alone later to a worker.
#[test]
fn who_syncs_alone_is_answered_by_a_thread_of_his_cpu_also_after_many_did_at_once() {
    common::timed(|| {
        let mount = mount_for_one_cpu();
        std::thread::scope(|scope| {
            for caller in 0..40 {
                let mount = &mount;
                scope.spawn(move || (0..10).for_each(|round| write_durably(mount, &format!("{caller}.{round}"))));
            }
        });
        let mut by = Vec::new();
        for round in 0..60 {
            write_durably(&mount, &format!("alone.{round}"));
            by.push(mount.knobs.synced_by.lock().0.clone());
        }
        assert!(by[20..].iter().all(|by| by.starts_with("fuse-peer-")), "{by:?}");
        mount.unmount();
    });
}

/// What nobody waits for overlaps with the caller's next request: two threads took turns on the CPU for each file that was opened and closed.
#[test]
fn after_a_sync_the_queues_thread_comes_back_with_the_first_close() {
    common::timed(|| {
        let mount = mount_for_one_cpu();
        let close_some = |count| (0..count).for_each(|_| fs::write(mount.path("plain"), b"x").unwrap());
        for _ in 0..20 {
            write_durably(&mount, "durable");
            close_some(5);
            mount.knobs.released_by.lock().clear();
            close_some(50);
            let by = mount.knobs.released_by.lock();
            let others = by.iter().filter(|by| !by.starts_with("fuse-queue-")).count();
            assert!(others <= by.len() / 10, "{by:?}");
        }
        mount.unmount();
    });
}

fn one_allowed_cpu_is_enough(kind: Kind) {
    // The test's own thread: the transport's threads inherit the mask.
    pin(0);
    let mount = Mount::new(kind);
    let output = Command::new("taskset").args(["-c", "1", "ls", "/proc/self/task"]).output();
    let other_cpu = output.is_ok_and(|it| it.status.success());
    for round in 0..50 {
        fs::write(mount.path(&format!("f{round}")), pattern(9000, round)).unwrap();
    }
    if other_cpu {
        let find = Command::new("taskset").args(["-c", "1", "find"]).arg(&mount.at).output().unwrap();
        assert_eq!(lines(&find.stdout), 51);
    }
    mount.unmount();
}

fn every_lookup_is_forgotten_at_the_end(kind: Kind) {
    let mount = Mount::new(kind);
    for round in 0..200 {
        fs::write(mount.path(&format!("f{round}")), b"").unwrap();
    }
    let find = Command::new("find").arg(&mount.at).args(["-size", "0"]).output().unwrap();
    assert!(find.status.success());
    for round in 0..100 {
        fs::remove_file(mount.path(&format!("f{round}"))).unwrap();
    }
    // Removed files are forgotten at once, without waiting for memory pressure or the unmount.
    let until = Instant::now() + Duration::from_secs(10);
    while mount.knobs.forgotten.load(Ordering::Relaxed) < 100 {
        assert!(Instant::now() < until, "{} forgotten", mount.knobs.forgotten.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn messages_are_counted(kind: Kind) {
    let mount = Mount::new(kind);
    let before = mount.mounted.counters().snapshot();
    for round in 0..20 {
        fs::write(mount.path(&format!("f{round}")), b"x").unwrap();
    }
    for _ in 0..20 {
        drop(OpenOptions::new().read(true).write(true).open(mount.path("f0")).unwrap());
    }
    let after = mount.mounted.counters().snapshot();
    let more = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    // A FLUSH is sent once in the life of a mount.
    assert_eq!((more("CREATE"), more("WRITE"), more("OPEN"), more("FLUSH")), (20, 20, 20, 1), "{after:?}");
}

fn calls_without_meaning_are_refused(kind: Kind) {
    let mount = Mount::new(kind);
    fs::write(mount.path("file"), b"x").unwrap();
    let file = File::open(mount.path("file")).unwrap();
    let status = Command::new("lsattr").arg(mount.path("file")).status();
    assert!(status.is_err() || !status.unwrap().success());
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let counts = mount.mounted.counters().snapshot();
    assert!(!counts.contains_key("SETLK"), "locks are the kernel's own: {counts:?}");
}

fn clients_on_every_cpu_are_served(kind: Kind) {
    let mount = Mount::new(kind);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in 0..std::thread::available_parallelism().unwrap().get() {
            let (mount, stop) = (&mount, &stop);
            scope.spawn(move || {
                pin(cpu);
                let mut rounds = 0;
                // On a busy machine a CPU may take long to come round; that it comes is what matters.
                while rounds == 0 || !stop.load(Ordering::Relaxed) {
                    let path = mount.path(&format!("cpu{cpu}"));
                    fs::write(&path, b"x").unwrap();
                    fs::remove_file(&path).unwrap();
                    rounds += 1;
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
    });
}

/// Without being told to, nothing changes the machine's settings, and `why` says what would help.
#[test]
fn the_best_transport_without_permission_is_the_device() {
    let parameter = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let chosen = ullage_fuse::Transport::best(&ullage_fuse::MountOptions::default()).unwrap();
    match (parameter.as_deref().map(str::trim), chosen.transport) {
        (Ok("Y"), ullage_fuse::Transport::IoUring) => {}
        // Another test of this binary may have it on for a while, so only its being off says anything.
        (_, ullage_fuse::Transport::Device) => {
            assert!(chosen.why.starts_with("io_uring is better, but "), "{chosen:?}");
        }
        (before, transport) => {
            let now = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
            assert_eq!(now.unwrap().trim(), "Y", "{transport} was chosen with the parameter at {before:?}");
        }
    }
}
