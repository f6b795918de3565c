//! Blocks that a file takes beyond its data, or later than it is written: those of its map, and copies of shared ones.

use super::bed::{Below, in_pool, is_full, limit};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::space::Space;

const BLOCK: u64 = 4096;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn directory(space: &Space, name: &str) -> PathBuf {
    let dir = space.path(name);
    fs::create_dir(&dir).unwrap();
    dir
}

fn over(ground: Ground, pool: &Path) -> Space {
    let state = ground.directory("plain").join("state");
    let mut space = Space::on(ground, pool);
    space.state = state;
    space.up();
    space
}

/// Files that were closed are closed by the daemon, too, after two seconds: what opens them then is all that does.
fn until_closed() {
    std::thread::sleep(Duration::from_secs(3));
}

/// Limits a directory to what it has now, and so much more; gives back what its files may take.
fn limit_to_use(space: &Space, dir: &Path, more: u64) -> u64 {
    until_closed();
    space.sync();
    let used = in_pool(space) + more;
    limit(&[&format!("{}B", used + BLOCK)], dir);
    used
}

#[track_caller]
fn assert_within(space: &Space, most: u64, how: &str) {
    let used = in_pool(space);
    assert!(used <= most, "{how}: {} bytes past the limit", used.saturating_sub(most));
}

/// Copies on writing were taken for blocks that are there, and xfs gives 128 KiB of them to each.
#[test]
fn what_shares_blocks_with_a_copy_is_written_within_the_limit_on_xfs() {
    const SIZE: u64 = 8 << 20;
    for (room, opening) in [(0, "both"), (256 << 10, "both"), (256 << 10, "writing")] {
        let how = format!("{room} bytes, for {opening}");
        let space = Below::Xfs.space();
        let dir = directory(&space, "box");
        let source = open(&dir.join("file"));
        source.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        source.sync_all().unwrap();
        let target = open(&dir.join("copy"));
        let (mut from, mut to) = (0, 0);
        let copied = copy_file_range(&source, Some(&mut from), &target, Some(&mut to), SIZE as usize).unwrap();
        assert_eq!(copied as u64, SIZE);
        target.sync_all().unwrap();
        drop((source, target));
        let most = limit_to_use(&space, &dir, room);
        let file = OpenOptions::new().read(opening == "both").write(true).open(dir.join("file")).unwrap();
        let mut written = 0;
        for n in 0..SIZE / 65536 {
            let outcome = file.write_all_at(&[2; BLOCK as usize], n * 65536);
            assert!(outcome.is_ok() || is_full(&outcome), "{how}: {outcome:?}");
            written += u64::from(outcome.is_ok());
            assert_within(&space, most, &how);
        }
        assert_eq!(written > 0, room > 0, "{how}: {written}");
        // What is written has its own place soon, and the room that took is there again.
        assert!(room == 0 || written > SIZE / 65536 / 2, "{how}: {written}");
        file.sync_all().unwrap();
        assert_within(&space, most, &how);
        drop(file);
        rustix::fs::sync();
        assert_within(&space, most, &how);
        space.down_and_check();
    }
}

/// Every write splits an extent of what was allocated and not written.
#[test]
fn what_is_written_into_allocated_space_grows_no_map_past_the_limit() {
    const SIZE: u64 = 32 << 20;
    for (below, room) in [(Below::Ext4, 0), (Below::Ext4, 64 << 10), (Below::Xfs, 0), (Below::Xfs, 64 << 10)] {
        let how = format!("{below:?} with {room} bytes");
        let space = below.space();
        let dir = directory(&space, "box");
        let path = dir.join("file");
        let file = open(&path);
        fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
        file.write_all_at(&[1; 9000], 12 << 20).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let most = limit_to_use(&space, &dir, room);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for n in 0..SIZE / (2 * BLOCK) {
            let outcome = file.write_all_at(&[2; BLOCK as usize], n * 2 * BLOCK);
            outcome.unwrap_or_else(|error| panic!("{how}, block {}: {error}", 2 * n));
        }
        file.sync_all().unwrap();
        assert_within(&space, most, &how);
        drop(file);
        rustix::fs::sync();
        assert_within(&space, most, &how);
        let data = fs::read(&path).unwrap();
        assert_eq!(data.len() as u64, SIZE, "{how}");
        for (at, byte) in data.into_iter().enumerate() {
            let at = at as u64;
            let before = u8::from((12 << 20..(12 << 20) + 9000).contains(&at));
            assert_eq!(byte, if at % (2 * BLOCK) < BLOCK { 2 } else { before }, "{how}, at {at}");
        }
        space.down_and_check();
    }
}

