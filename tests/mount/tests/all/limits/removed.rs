//! Blocks that are taken by madvise(2) from a file that is mapped in the kernel: stores fill the holes again, which nobody sees.

use super::bed::{Below, Mappable, both, limited, take_the_rest, used, writer};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::{LIMIT, eventually};

const ROOM: u64 = 4 << 20;
const PART: u64 = ROOM / 4 * 3;
static PIECE: [u8; 65536] = [2; 65536];

/// Stores into every page, and gives back how much all files below take then.
fn store_all(map: &mut Map, file: &File, bytes: u64, dir: &Path) -> u64 {
    for page in 0..bytes as usize / 4096 {
        map.store(page * 4096, 7);
    }
    map.sync().unwrap();
    file.sync_all().unwrap();
    used(dir)
}

/// Regression: what a file got at its end hid the blocks that it had lost, so that nothing was charged for it, and stores filled the holes
/// past the limit.
#[test]
fn what_is_appended_does_not_hide_what_was_taken_through_a_mapping() {
    for (below, lengthens) in Below::all().flat_map(|below| [(below, false), (below, true)]) {
        let Mappable { space, dir, file, mapped, .. } = Mappable::new(below, ROOM, PART);
        for _ in 0..4 {
            let size = file.metadata().unwrap().len();
            Map::new(&mapped, size as usize).unwrap().remove(0, size as usize).unwrap();
            for at in (size..size + PART).step_by(PIECE.len()) {
                let longer =
                    if lengthens { file.set_len(at + PIECE.len() as u64) } else { file.write_at(&PIECE, at).map(drop) };
                if longer.is_err() {
                    break;
                }
            }
        }
        let size = file.metadata().unwrap().len();
        let charged = used(&dir);
        let mut map = Map::new(&mapped, size as usize).unwrap();
        let taken = store_all(&mut map, &mapped, size, &dir);
        drop((map, mapped, file));
        let how = format!("{below:?}, by truncate(2): {lengthens}");
        assert!(taken <= ROOM && charged >= size, "{how}: {taken} are taken, {charged} were charged for {size}");
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: so did blocks that it was given behind its end.
#[test]
fn what_lies_behind_the_end_does_not_hide_what_was_taken_through_a_mapping() {
    for (below, before) in Below::all().flat_map(|below| [(below, false), (below, true)]) {
        let Mappable { space, dir, file, mapped, .. } = Mappable::new(below, 2 * ROOM, ROOM);
        let mut map = Map::new(&mapped, ROOM as usize).unwrap();
        let allocate = || fallocate(&file, FallocateFlags::KEEP_SIZE, ROOM, PART).unwrap();
        if before {
            allocate();
        }
        map.remove(0, ROOM as usize - if before { 0 } else { (ROOM - PART) as usize }).unwrap();
        if !before {
            allocate();
        }
        file.sync_all().unwrap();
        let other = take_the_rest(&dir);
        let taken = store_all(&mut map, &mapped, ROOM, &dir);
        other.sync_all().unwrap();
        assert!(taken.max(used(&dir)) <= 2 * ROOM, "{below:?}: {taken}");
        drop((map, mapped, file, other));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: a write into such a hole was refused at the limit, though the file was charged for just those blocks.
#[test]
fn what_was_taken_through_a_mapping_can_be_written_again_at_the_limit() {
    // Elsewhere the map of the file needs some room.
    for below in Below::all().filter(|below| below.slack() == 0) {
        let Mappable { space, dir, path, file, mapped } = Mappable::new(below, ROOM, PART);
        let map = Map::new(&mapped, PART as usize).unwrap();
        let other = take_the_rest(&dir);
        map.remove(0, PART as usize).unwrap();
        for at in (0..PART).step_by(PIECE.len()) {
            file.write_all_at(&PIECE, at).unwrap_or_else(|error| panic!("{below:?}, at {at}: {error}"));
        }
        file.sync_all().unwrap();
        assert!(used(&dir) <= ROOM, "{below:?}");
        // Whoever comes to map it fills the holes as well.
        map.remove(0, PART as usize).unwrap();
        drop(both(&path).unwrap_or_else(|error| panic!("{below:?}: {error}")));
        drop((map, mapped, file, other));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: a range that was zeroed had its data overwritten, and its holes were left as they were.
#[test]
fn a_range_that_is_zeroed_gets_the_blocks_that_were_taken_through_a_mapping() {
    for below in Below::all() {
        let Mappable { space, dir, file, mapped, .. } = Mappable::new(below, ROOM, PART);
        let map = Map::new(&mapped, PART as usize).unwrap();
        map.remove(0, PART as usize).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 0, PART / 2).unwrap();
        drop((file, map, mapped));
        eventually("what is a hole is not charged", LIMIT, || used(&dir) < PART);
        assert!(used(&dir) >= PART / 2, "{below:?}: {}", used(&dir));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Regression: to punch or zero a range without data left a file's times as they were.
#[test]
fn to_punch_or_zero_what_has_no_data_changes_the_times_of_a_file_that_is_mapped() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        fs::write(&path, vec![1; 65536]).unwrap();
        let file = writer(&path);
        fallocate(&file, FallocateFlags::empty(), 0, ROOM / 4).unwrap();
        let mapped = both(&path).unwrap();
        for (mode, at) in [
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 131_072),
            (FallocateFlags::ZERO_RANGE, 131_072),
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, ROOM),
        ] {
            let times = || path.metadata().map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap();
            let before = times();
            eventually("times move", LIMIT, || {
                fallocate(&file, mode, at, 4096).unwrap();
                times() > before
            });
        }
        drop((mapped, file));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}
