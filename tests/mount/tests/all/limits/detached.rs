//! A mount that is not at its place any more, and is used: whoever has a file open there is stopped as before.

use super::bed::{Below, is_full, limit, until_full};
use super::lend::{GIB, held, lending, lent, spacious};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

/// Has so many files open that to look at all of them takes longer than to write what a limit leaves.
struct Hoarder(Child);

impl Hoarder {
    fn start() -> Self {
        let script = "for n in {1..18000}; do exec {fd}</dev/null; done; echo; exec sleep 60";
        let mut child = Command::new("bash").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }
}

impl Drop for Hoarder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

/// Regression: whatever anybody had open was looked at before the file was found, and meanwhile the writer went on past the limit.
fn stopped_among_many(detach: fn(&mut Space)) {
    // Much of it is left when the kernel is to ask for the first time, and taken in a tenth of a second.
    const ALL: u64 = 300 << 20;
    let mut space = spacious(Below::Tmpfs);
    space.down();
    space.mount = space.ground.directory("before").canonicalize().unwrap().join("mnt");
    space.limit(Duration::from_secs(60));
    space.flags.clear();
    space.up();
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let pid = space.pid();
    let _hoarders = [(); 4].map(|()| Hoarder::start());
    let script = "exec 3>>\"$0\"; echo; read; exec dd if=/dev/zero bs=64K count=8000 >&3";
    let mut writer = Command::new("bash");
    writer.arg("-c").arg(script).arg(dir.join("file"));
    let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    writer.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    limit(&[&format!("{ALL}B")], &dir);
    let inside = File::open(&dir).unwrap();
    detach(&mut space);
    writer.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(!writer.wait().unwrap().success(), "nobody stopped it");
    let used = used(&File::open(within(&inside).join("file")).unwrap());
    assert!(used <= ALL, "{} bytes past the limit", used - ALL);
    drop(inside);
    // One of the two is in vain.
    let _ = fs::rename(space.ground.join("after"), space.mount.parent().unwrap());
    let _ = ullage(["down".as_ref(), space.mount.as_os_str()]);
    process::wait(pid);
    space.check();
}

#[test]
fn who_writes_in_a_space_at_another_path_stops_at_the_limit_however_many_files_others_have_open() {
    stopped_among_many(|space| fs::rename(space.mount.parent().unwrap(), space.ground.join("after")).unwrap());
}

#[test]
fn who_writes_in_a_space_that_was_taken_away_stops_at_the_limit_however_many_files_others_have_open() {
    stopped_among_many(|space| lazily(space));
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
