//! Pools whose file system does not tell what was allocated from holes.

use super::bed::{Below, limited, until_full, used};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

const ROOM: u64 = 2 << 20;

/// Regression: what was allocated in a pool on a file system in user space could not be written at the limit.
#[test]
fn what_was_allocated_can_be_written_at_the_limit_where_that_does_not_show() {
    let below = Below::Ext4.space();
    let far = below.path("pool");
    fs::create_dir(&far).unwrap();
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={}", far.display())];
    space.up();
    let dir = limited(&space, "box", ROOM);
    for reads in [false, true] {
        let path = dir.join("file");
        let file = OpenOptions::new().write(true).read(reads).create_new(true).open(&path).unwrap();
        file.write_all_at(b"data", ROOM / 4).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, ROOM / 2).unwrap();
        let mut data = [0; 4];
        File::open(&path).unwrap().read_exact_at(&mut data, ROOM / 4).unwrap();
        assert_eq!((&data, file.metadata().unwrap().len()), (b"data", ROOM / 2));
        let other = File::create(dir.join("other")).unwrap();
        until_full(|n| other.write_all_at(&[1; 4096], n * 4096));
        let piece = vec![2; 65536];
        for at in (0..ROOM / 2).step_by(piece.len()) {
            file.write_all_at(&piece, at).unwrap_or_else(|error| panic!("reads: {reads}, at {at}: {error}"));
        }
        file.sync_all().unwrap();
        // More than there is room for changes nothing.
        let before = file.metadata().unwrap().len();
        assert!(fallocate(&file, FallocateFlags::empty(), 0, 2 * ROOM).is_err());
        assert_eq!(file.metadata().unwrap().len(), before);
        assert!(used(&dir) <= ROOM, "{} bytes past the limit", used(&dir) - ROOM);
        drop((file, other));
        fs::remove_file(&path).unwrap();
        fs::remove_file(dir.join("other")).unwrap();
    }
    space.down_and_check();
    below.down_and_check();
}
