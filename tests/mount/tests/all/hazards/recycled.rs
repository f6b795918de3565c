//! A backing file is used again only when nobody has it mapped, for reading either: emptying it would end whoever looks at
//! the mapping with SIGBUS, and a new owner's bytes would be seen in it.

use crate::limits::bed::Below;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use ullage_mount_tests::map::Map;
use ullage_mount_tests::space::Space;

const OLD: [u8; 8192] = [0xAA; 8192];

fn churn(space: &Space, maps: &[Map]) {
    let began = Instant::now();
    let mut turn = 0;
    while began.elapsed() < Duration::from_secs(2) {
        for n in 0..10 {
            fs::write(space.path(format!("new-{n}")), [0x55; 8192]).unwrap();
        }
        for n in 0..10 {
            fs::remove_file(space.path(format!("new-{n}"))).unwrap();
        }
        space.sync();
        turn += 1;
        if turn % 5 == 0 {
            for map in maps {
                assert!(map.read().expect("the mapping has lost its file") == OLD, "another file's bytes are mapped");
            }
        }
    }
}

fn mapped(space: &Space) -> Vec<Map> {
    (0..16)
        .map(|n| {
            let name = space.path(format!("old-{n}"));
            fs::write(&name, OLD).unwrap();
            let map = Map::for_reading(&File::open(&name).unwrap(), OLD.len()).unwrap();
            map.read().unwrap();
            map
        })
        .collect()
}

#[test]
fn a_file_mapped_for_reading_keeps_its_bytes_when_it_is_removed() {
    let space = Space::new();
    let maps = mapped(&space);
    for n in 0..16 {
        fs::remove_file(space.path(format!("old-{n}"))).unwrap();
    }
    churn(&space, &maps);
    drop(maps);
    space.down_and_check();
}

#[test]
fn a_file_mapped_for_reading_keeps_its_bytes_over_a_kill_and_its_removal() {
    let space = Space::new();
    if !space.uses_passthrough() {
        // A mapping of a served file ends with its server.
        return;
    }
    let maps = mapped(&space);
    for n in 0..8 {
        fs::remove_file(space.path(format!("old-{n}"))).unwrap();
    }
    space.sync();
    space.kill();
    space.up();
    for n in 8..16 {
        fs::remove_file(space.path(format!("old-{n}"))).unwrap();
    }
    churn(&space, &maps);
    drop(maps);
    space.down_and_check();
}

/// Regression: ext4, xfs and btrfs wrote out at once, at the first close, what was written to a backing file that had been
/// emptied: a new file cost a write to the disk.
fn nothing_is_written_out_at_close(below: Below) {
    let space = below.space();
    let mut seen = HashSet::new();
    let (mut again, mut written_out) = (0, 0);
    for round in 0..6 {
        let names: Vec<_> = (0..60).map(|n| space.path(format!("{round}-{n}"))).collect();
        for name in &names {
            fs::write(name, vec![round; 20_000]).unwrap();
            let backing = File::open(space.backing(name)).unwrap();
            again += u32::from(!seen.insert(backing.metadata().unwrap().ino()));
            written_out += u32::from(!ullage_mount_tests::is_delayed(&backing));
        }
        for name in &names {
            fs::remove_file(name).unwrap();
        }
        space.sync();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(again > 60, "{again} files were used again");
    assert!(written_out < 10, "{written_out} new files were written out");
    space.down_and_check();
}

#[test]
fn what_is_written_to_a_recycled_file_is_not_written_out_at_close_on_ext4() {
    nothing_is_written_out_at_close(Below::Ext4);
}

#[test]
fn what_is_written_to_a_recycled_file_is_not_written_out_at_close_on_xfs() {
    nothing_is_written_out_at_close(Below::Xfs);
}

#[test]
fn what_is_written_to_a_recycled_file_is_not_written_out_at_close_on_btrfs() {
    if Below::Btrfs.is_had() {
        nothing_is_written_out_at_close(Below::Btrfs);
    }
}