/// Space that lies behind the end of the file, where no zeros can be written ahead but into the gaps that writes leave.
#[test]
fn what_is_allocated_behind_the_end_is_appended_to_at_the_limit() {
    const SIZE: u64 = 8 << 20;
    let steps = [10_000, 24_576];
    for (below, step) in [Below::Ext4, Below::Xfs].into_iter().flat_map(|below| steps.map(|step| (below, step))) {
        let space = below.space();
        let dir = directory(&space, "box");
        let path = dir.join("file");
        let file = open(&path);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, SIZE).unwrap();
        drop(file);
        let most = limit_to_use(&space, &dir, 0);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for n in 0..SIZE / step {
            let outcome = file.write_all_at(&[3; 10_000], n * step);
            outcome.unwrap_or_else(|error| panic!("{below:?}, piece {n}: {error}"));
            assert_eq!(file.metadata().unwrap().len(), n * step + 10_000, "{below:?}");
        }
        drop(file);
        rustix::fs::sync();
        assert_within(&space, most, &format!("{below:?}"));
        let is_right = |(at, byte): (usize, &u8)| *byte == if at as u64 % step < 10_000 { 3 } else { 0 };
        assert!(fs::read(&path).unwrap().iter().enumerate().all(is_right));
        space.down_and_check();
    }
}

/// A file of so many blocks, 2 MiB apart, with space behind its end that was never written.
fn allocate_behind(path: &Path, blocks: u64) {
    let file = open(path);
    for n in 0..blocks {
        file.write_all_at(&[1; BLOCK as usize], n << 21).unwrap();
    }
    fallocate(&file, FallocateFlags::KEEP_SIZE, 8 << 20, 256 << 10).unwrap();
    file.sync_all().unwrap();
}

/// The first write into such space splits what nothing fills: of 24 files each took a block past the limit.
#[test]
fn what_is_allocated_behind_the_end_and_written_in_part_grows_no_map_past_the_limit() {
    let space = Below::Ext4.space();
    let dir = directory(&space, "box");
    let paths: Vec<PathBuf> = (0..24).map(|n| dir.join(n.to_string())).collect();
    for path in &paths {
        allocate_behind(path, 3);
    }
    let most = limit_to_use(&space, &dir, 0);
    for path in &paths {
        let file = open(path);
        let outcome = file.write_all_at(&[2; BLOCK as usize], 8 << 20);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        file.sync_all().unwrap();
    }
    assert_within(&space, most, "appended");
    space.down_and_check();
}

/// Regression: zeros had been written to the gap that it would have left, and the file ended where the write was to begin.
#[test]
fn a_write_behind_the_end_that_is_refused_leaves_the_length() {
    let space = Below::Ext4.space();
    let dir = directory(&space, "box");
    let paths: Vec<PathBuf> = (0..8).map(|n| dir.join(n.to_string())).collect();
    for path in &paths {
        allocate_behind(path, 4);
    }
    limit_to_use(&space, &dir, 0);
    let mut refused = 0;
    for path in &paths {
        let file = open(path);
        let before = file.metadata().unwrap().len();
        let at = (8 << 20) + 5 * BLOCK;
        let outcome = file.write_all_at(&[2; BLOCK as usize], at);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        assert_eq!(file.metadata().unwrap().len(), if outcome.is_ok() { at + BLOCK } else { before });
        refused += usize::from(outcome.is_err());
    }
    assert!(refused > 0, "the maps of some have no room");
    space.down_and_check();
}

/// Extents begin anywhere in a page there: what a write touches of them was taken for less than nothing, which ended the mount.
#[test]
fn a_range_of_a_disk_with_small_blocks_is_zeroed_at_the_limit() {
    let mut ground = Ground::new();
    let pool = ground.image("disk", 320, "mkfs.xfs", &["-q", "-b", "size=1024"], "loop");
    let space = over(ground, &pool);
    let dir = directory(&space, "box");
    let file = open(&dir.join("file"));
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    file.sync_all().unwrap();
    (0..8).for_each(|n| file.write_all_at(&[1; 1024], n * 65536).unwrap());
    file.sync_all().unwrap();
    let most = limit_to_use(&space, &dir, 0);
    for n in 0..4 {
        let outcome = fallocate(&file, FallocateFlags::ZERO_RANGE, n * 65536, 500).map_err(std::io::Error::from);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
    }
    file.sync_all().unwrap();
    assert_within(&space, most, "zeroed");
    drop(file);
    space.down_and_check();
}

