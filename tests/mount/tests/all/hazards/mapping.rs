//! A mapping outlives RELEASE and goes on writing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

fn map(name: &Path, length: usize) -> Map {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(name).unwrap();
    file.set_len(length as u64).unwrap();
    Map::new(&file, length).unwrap()
}

#[test]
fn stores_after_release_are_in_bytes_size_and_times() {
    let space = Space::new();
    let name = space.path("mapped");
    let mut map = map(&name, 1 << 20);
    // Longer than the daemon keeps an unused backing file open.
    std::thread::sleep(Duration::from_millis(2600));
    let before = SystemTime::now();
    map.write(500_000, b"late");
    map.sync().unwrap();
    let content = fs::read(&name).unwrap();
    assert_eq!(&content[500_000..500_004], b"late");
    assert_eq!(fs::metadata(&name).unwrap().len(), 1 << 20);
    eventually("the time of the store is seen", Duration::from_secs(3), || {
        fs::metadata(&name).unwrap().modified().unwrap() + Duration::from_millis(20) >= before
    });
    assert!(fs::metadata(&name).unwrap().blocks() >= 8, "the page is not counted");
    // Once more, and then everything goes; the record must hold what the backing file says.
    std::thread::sleep(Duration::from_millis(50));
    let before = SystemTime::now();
    map.write(900_000, b"last");
    drop(map);
    eventually("the time of the last store is seen", Duration::from_secs(3), || {
        fs::metadata(&name).unwrap().modified().unwrap() + Duration::from_millis(20) >= before
    });
    space.compare_du(&space.mount);
    space.down();
    space.up();
    let meta = fs::metadata(&name).unwrap();
    assert!(meta.modified().unwrap() + Duration::from_millis(20) >= before, "the time went with the daemon");
    assert_eq!(&fs::read(&name).unwrap()[900_000..900_004], b"last");
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn stores_through_the_server_are_in_times_and_blocks_once_written_back() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    space.flags = vec!["--no-passthrough".into()];
    space.up();
    let name = space.path("mapped");
    let mut map = map(&name, 1 << 20);
    std::thread::sleep(Duration::from_millis(20));
    let before = fs::metadata(&name).unwrap();
    map.write(500_000, b"stored");
    map.sync().unwrap();
    eventually("the store is seen", Duration::from_secs(3), || {
        let now = fs::metadata(&name).unwrap();
        now.modified().unwrap() > before.modified().unwrap() && now.blocks() > before.blocks()
    });
    drop(map);
    space.down_and_check();
}

#[test]
fn a_backing_file_is_not_used_again_while_it_is_mapped() {
    let space = Space::new();
    let mut maps = Vec::new();
    for n in 0..32 {
        let name = space.path(format!("mapped-{n}"));
        maps.push(map(&name, 8192));
        fs::remove_file(&name).unwrap();
    }
    space.sync();
    // Longer than anything lingers.
    for round in 0..5 {
        for n in 0..40 {
            fs::write(space.path(format!("new-{round}-{n}")), [7; 8192]).unwrap();
        }
        for map in &mut maps {
            map.write(4000, &[0xEE; 200]);
        }
        space.sync();
        std::thread::sleep(Duration::from_millis(600));
    }
    for round in 0..5 {
        for n in 0..40 {
            let name = space.path(format!("new-{round}-{n}"));
            assert!(fs::read(&name).unwrap() == [7; 8192], "{} holds what was stored elsewhere", name.display());
        }
    }
    drop(maps);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_mapping_and_a_descriptor_see_each_other() {
    let space = Space::new();
    let name = space.path("file");
    let mut map = map(&name, 65536);
    let file = OpenOptions::new().read(true).write(true).open(&name).unwrap();
    for at in (0..65536usize).step_by(4096) {
        map.write(at, b"stored");
        let mut seen = [0; 6];
        file.read_exact_at(&mut seen, at as u64).unwrap();
        assert_eq!(&seen, b"stored");
    }
    drop((map, file));
    space.down_and_check();
}

/// The attributes of a file that was only written to are believed for longer than those of one that can be mapped: the
/// mapping must end that.
#[test]
fn stores_into_a_file_that_was_only_written_to_before_are_seen_as_soon() {
    let space = Space::new();
    let name = space.path("file");
    fs::write(&name, [b'x'; 8192]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let modified = || fs::metadata(&name).unwrap().modified().unwrap();
    let written = modified();
    let file = OpenOptions::new().read(true).write(true).open(&name).unwrap();
    let mut map = Map::new(&file, 8192).unwrap();
    for (offset, before) in [(0, written), (4096, modified())] {
        std::thread::sleep(Duration::from_millis(20));
        map.write(offset, b"late");
        map.sync().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(modified() > before, "the store at {offset} is not seen");
    }
}
