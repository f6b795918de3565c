//! Mappings for reading on tmpfs, which gives a hole its page when it is read through one.

use super::bed::{Below, in_pool, is_full, limited, reserved};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::{LIMIT, eventually};

const ROOM: u64 = 1 << 20;

fn hollow(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

/// Loads from every page of a file, through a mapping for reading only.
fn load_all(file: &File, bytes: u64) -> Map {
    let map = Map::for_reading(file, bytes as usize).unwrap();
    load_from(&map, 0, bytes);
    map
}

fn load_from(map: &Map, start: u64, end: u64) {
    for page in start / 4096..end / 4096 {
        assert_eq!(map.load(page as usize * 4096), 0);
    }
}

/// It filled 300 MiB below a limit of 5.
#[test]
fn loads_from_a_mapping_fill_no_hole_beyond_a_limit_on_tmpfs() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", ROOM);
    let path = dir.join("file");
    hollow(&path, 32 * ROOM);
    let map = load_all(&File::open(&path).unwrap(), 32 * ROOM);
    // Also where it becomes longer meanwhile.
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.set_len(48 * ROOM).unwrap();
    let longer = load_all(&File::open(&path).unwrap(), 48 * ROOM);
    assert_eq!(in_pool(&space), 0);
    assert_eq!(counted(&dir).bytes, 4096);
    writer.write_all_at(&[1; 4096], 40 * ROOM).unwrap();
    assert_eq!(longer.load(40 * ROOM as usize), u64::from_ne_bytes([1; 8]), "it shows what is written");
    drop((map, longer, writer));
    space.down_and_check();
}

#[test]
fn loads_from_a_mapping_take_nothing_of_a_reserve_on_tmpfs() {
    let (space, _) = reserved();
    let path = space.path("file");
    hollow(&path, 48 * ROOM);
    let map = load_all(&File::open(&path).unwrap(), 48 * ROOM);
    assert_eq!(in_pool(&space), 0);
    drop(map);
    space.down_and_check();
}

/// Beside who writes in the kernel a reader is mapped there too.
#[test]
fn a_file_that_comes_to_be_read_beside_a_writer_has_no_holes_on_tmpfs() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 8 * ROOM);
    let path = dir.join("file");
    let writer = File::create(&path).unwrap();
    writer.set_len(16 * ROOM).unwrap();
    let outcome = File::open(&path);
    assert!(is_full(&outcome), "its holes do not fit: {outcome:?}");
    writer.set_len(4 * ROOM).unwrap();
    let reader = File::open(&path).unwrap();
    assert_eq!(counted(&dir).bytes, 4096 + 4 * ROOM, "they are charged before anybody can fill them");
    assert!(is_full(&writer.set_len(16 * ROOM)));
    writer.set_len(6 * ROOM).unwrap();
    let map = load_all(&reader, 6 * ROOM);
    assert_eq!(counted(&dir).bytes, 4096 + 6 * ROOM);
    drop((map, reader, writer));
    eventually("it is as any other file again", LIMIT, || {
        OpenOptions::new().write(true).open(&path).unwrap().set_len(16 * ROOM).is_ok()
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The leaf of such a file was not marked, and the file counted as not written to.
#[test]
fn what_loads_from_a_mapping_filled_is_counted_also_after_a_kill_on_tmpfs() {
    let space = Below::Tmpfs.space();
    if !space.uses_passthrough() {
        return;
    }
    let path = space.path("file");
    hollow(&path, 32 * ROOM);
    // Nobody has it open any more.
    std::thread::sleep(Duration::from_secs(4));
    space.sync();
    let map = Map::for_reading(&File::open(&path).unwrap(), 32 * ROOM as usize).unwrap();
    load_from(&map, 0, 8 * ROOM);
    eventually("what is filled is seen", LIMIT, || fs::metadata(&path).unwrap().blocks() * 512 == 8 * ROOM);
    // The mapping outlives its handle, and what was measured.
    std::thread::sleep(Duration::from_secs(4));
    load_from(&map, 8 * ROOM, 16 * ROOM);
    space.kill();
    space.up();
    assert_eq!(fs::metadata(&path).unwrap().blocks() * 512, 16 * ROOM);
    assert_eq!(counted(&space.mount).bytes, 4096 + 16 * ROOM);
    load_from(&map, 16 * ROOM, 24 * ROOM);
    drop(map);
    eventually("what was filled since is counted", LIMIT, || counted(&space.mount).bytes == 4096 + 24 * ROOM);
    space.down_and_check();
}
