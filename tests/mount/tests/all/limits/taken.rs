//! Blocks that are taken away, or given, beside others: nothing passes a limit by that, and nothing that is stored is lost.

use super::bed::{Below, Mappable, both, is_full, limit, limited, take_the_rest, used, writer};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::eventually;

const ROOM: u64 = 4 << 20;
/// What is written at a time.
static PIECE: [u8; 65536] = [4; 65536];

/// Regression: a file that was about to lose its holes, since somebody wanted to map it, was taken for one without: punching wrote zeros into all
/// of them, past any limit.
#[test]
fn punching_holes_beside_who_wants_to_map_the_file_takes_no_blocks() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("sparse");
        File::create(&path).unwrap().set_len(12 * ROOM).unwrap();
        let file = writer(&path);
        let reader = (below != Below::Tmpfs).then(|| File::open(&path).unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let _ = both(&path);
                }
            });
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                for mode in [FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE] {
                    let _ = fallocate(&file, mode, 0, 12 * ROOM);
                }
            }
            over.store(true, Relaxed);
        });
        file.sync_all().unwrap();
        assert!(used(&dir) <= ROOM, "{below:?}: {} bytes past the limit", used(&dir) - ROOM);
        drop((file, reader));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: on tmpfs an allocation wrote zeros over holes as they had been, and over what somebody stored into them meanwhile.
#[test]
fn what_is_stored_while_the_file_is_allocated_is_kept() {
    const BYTES: u64 = 48 << 20;
    for bounded in [false, true] {
        let space = Below::Tmpfs.space();
        limited(&space, "box", ROOM);
        let dir = if bounded { limited(&space, "ample", 2 * BYTES) } else { space.path("") };
        let file = both(&dir.join("file")).unwrap();
        file.set_len(BYTES).unwrap();
        let mut map = Map::new(&file, BYTES as usize).unwrap();
        let pages = BYTES as usize / 4096;
        std::thread::scope(|scope| {
            scope.spawn(|| fallocate(&file, FallocateFlags::empty(), 0, BYTES).unwrap());
            // Not in order, as the allocation goes.
            for page in (0..pages).map(|at| at * 7919 % pages) {
                map.store(page * 4096, 5);
            }
        });
        let lost = (0..pages).filter(|page| map.load(page * 4096) != 5).count();
        assert_eq!(lost, 0, "of {pages}, bounded: {bounded}");
        map.sync().unwrap();
        drop((map, file));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: what a file had been given its blocks for was believed to have them after they had been taken away through a mapping, and the room
/// given to others.
#[test]
fn what_lost_its_blocks_through_a_mapping_takes_room_when_it_is_written_again() {
    const HALF: usize = (ROOM / 4 * 3) as usize;
    for (below, before) in Below::all().flat_map(|below| [(below, false), (below, true)]) {
        let space = below.space();
        let dir = if before { space.path("box") } else { limited(&space, "box", ROOM) };
        let path = dir.join("file");
        let mut early = None;
        if before {
            fs::create_dir(&dir).unwrap();
            let file = both(&path).unwrap();
            file.set_len(HALF as u64).unwrap();
            early = Some(Map::new(&file, HALF).unwrap());
            limit(&[&format!("{}B", ROOM + 4096)], &dir);
        }
        let file = writer(&path);
        for _ in 0..3 {
            file.write_all_at(&vec![1; HALF], 0).unwrap();
            file.sync_all().unwrap();
        }
        if let Some(map) = &early {
            map.remove(0, HALF).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            file.metadata().unwrap();
        } else {
            let mapped = both(&path).unwrap();
            Map::new(&mapped, HALF).unwrap().remove(0, HALF).unwrap();
            drop(mapped);
        }
        let file = if before {
            file
        } else {
            drop(file);
            eventually("what was taken away is not charged", Duration::from_secs(30), || used(&dir) < ROOM / 4);
            writer(&path)
        };
        let other = take_the_rest(&dir);
        for at in (0..HALF).step_by(65536) {
            let _ = file.write_all_at(&PIECE, at as u64);
        }
        file.sync_all().unwrap();
        other.sync_all().unwrap();
        drop((file, other, early));
        let past = || used(&dir).saturating_sub(ROOM);
        eventually("files are measured", Duration::from_secs(5), || past() == 0 || used(&dir) > ROOM);
        assert_eq!(past(), 0, "{below:?}, mapped before: {before}");
        space.down_and_check();
    }
}

/// Regression: a change of length, also to the same one, let go of what was charged for them.
#[test]
fn what_lost_its_blocks_through_a_mapping_stays_charged_when_it_is_given_its_length() {
    const HALF: usize = (ROOM / 4 * 3) as usize;
    for below in Below::all() {
        let Mappable { space, dir, file, mapped, .. } = Mappable::new(below, ROOM, HALF as u64);
        let mut map = Map::new(&mapped, HALF).unwrap();
        map.remove(0, HALF).unwrap();
        file.set_len(HALF as u64).unwrap();
        let other = take_the_rest(&dir);
        for page in 0..HALF / 4096 {
            map.store(page * 4096, 5);
        }
        let _ = map.sync();
        other.sync_all().unwrap();
        drop((map, mapped, file, other));
        assert!(used(&dir) <= ROOM, "{below:?}: {} bytes past the limit", used(&dir) - ROOM);
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: what was refused had been done in part: the data was zeroed, and then there was no room behind it.
#[test]
fn a_range_that_cannot_be_zeroed_as_a_whole_is_left_as_it_was() {
    for below in Below::all() {
        let Mappable { space, path, file, mapped, .. } = Mappable::new(below, ROOM, 65536);
        assert!(is_full(&fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 2 * ROOM).map_err(Into::into)));
        assert!(fs::read(&path).unwrap() == vec![1; 65536], "{below:?}");
        drop((file, mapped));
        space.down_and_check();
    }
}
