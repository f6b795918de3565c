//! Writes to what has its blocks already: they take nothing, unless something takes those blocks away.

use super::bed::{Below, assert_filled, in_pool, limited, until_full};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

const ROOM: u64 = 2 << 20;
const BLOCK: u64 = 4096;
/// So much that most of it is written without looking.
const MUCH: u64 = 16 << 20;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A number that jumps about below `end`.
fn somewhere(n: u64, end: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % end
}

fn used(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn overwriting_at_the_limit_takes_nothing_and_is_never_refused() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        let file = open(&path);
        let blocks = until_full(|n| file.write_all_at(&[1; BLOCK as usize], n * BLOCK));
        let end = blocks * BLOCK;
        let overwrite = |file: &File, how: &str| {
            // Copies on writing need room for a while: there every write is another matter.
            let times = if below == Below::Btrfs { 0 } else { 300 };
            for n in 0..times {
                let at = somewhere(n, end - 9000);
                file.write_all_at(&[2; 9000], at).unwrap_or_else(|error| panic!("{below:?}, {how}, at {at}: {error}"));
            }
            assert_filled(&dir, ROOM, below.slack(), how);
        };
        overwrite(&file, "just written");
        file.sync_all().unwrap();
        overwrite(&file, "on the disk");
        drop(file);
        let file = open(&path);
        overwrite(&file, "opened again");
        assert!(file.write_all_at(&vec![3; 64 << 10], end).is_err(), "{below:?}: past the limit");
        let hole = (end / 2).next_multiple_of(BLOCK);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, hole, 16 * BLOCK).unwrap();
        let other = open(&dir.join("other"));
        until_full(|n| other.write_all_at(&[4; BLOCK as usize], n * BLOCK));
        assert!(
            (0..16).any(|n| file.write_all_at(&[5; BLOCK as usize], hole + n * BLOCK).is_err()),
            "{below:?}: a hole whose room was taken was filled"
        );
        assert_filled(&dir, ROOM, below.slack() + BLOCK, "with a hole");
        drop((file, other));
        space.sync();
        assert!(in_pool(&space) <= ROOM, "{below:?}: past the limit on the disk");
        space.down_and_check();
    }
}

/// To write to a block that was allocated but not written splits its extent: the map may grow.
#[test]
fn what_was_zeroed_or_allocated_only_is_not_called_written() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", ROOM);
    let file = open(&dir.join("file"));
    let blocks = until_full(|n| file.write_all_at(&[1; BLOCK as usize], n * BLOCK));
    file.sync_all().unwrap();
    for round in 0..3 {
        fallocate(&file, FallocateFlags::ZERO_RANGE, 0, blocks * BLOCK).unwrap();
        for n in (round..blocks).step_by(3) {
            // The limit may refuse what needs a larger map.
            let _ = file.write_all_at(&[2; BLOCK as usize], n * BLOCK);
        }
        file.sync_all().unwrap();
        assert!(used(&file) <= ROOM, "round {round}: {} bytes past the limit", used(&file) - ROOM);
    }
    drop(file);
    assert!(in_pool(&space) <= ROOM);
    space.down_and_check();
}

