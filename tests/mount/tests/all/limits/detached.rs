//! A mount that is not at its place any more, and is used: whoever has a file open there is stopped as before.

use super::bed::{Below, is_full, limit, until_full};
use super::lend::{GIB, held, lending, lent, spacious};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// More than what is looked at ahead, so that nothing asks yet.
const ROOM: u64 = 100 << 20;
static PIECE: [u8; 65536] = [1; 65536];
const SOON: Duration = Duration::from_secs(10);

fn used(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

fn lazily(space: &Space) {
    ullage(["down".as_ref(), space.mount.as_os_str(), "--lazy".as_ref()]).ok();
}

fn by_signal(space: &Space) {
    process::signal(space.pid(), Signal::TERM);
}

fn from_outside(space: &Space) {
    program("umount", ["-l".as_ref(), space.mount.as_os_str()]).ok();
}

/// A directory that is open, by that.
fn within(directory: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())
}

/// What makes the kernel ask was looked for at the mount point, found nothing there, and took the file for one that is closed: without a
/// word the writer went on as far as the pool has room.
fn stopped(detach: fn(&Space)) {
    let space = spacious(Below::Ext4);
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let mut file = File::create(dir.join("file")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    // So much that nothing asks before little is left.
    let all = 8 * GIB;
    limit(&[&format!("{}B", all + 4096)], &dir);
    let inside = File::open(&dir).unwrap();
    let pid = space.pid();
    detach(&space);
    eventually("the mount is gone", SOON, || !is_mounted(&space.mount));
    let other = OpenOptions::new().read(true).write(true).create_new(true).open(within(&inside).join("other")).unwrap();
    // Beside each piece there has to be room for its map.
    let large = all - (GIB / 2);
    fallocate(&other, FallocateFlags::empty(), 0, large).unwrap();
    fallocate(&other, FallocateFlags::empty(), large, GIB / 2 - ROOM).unwrap();
    let room = all - used(&other);
    drop((inside, other));
    let outcome = (0..3000).try_for_each(|_| file.write_all(&PIECE));
    assert!(is_full(&outcome), "{outcome:?}");
    assert!(used(&file) <= room, "{} bytes past the limit", used(&file) - room);
    // What it takes below shows within a second.
    eventually("all but a MiB is taken", SOON, || used(&file) + (1 << 20) >= room);
    assert!(process::runs(pid));
    drop(file);
    process::wait(pid);
    space.check();
    space.up();
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn who_writes_on_in_a_space_that_went_lazily_stops_at_the_limit() {
    stopped(lazily);
}

#[test]
fn who_writes_on_in_a_space_that_went_by_a_signal_stops_at_the_limit() {
    stopped(by_signal);
}

#[test]
fn who_writes_on_in_a_space_that_was_detached_from_outside_stops_at_the_limit() {
    stopped(from_outside);
}

/// The same where the mount stays, at another path.
#[test]
fn who_writes_in_a_space_whose_parent_is_renamed_stops_at_the_limit() {
    let mut space = Below::Ext4.space();
    space.down();
    let (before, after) = (space.ground.directory("before"), space.ground.join("after"));
    space.mount = before.canonicalize().unwrap().join("mnt");
    space.limit(Duration::from_secs(60));
    space.flags.clear();
    space.up();
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let mut file = File::create(dir.join("file")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    limit(&[&format!("{}B", ROOM + 4096)], &dir);
    fs::rename(&before, &after).unwrap();
    let outcome = (0..3000).try_for_each(|_| file.write_all(&PIECE));
    let end = used(&file);
    drop(file);
    fs::rename(&after, &before).unwrap();
    assert!(is_full(&outcome), "{outcome:?}");
    assert!(end <= ROOM, "{} bytes past the limit", end - ROOM);
    space.down_and_check();
}

/// What was lent could not be asked back, and more was lent.
#[test]
fn what_is_lent_in_a_space_that_was_taken_away_is_asked_back() {
    let space = spacious(Below::Ext4);
    let room = 8 * GIB;
    let dir = lending(&space, "box", room);
    let file = lent(&dir.join("file"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    if space.uses_passthrough() {
        assert!(held(&space) > 2 * GIB);
    }
    let inside = File::open(&dir).unwrap();
    let pid = space.pid();
    lazily(&space);
    let new = lent(&within(&inside).join("new"));
    new.write_all_at(&[1; 4096], 0).unwrap();
    let other = OpenOptions::new().read(true).write(true).create_new(true).open(within(&inside).join("other")).unwrap();
    let (mut at, mut piece) = (0, 4 * GIB);
    while piece >= 4 << 20 {
        match fallocate(&other, FallocateFlags::empty(), at, piece) {
            Ok(()) => at += piece,
            Err(_) => piece /= 2,
        }
    }
    let all = || used(&file) + used(&new) + used(&other);
    assert!(all() + (16 << 20) >= room, "refused with {} bytes left", room - all());
    for file in [&file, &new] {
        until_full(|n| file.write_all_at(&PIECE, n * 65536));
        assert!(is_full(&file.write_at(&PIECE, GIB)));
    }
    assert!(all() <= room, "{} bytes past the limit", all() - room);
    drop((file, new, other, inside));
    process::wait(pid);
    space.check();
}
