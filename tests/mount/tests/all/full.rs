//! A disk that is full, with catalog and pool on it.

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

/// Fills a file until nothing fits any more.
fn fill(file: &mut File) {
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
}

/// The catalog could write nothing on a disk that a writer had filled: no file could be removed, and the space could be neither
/// started nor checked any more.
#[test]
fn a_space_that_filled_the_disk_of_its_catalog_is_started_and_files_are_removed() {
    let mut ground = Ground::new();
    // Without the blocks that ext4 reserves for root: other file systems have none.
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    let space = Space::on(ground, &disk);
    space.up();
    for round in 0..3 {
        let mut big = File::create(space.path("big")).unwrap();
        fs::write(space.path("kept"), format!("{round}")).unwrap();
        space.sync();
        fill(&mut big);
        drop(big);
        // Names in plenty: whatever the catalog has room for is used up.
        for n in 0..20_000 {
            if fs::create_dir(space.path(format!("{round}-{n}"))).is_err() {
                break;
            }
        }
        let _ = File::open(&space.mount).and_then(|root| root.sync_all());
        space.down();
        space.up();
        fs::remove_file(space.path("big")).unwrap();
        space.sync();
        assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), format!("{round}"));
        let room = || rustix::fs::statvfs(&disk).is_ok_and(|stat| stat.f_bavail * stat.f_frsize > 64 << 20);
        eventually("the room is given back", Duration::from_secs(20), room);
        // With room enough again.
        space.down();
        space.up();
    }
    space.down_and_check();
}

/// Writes in passthrough mode were made with root's credentials: any user could fill what ext4 reserves for root, and the
/// catalog on the same disk had nothing left.
#[test]
fn what_is_reserved_for_root_is_left_to_the_catalog() {
    leaves_what_is_reserved(256, |_| {}, fill);
}

/// So were writes that go through the server: those of limited files, and all where there is no passthrough.
#[test]
fn what_is_reserved_for_root_is_left_also_by_limited_files() {
    let limit = |space: &Space| crate::limits::bed::limit(&["1T"], &space.mount);
    leaves_what_is_reserved(256, limit, fill);
    // So much room that at first nobody looks whether what is reserved is near.
    leaves_what_is_reserved(2048, limit, fill);
    leaves_what_is_reserved(256, limit, |file| {
        let allocate =
            |mib: u64| rustix::fs::fallocate(&*file, rustix::fs::FallocateFlags::empty(), mib << 20, 1 << 20);
        let _ = (0..).try_for_each(allocate);
    });
}

fn leaves_what_is_reserved(mib: u64, prepare: impl Fn(&Space), fill: impl Fn(&mut File)) {
    let mut ground = Ground::new();
    let disk = ground.image("disk", mib, "mkfs.ext4", &["-q", "-F", "-m", "10"], "loop");
    let space = Space::on(ground, &disk);
    space.up();
    space.assert_passthrough();
    prepare(&space);
    let mut big = File::create(space.path("big")).unwrap();
    fill(&mut big);
    let stat = rustix::fs::statvfs(&disk).unwrap();
    assert!(stat.f_bfree > stat.f_blocks / 12, "{} of {} blocks are left", stat.f_bfree, stat.f_blocks);
    for n in 0..100 {
        fs::create_dir(space.path(format!("{n}"))).unwrap();
        space.sync();
    }
    drop(big);
    fs::remove_file(space.path("big")).unwrap();
    space.down_and_check();
}
