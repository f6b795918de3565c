//! What numbers and names may be, and what is not there at all.

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

fn set(path: &Path, name: &str, bytes: usize) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, name, &vec![b'x'; bytes], XattrFlags::empty())
}

#[test]
fn atime_follows_the_file_system_below() {
    for (options, moves) in [("loop,strictatime", true), ("loop,noatime", false)] {
        let mut ground = Ground::new();
        let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F"], options);
        let space = Space::on(ground, &disk);
        space.up();
        let path = space.path("file");
        fs::write(&path, "content").unwrap();
        let long_ago = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        let times = Timestamps { last_access: long_ago, last_modification: long_ago };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        let atime = || fs::metadata(&path).unwrap().atime();
        if moves {
            eventually("a read moves atime", Duration::from_secs(5), || atime() > 1_000_000_000);
        } else {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(atime(), 1_000_000_000, "{options}");
        }
        space.down_and_check();
    }
}

#[test]
fn listing_and_following_a_link_move_no_atime() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F"], "loop,strictatime");
    let space = Space::on(ground, &disk);
    space.up();
    let (dir, link) = (space.path("dir"), space.path("link"));
    fs::create_dir(&dir).unwrap();
    symlink("dir", &link).unwrap();
    let long_ago = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    for path in [&dir, &link] {
        let times = Timestamps { last_access: long_ago, last_modification: long_ago };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    assert_eq!(fs::read_dir(&link).unwrap().count(), 0);
    fs::read_link(&link).unwrap();
    for path in [&dir, &link] {
        assert_eq!(path.symlink_metadata().unwrap().atime(), 1_000_000_000, "{}", path.display());
    }
    space.down_and_check();
}