/// Small files are not asked to be placed, since they need no map: when they grow they are. Here no two free blocks touch.
#[test]
fn small_files_that_grow_stay_within_the_limit_on_a_disk_in_pieces() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop");
    let state = ground.directory("plain").join("state");
    let mut space = Space::on(ground, &disk);
    space.state = state;
    space.up();
    let others = [disk.join(".filler"), disk.join(".last")];
    let filler = open(&others[0]);
    let mut size = 0;
    for step in [16 << 20, 1 << 20, 64 << 10, BLOCK] {
        while fallocate(&filler, FallocateFlags::empty(), size, step).is_ok() {
            size += step;
        }
    }
    for n in 0..14_000 {
        let free = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&filler, free, (8 << 20) + n * 2 * BLOCK, BLOCK).unwrap();
    }
    rustix::fs::sync();
    // What ext4 keeps back from the filler lies together: this takes it.
    let last = open(&others[1]);
    last.write_all_at(&vec![1; 20 << 20], 0).unwrap();
    last.sync_all().unwrap();
    let dir = limited(&space, "box", MUCH);
    let files: Vec<File> = (0..100).map(|n| open(&dir.join(format!("{n}")))).collect();
    let write = |n: u64| files[n as usize % files.len()].write_all_at(&[1; BLOCK as usize], n / 100 * BLOCK);
    for n in 0..300 {
        write(n).unwrap();
    }
    // Measured, and not placed.
    assert!(files.iter().all(|file| used(file) == 3 * BLOCK));
    until_full(|n| write(300 + n));
    drop(files);
    rustix::fs::sync();
    assert_filled(&dir, MUCH, Below::Ext4.slack() + BLOCK, "on the disk");
    let on_disk = in_pool(&space);
    assert!(on_disk <= MUCH, "{} bytes past the limit on the disk", on_disk.saturating_sub(MUCH));
    for path in others {
        std::fs::remove_file(path).unwrap();
    }
    space.down_and_check();
}

/// A write that counts on its blocks, and something that takes them away, wait for each other.
#[test]
fn what_is_taken_away_beside_overwrites_is_charged_when_it_is_filled_again() {
    let mut space = Below::Ext4.space();
    space.limit(Duration::from_secs(120));
    let dir = limited(&space, "box", ROOM);
    let path = dir.join("file");
    let file = open(&path);
    space.sync();
    let free = || rustix::fs::statvfs(space.pool()).map(|disk| disk.f_bfree * disk.f_frsize).unwrap();
    let empty = free();
    file.write_all_at(&vec![1; ROOM as usize * 3 / 4], 0).unwrap();
    file.sync_all().unwrap();
    let end = ROOM * 3 / 4;
    let stop = AtomicBool::new(false);
    let each = |seed: u64, step: &dyn Fn(u64)| {
        let mut n = seed;
        while !stop.load(Relaxed) {
            n += 16;
            step(n);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| each(0, &|n| drop(file.write_at(&[2; 10_000], somewhere(n, end)))));
        scope.spawn(|| {
            #[repr(align(4096))]
            struct Page([u8; 8192]);
            let page = Box::new(Page([3; 8192]));
            let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            each(1, &|n| drop(direct.write_at(&page.0, somewhere(n, end / BLOCK) * BLOCK)));
        });
        scope.spawn(|| {
            let file = open(&path);
            each(2, &|n| drop(ullage_mount_tests::ring_write(&file, &[4; 16384], somewhere(n, end))));
        });
        scope.spawn(|| {
            let keep = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            each(3, &|n| {
                let zero = if n % 3 == 0 { FallocateFlags::ZERO_RANGE } else { keep };
                fallocate(&file, zero, somewhere(n, end / BLOCK) * BLOCK, 5 * BLOCK).ok();
                if n % 64 == 3 {
                    file.set_len(end / 2).unwrap();
                    file.set_len(end).unwrap();
                }
            });
        });
        scope.spawn(|| {
            let other = open(&dir.join("other"));
            each(4, &|n| {
                if other.write_at(&[5; BLOCK as usize], (n / 16 % 4096) * BLOCK).is_err() {
                    other.set_len(0).unwrap();
                }
            });
        });
        // Of the file system, so that all is counted at one moment; what the pool takes for itself is little.
        scope.spawn(|| each(5, &|_| assert!(free() + ROOM + 4 * BLOCK >= empty, "past the limit on the way")));
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Relaxed);
    });
    drop(file);
    rustix::fs::sync();
    let on_disk = in_pool(&space);
    assert!(on_disk <= ROOM, "{} bytes past the limit on the disk", on_disk.saturating_sub(ROOM));
    space.compare_du(&space.mount);
    space.down_and_check();
}
