//! What close(2) says of stores into a mapping that found no room.

use super::bed::{Below, assert_filled, limited};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::space::Space;
use ullage_mount_tests::{close, with_own_descriptors};

const ROOM: u64 = 1 << 20;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A file of a limited directory, open and mapped; it is long enough to be stored to far beyond the limit.
fn mapped(space: &Space, name: &str) -> (std::path::PathBuf, File, Map) {
    let dir = limited(space, name, ROOM);
    let file = open(&dir.join("file"));
    file.set_len(4 * ROOM).unwrap();
    let map = Map::new(&file, 4 << 20).unwrap();
    (dir, file, map)
}

fn store(map: &mut Map, bytes: u64) {
    (0..bytes as usize).step_by(4096).for_each(|at| map.store(at, 1));
}

#[track_caller]
fn assert_lost(outcome: io::Result<()>) {
    let error = outcome.expect_err("stores were lost, and close(2) says nothing").raw_os_error();
    assert!(matches!(error, Some(libc::ENOSPC | libc::EDQUOT | libc::EIO)), "{error:?}");
}

#[test]
fn stores_that_found_no_room_are_told_by_close() {
    let space = Below::Ext4.space();
    with_own_descriptors(|| are_told(&space));
    space.down_and_check();
}

fn are_told(space: &Space) {
    let (dir, file, mut map) = mapped(space, "unmapped-first");
    let reader = File::open(dir.join("file")).unwrap();
    store(&mut map, 4 * ROOM);
    drop(map);
    close(reader).expect("who only reads lost nothing, and is told of nothing");
    assert_lost(close(file));
    close(open(&dir.join("file"))).expect("it is told once");
    assert_filled(&dir, ROOM, Below::Ext4.slack() + 4096, "stored and unmapped");

    // What was stored until then is written back by close(2) itself.
    let (dir, file, mut map) = mapped(space, "closed-first");
    store(&mut map, 4 * ROOM);
    assert_lost(close(file));
    // Of what comes later there is no close(2) that could tell: the limit holds all the same.
    store(&mut map, 4 * ROOM);
    drop(map);
    assert_filled(&dir, ROOM, Below::Ext4.slack() + 4096, "stored and closed");

    let (_, file, mut map) = mapped(space, "with-room");
    store(&mut map, ROOM / 2);
    drop(map);
    close(file).expect("all of it found room");
}