/// A range that becomes unwritten splits an extent as well.
#[test]
fn zeroed_ranges_grow_no_map_past_the_limit() {
    const SIZE: u64 = 16 << 20;
    for (below, room) in [(Below::Ext4, 0), (Below::Ext4, 64 << 10), (Below::Xfs, 0), (Below::Xfs, 64 << 10)] {
        let how = format!("{below:?} with {room} bytes");
        let space = below.space();
        let dir = directory(&space, "box");
        let path = dir.join("file");
        let file = open(&path);
        file.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let most = limit_to_use(&space, &dir, room);
        let file = open(&path);
        for n in 0..SIZE / 16384 {
            let outcome = fallocate(&file, FallocateFlags::ZERO_RANGE, n * 16384, BLOCK);
            outcome.unwrap_or_else(|error| panic!("{how}, range {n}: {error}"));
        }
        // Beyond the end it takes blocks, and makes the file no longer when they are refused.
        assert!(fallocate(&file, FallocateFlags::ZERO_RANGE, SIZE - BLOCK, 1 << 20).is_err(), "{how}");
        file.sync_all().unwrap();
        drop(file);
        rustix::fs::sync();
        assert_within(&space, most, &how);
        let data = fs::read(&path).unwrap();
        assert_eq!(data.len() as u64, SIZE, "{how}");
        assert!(data.iter().enumerate().all(|(at, byte)| *byte == u8::from(at as u64 % 16384 >= BLOCK)), "{how}");
        space.down_and_check();
    }
}

/// FIEMAP shows what lies in the inode as an extent, and rounded up to a block that was one.
#[test]
fn what_lies_in_the_inode_has_no_block_to_be_written_to() {
    let mut ground = Ground::new();
    let pool = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "inline_data"], "loop");
    let space = over(ground, &pool);
    let dir = directory(&space, "box");
    let paths: Vec<PathBuf> = (0..100).map(|n| dir.join(n.to_string())).collect();
    for path in &paths {
        fs::write(path, [1; 50]).unwrap();
    }
    until_closed();
    space.sync();
    let most = counted(&dir).bytes + 8 * BLOCK;
    limit(&[&format!("{most}B")], &dir);
    let written = paths.iter().filter(|path| {
        let outcome = OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[2; 4046], 50);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        outcome.is_ok()
    });
    let written = written.count();
    assert!((8..=9).contains(&written), "{written}");
    rustix::fs::sync();
    assert_within(&space, most - BLOCK, "inline");
    space.down_and_check();
}

/// What lies together in a file is one extent to FIEMAP, and several in the map: one more no longer fits into the inode.
#[test]
fn a_map_of_more_extents_than_are_shown_needs_room() {
    const SIZE: u64 = 480 << 20;
    let mut ground = Ground::new();
    let pool = ground.image("disk", 2048, "mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop");
    let space = over(ground, &pool);
    let dir = directory(&space, "box");
    let path = dir.join("file");
    let file = open(&path);
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
    drop(file);
    let most = limit_to_use(&space, &dir, BLOCK);
    let file = open(&path);
    let outcome = file.write_all_at(&[1; BLOCK as usize], SIZE + (1 << 30));
    assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
    drop(file);
    rustix::fs::sync();
    assert_within(&space, most, "one block far behind");
    space.down_and_check();
}

/// One block far out takes three of the map.
#[test]
fn a_file_without_extents_takes_blocks_of_its_map_within_the_limit() {
    let mut ground = Ground::new();
    let pool = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^extents,^64bit"], "loop");
    let space = over(ground, &pool);
    for (room, fits) in [(2, false), (9, true)] {
        let dir = directory(&space, &format!("{room}"));
        let path = dir.join("file");
        drop(open(&path));
        let most = limit_to_use(&space, &dir, 0);
        limit(&[&format!("{}B", (room + 1) * BLOCK)], &dir);
        let file = open(&path);
        let outcome = file.write_all_at(&[1; BLOCK as usize], 5 << 30);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        assert_eq!(outcome.is_ok(), fits);
        drop(file);
        rustix::fs::sync();
        assert_within(&space, most + room * BLOCK, "indirect blocks");
    }
    space.down_and_check();
}
