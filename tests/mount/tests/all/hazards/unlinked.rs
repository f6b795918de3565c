//! Files that are open and have no name any more.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

#[test]
fn an_unlinked_file_is_used_on_and_its_room_is_given_back_at_the_end() {
    let space = Space::new();
    let empty = counted(&space.pool()).bytes;
    let name = space.path("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
    file.write_all_at(&vec![3; 16 << 20], 0).unwrap();
    fs::remove_file(&name).unwrap();
    space.sync();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"still", 8 << 20).unwrap();
    let mut back = [0; 6];
    file.read_exact_at(&mut back, 8 << 20).unwrap();
    assert_eq!(&back, b"still\x03");
    file.set_len(20 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20 << 20);
    assert!(counted(&space.pool()).bytes >= empty + (16 << 20), "the backing file is gone too early");
    drop(file);
    eventually("the room is given back", Duration::from_secs(15), || {
        space.sync();
        counted(&space.pool()).bytes < empty + (2 << 20)
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn room_of_many_deleted_files_is_given_back() {
    let space = Space::new();
    let empty = counted(&space.pool()).bytes;
    for n in 0..200 {
        fs::write(space.path(format!("file-{n}")), vec![1; 100_000]).unwrap();
    }
    assert!(counted(&space.pool()).bytes > empty + 15_000_000);
    for n in 0..200 {
        fs::remove_file(space.path(format!("file-{n}"))).unwrap();
    }
    eventually("the room is given back", Duration::from_secs(15), || {
        space.sync();
        counted(&space.pool()).bytes < empty + (4 << 20)
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Names that were made before it were lost with the second they were made in.
#[test]
fn names_of_before_are_durable_once_a_file_without_one_is_opened_with_o_sync() {
    let space = Space::new();
    let names = [libc::O_SYNC, libc::O_DSYNC].map(|way| {
        let name = space.path(format!("before-{way:x}"));
        fs::create_dir(&name).unwrap();
        let flags = libc::O_TMPFILE | way;
        (name, OpenOptions::new().write(true).custom_flags(flags).open(&space.mount).unwrap())
    });
    space.kill();
    space.up();
    for (name, _) in &names {
        assert!(name.is_dir(), "{} is lost", name.display());
    }
    drop(names);
    space.down_and_check();
}
