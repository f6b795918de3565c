//! Many writers at once, and machines that have other things to do.

use super::bed::{Below, assert_filled, in_pool, limited, reserved};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, ullage};
use ullage_mount_tests::space::Space;

const WRITERS: u64 = 16;

/// Every writer fills a file of its own, in growing and shrinking pieces, until the last block is refused.
fn fill(dir: &Path) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let path = dir.join(format!("file-{writer}"));
                let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
                let data = vec![writer as u8; 1 << 20];
                let (mut at, mut piece) = (0, 1 << 20);
                while piece >= 4096 {
                    match file.write_at(&data[..piece], at) {
                        Ok(count) => at += count as u64,
                        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => piece /= 2,
                        Err(error) => panic!("writer {writer} at {at}: {error}"),
                    }
                }
            });
        }
    });
}

/// Tells its end however it came.
pub struct Told<'a>(pub &'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn fill_watched(space: &Space, dir: &Path, most: u64) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // Files only grow meanwhile: whatever is seen one after the other was there at the end of looking.
                let used = in_pool(space);
                assert!(used <= most, "{} bytes past the limit for a moment", used - most);
            }
        });
        let _told = Told(&done);
        fill(dir);
    });
}

/// Processes that do nothing but that, as fast as they can.
pub struct Spinners(Vec<Child>);

impl Spinners {
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

fn sixteen(below: Below) {
    let space = below.space();
    let room = 24 << 20;
    let dir = limited(&space, "box", room);
    fill_watched(&space, &dir, room);
    assert_filled(&dir, room, below.slack(), "sixteen writers");
    space.compare_du(&space.mount);
    std::fs::remove_dir_all(&dir).unwrap();
    space.sync();
    space.down_and_check();
}

#[test]
fn sixteen_writers_stop_at_the_limit_on_tmpfs() {
    sixteen(Below::Tmpfs);
}

#[test]
fn sixteen_writers_stop_at_the_limit_on_ext4() {
    sixteen(Below::Ext4);
}

#[test]
fn sixteen_writers_stop_at_the_limit_on_xfs() {
    sixteen(Below::Xfs);
}

#[test]
fn sixteen_writers_stop_at_the_limit_on_btrfs() {
    if Below::Btrfs.is_had() {
        sixteen(Below::Btrfs);
    }
}

#[test]
fn sixteen_writers_stop_at_the_limit_of_a_starved_machine() {
    let space = Below::Tmpfs.space();
    let room = 8 << 20;
    let dir = limited(&space, "box", room);
    let spinners = Spinners::new(64);
    fill_watched(&space, &dir, room);
    drop(spinners);
    assert_filled(&dir, room, 0, "starved");
    space.down_and_check();
}

/// Its map had a block more for the moment in which a part of it was written out, and nothing was held for that.
#[test]
fn what_a_map_takes_while_a_file_is_written_out_is_held_until_then() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", 64 << 20);
    let held = || {
        let shown = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
        shown["limits"][0]["held"].as_u64().unwrap()
    };
    std::fs::write(dir.join("small"), [1; 3000]).unwrap();
    assert_eq!(held(), 0, "a file of a few blocks has no map");
    let file = std::fs::File::create(dir.join("file")).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    drop(file);
    assert!(held() > 0);
    // Some time after its last handle it is written out.
    eventually("nothing is held for what the disk has", Duration::from_secs(20), || held() == 0);
    space.compare_du(&dir);
    space.down_and_check();
}

#[test]
fn a_pool_keeps_its_reserve() {
    let (space, disk) = reserved();
    let dir = space.path("dir");
    std::fs::create_dir(&dir).unwrap();
    fill(&dir);
    let free = rustix::fs::statvfs(&disk).unwrap();
    let free = free.f_bavail * free.f_frsize;
    // The catalog's mirror in the pool is the space's own and asks no reserve.
    let mirror = 256 << 10;
    assert!(((48 << 20) - mirror..(48 << 20) + 4096).contains(&free), "{free} bytes are free");
    space.down_and_check();
    space.up();
    std::fs::write(dir.join("more"), [1; 4096]).unwrap_err();
    space.down_and_check();
}

/// btrfs has what was written in use from when it is on the disk: until then the same room was given out again and again.
#[test]
fn a_pool_keeps_its_reserve_where_blocks_are_in_use_later() {
    const RESERVE: u64 = 512 << 20;
    const PIECE: u64 = 1 << 20;
    if !Below::Btrfs.is_had() {
        return;
    }
    let mut ground = Ground::new();
    let disk = ground.btrfs("disk", 1024);
    let state = ground.directory("plain");
    let mut space = Space::on(ground, &disk);
    space.state = state.join("state");
    space.flags = vec!["--reserve".into(), "512M".into()];
    space.up();
    space.flags.clear();
    let free = || {
        rustix::fs::syncfs(std::fs::File::open(&disk).unwrap()).unwrap();
        let now = rustix::fs::statvfs(&disk).unwrap();
        now.f_bavail * now.f_frsize
    };
    let room = free() - RESERVE;
    // What is written again takes nothing, though it takes other blocks first.
    let (again, data) = (std::fs::File::create(space.path("again")).unwrap(), vec![1; PIECE as usize]);
    for piece in 0..2 * room / PIECE {
        again.write_all_at(&data, piece % 64 * PIECE).unwrap();
    }
    let file = std::fs::File::create(space.path("file")).unwrap();
    let mut written = 0;
    while written < 2 * room {
        match file.write_at(&data, written) {
            Ok(count) => written += count as u64,
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => break,
            Err(error) => panic!("at {written}: {error}"),
        }
    }
    // Its own records take some, in pieces of many MiB.
    let (left, own) = (free(), 64 << 20);
    assert!(left + own >= RESERVE, "{} bytes of the reserve are taken after {written}", RESERVE - left);
    assert!(left <= RESERVE + own, "refused with {} bytes left after {written}", left - RESERVE);
    drop((again, file));
    space.down_and_check();
}

#[test]
fn a_full_pool_refuses_at_the_write_and_keeps_what_it_took() {
    let mut ground = Ground::new();
    let disk = ground.tmpfs("disk", 16 << 10);
    let state = ground.directory("plain");
    let mut space = Space::on(ground, &disk);
    space.state = state.join("state");
    space.up();
    let dir = limited(&space, "box", 1 << 30);
    fill(&dir);
    for writer in 0..WRITERS {
        let path = dir.join(format!("file-{writer}"));
        let data = std::fs::read(&path).unwrap();
        assert!(data.iter().all(|byte| *byte == writer as u8), "{}", path.display());
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}