#[test]
fn a_directory_is_4096_bytes_long_and_blocks_are_the_charge() {
    let space = Space::plain();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    for n in 0..200 {
        fs::write(dir.join(format!("{n:0>200}")), "").unwrap();
    }
    assert_eq!(dir.metadata().unwrap().len(), 4096);
    let file = dir.join("file");
    fs::write(&file, vec![1; 10_000]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    for path in [&dir, &file] {
        assert_eq!(path.metadata().unwrap().blocks() * 512, space.stat(path)["charge"], "{}", path.display());
    }
    space.down_and_check();
}

#[test]
fn a_file_has_at_most_65000_names() {
    let space = Space::plain();
    let first = space.path("first");
    fs::write(&first, "").unwrap();
    for directory in 0..65 {
        let dir = space.path(format!("{directory}"));
        fs::create_dir(&dir).unwrap();
        for n in 0..1000 - usize::from(directory == 0) {
            fs::hard_link(&first, dir.join(format!("{n}"))).unwrap();
        }
    }
    assert_eq!(first.metadata().unwrap().nlink(), 65_000);
    assert_eq!(fs::hard_link(&first, space.path("more")).unwrap_err().raw_os_error(), Some(libc::EMLINK));
    fs::remove_file(space.path("7/7")).unwrap();
    fs::hard_link(&first, space.path("more")).unwrap();
    space.down_and_check();
}

#[test]
fn extended_attributes_are_bounded_and_some_answer_questions() {
    let space = Space::plain();
    let file = space.path("file");
    fs::write(&file, vec![1; 5000]).unwrap();
    assert_eq!(set(&file, "user.big", 65_537), Err(Errno::TOOBIG));
    for n in 0..3 {
        set(&file, &format!("user.{n}"), 65_536).unwrap();
    }
    // The names count too.
    assert_eq!(set(&file, "user.3", 65_536), Err(Errno::NOSPC));
    set(&file, "user.3", 65_536 - 4 * 6).unwrap();
    assert_eq!(set(&file, "user.4", 1), Err(Errno::NOSPC));
    let get = |path: &Path, name: &str| {
        let mut value = vec![0; 64];
        let length = rustix::fs::getxattr(path, name, &mut value)?;
        value.truncate(length);
        Ok::<_, Errno>(String::from_utf8(value).unwrap())
    };
    assert_eq!(get(&file, "user.ullage.class").unwrap(), "persistent");
    assert_eq!(get(&file, "user.ullage.pool").unwrap(), "main");
    assert_eq!(get(&file, "user.ullage.charge").unwrap(), space.stat(&file)["charge"].to_string());
    assert!(get(&space.mount, "user.ullage.used").is_ok());
    assert_eq!(get(&file, "user.ullage.used"), Err(Errno::NODATA));
    assert_eq!(set(&file, "user.ullage.class", 3), Err(Errno::PERM));
    let mut names = vec![0; 1000];
    let length = rustix::fs::listxattr(&file, &mut names).unwrap();
    assert!(!String::from_utf8_lossy(&names[..length]).contains("ullage"));
    space.down_and_check();
}

#[test]
fn a_symbolic_link_holds_4095_bytes() {
    let space = Space::plain();
    let longest = "x".repeat(4095);
    symlink(&longest, space.path("link")).unwrap();
    assert_eq!(fs::read_link(space.path("link")).unwrap(), Path::new(&longest));
    let longer = symlink(longest + "x", space.path("longer"));
    assert_eq!(longer.unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    space.down_and_check();
}

#[test]
fn what_fuse_does_not_have_is_refused() {
    let space = Space::new();
    let path = space.path("file");
    fs::write(&path, "content").unwrap();
    let file = File::open(&path).unwrap();
    assert!(rustix::fs::ioctl_getflags(&file).is_err(), "chattr(1)'s flags");
    assert!(!ullage_mount_tests::has_extent_map(&file), "FIEMAP");
    // On what lies below it is there, so that the test sees it; a tmpfs, as `/tmp` may be, has none.
    let below = space.backing(&path);
    assert!(ullage_mount_tests::has_extent_map(&File::open(&below).unwrap()));
    drop(file);
    space.down_and_check();
}

/// ext4 finds places for what was written later, and counts the blocks of its map only then.
#[test]
fn blocks_found_later_are_shown_within_a_second() {
    const PIECES: u64 = 2000;
    let space = Space::new();
    let name = space.path("scattered");
    let file = OpenOptions::new().write(true).create_new(true).open(&name).unwrap();
    for piece in 0..PIECES {
        file.write_all_at(b"x", piece * 8192).unwrap();
    }
    let before = fs::metadata(&name).unwrap().blocks();
    let backing = File::open(space.backing(&name)).unwrap();
    rustix::fs::syncfs(&backing).unwrap();
    let now = backing.metadata().unwrap().blocks();
    assert!(now > before, "{now} blocks after, {before} before: nothing was found later");
    eventually("the map's blocks are seen", Duration::from_millis(1500), || {
        fs::metadata(&name).unwrap().blocks() == now
    });
}

/// The kernel hands such writes on with the flags of open(2), which is where passthrough appends by.
#[test]
fn a_write_that_is_not_to_append_appends_all_the_same_in_the_kernel() {
    const RWF_NOAPPEND: u32 = 0x20;
    let space = Space::new();
    let path = space.path("file");
    let file = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    (&file).write_all(b"1234").unwrap();
    let flags = ReadWriteFlags::from_bits_retain(RWF_NOAPPEND);
    let text = match pwritev2(&file, &[IoSlice::new(b"x")], 0, flags) {
        Ok(_) if space.uses_passthrough() => "1234x",
        Ok(_) => "x234",
        // Before Linux 6.9.
        Err(error) => {
            assert_eq!(error, Errno::OPNOTSUPP);
            "1234"
        }
    };
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    drop(file);
    space.down_and_check();
}

/// The same of one that fcntl(2) took that flag from.
#[test]
fn a_handle_that_does_not_append_any_more_appends_all_the_same_in_the_kernel() {
    let space = Space::new();
    let path = space.path("file");
    fs::write(&path, "abc").unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.write_all_at(b"X", 1).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), if space.uses_passthrough() { "abcX" } else { "aXc" });
    drop(file);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).unwrap();
    (&file).write_all(b"Y").unwrap();
    assert_eq!(file.metadata().unwrap().len(), length + 1);
    drop(file);
    space.down_and_check();
}
