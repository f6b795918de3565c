//! The `fuser` transport carries real system calls to a real file system and back, as root and as a user.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::MemoryFs;
use ullage_fuse::{FuserOptions, MountFlags, mount_with_fuser};

const USER: u32 = 65534;
const AS_USER: &str = "ULLAGE_TEST_AS_USER";

/// Ends the process, and so the connection and every call that hangs in it.
fn watchdog() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        eprintln!("the mount hangs");
        std::process::abort();
    });
}

fn exercise(allow_other: bool) {
    watchdog();
    let directory = tempfile::tempdir().unwrap();
    let fs = MemoryFs::new();
    let options = FuserOptions { name: "a,b".to_owned(), threads: 4, allow_other, flags: MountFlags::empty() };
    let mount = mount_with_fuser(fs.clone(), directory.path(), &options).unwrap();
    // A failure must not leave a mount behind, which would also stop the directory from being removed.
    let outcome = std::panic::catch_unwind(|| use_it(directory.path()));
    // Nobody waits for a FORGET, so it may still be on its way after the call that caused it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while outcome.is_ok() && !mount.counters().snapshot().contains_key("FORGET") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let counts = mount.counters().snapshot();
    mount.take_away(false).unwrap();
    mount.join().unwrap();
    outcome.unwrap();
    for (name, least) in
        [("LOOKUP", 10), ("GETATTR", 1), ("CREATE", 1), ("RELEASE", 2), ("MKDIR", 1), ("RENAME", 1), ("FORGET", 1)]
    {
        assert!(counts.get(name).is_some_and(|count| *count >= least), "{name}: {counts:?}");
    }
    assert_eq!(counts.get("UNKNOWN"), None);
    assert_eq!((fs.attached.load(Ordering::SeqCst), fs.detached.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let in_the_kernel = fs.data_requests.load(Ordering::SeqCst) == 0;
    let may = rustix::process::geteuid().is_root() && ullage_posix_tests::sys::kernel() >= (6, 9);
    assert_eq!(in_the_kernel, may, "only a privileged server may pass data through, and not on old kernels");
}

fn use_it(at: &Path) {
    let file = at.join("file");
    fs::write(&file, "hello").unwrap();
    let mut opened = OpenOptions::new().read(true).append(true).open(&file).unwrap();
    opened.write_all(b" world").unwrap();
    opened.seek(SeekFrom::Start(6)).unwrap();
    let mut tail = String::new();
    opened.read_to_string(&mut tail).unwrap();
    assert_eq!(tail, "world");
    opened.set_len(4).unwrap();
    drop(opened);
    assert_eq!(fs::read(&file).unwrap(), b"hell");

    let first = fs::metadata(&file).unwrap();
    assert!(first.ino() < 1000, "st_ino is the inode number, not the node's handle");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let second = fs::metadata(&file).unwrap();
    assert_eq!((second.mode(), second.ino()), (0o100_640, first.ino()));
    let old = std::time::UNIX_EPOCH - Duration::new(4, 750_000_000);
    fs::File::open(&file).unwrap().set_modified(old).unwrap();
    let third = fs::metadata(&file).unwrap();
    assert_eq!((third.mtime(), third.mtime_nsec()), (-5, 250_000_000));

    fs::hard_link(&file, at.join("link")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
    symlink("file", at.join("symlink")).unwrap();
    assert_eq!(fs::read_link(at.join("symlink")).unwrap(), Path::new("file"));
    fs::create_dir(at.join("directory")).unwrap();
    fs::rename(at.join("link"), at.join("directory/moved")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at.join("fifo"), 0o600.into()).unwrap();
    assert!(fs::metadata(at.join("fifo")).unwrap().file_type().is_fifo());

    let many = at.join("directory");
    for number in 0..300 {
        fs::write(many.join(format!("entry-{number}")), "").unwrap();
    }
    let listed = fs::read_dir(&many).unwrap().map(|entry| entry.unwrap());
    assert_eq!(listed.filter(|entry| entry.metadata().unwrap().ino() < 1000).count(), 301);

    rustix::fs::setxattr(&file, "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value), Ok(1));
    assert_eq!(fs::read(at.join("missing")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let statfs = rustix::fs::statvfs(at).unwrap();
    assert_eq!((statfs.f_bavail, statfs.f_blocks, statfs.f_namemax), (800, 1000, 255));
    fs::remove_file(&file).unwrap();
    fs::remove_file(at.join("symlink")).unwrap();
    assert!(!file.exists());
}

#[test]
fn as_root_data_moves_in_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    exercise(true);
}

#[test]
fn as_an_ordinary_user_through_the_helper() {
    if std::env::var_os(AS_USER).is_some() || !rustix::process::geteuid().is_root() {
        if Command::new("fusermount3").arg("-V").output().is_err() {
            eprintln!("skipped: fusermount3 is not installed");
            return;
        }
        return exercise(false);
    }
    // The test binary may lie where the user cannot read it.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("test");
    // Copied by a process: one that another thread starts meanwhile would have ours open for writing, and it could not be run.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let status = Command::new(copy)
        .args(["--exact", "as_an_ordinary_user_through_the_helper", "--nocapture"])
        .env(AS_USER, "1")
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .status()
        .unwrap();
    assert!(status.success());
}
