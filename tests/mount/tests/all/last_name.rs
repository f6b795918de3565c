//! Files that only the plain tree still has a name for, as where fsck had to give up the directory that their backing files lay in.

use crate::rebuild;
use crate::unborn::is_in_step;
use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, listing};
use ullage_mount_tests::run::{eventually, unmount};
use ullage_mount_tests::space::Space;

/// A space, up, whose plain tree shows two files, one by two names.
fn bed() -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 128);
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(",layout=mirror");
    space.up();
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    for name in ["one", "dir/sub/two"] {
        let mut file = File::create(space.path(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    fs::hard_link(space.path("one"), space.path("dir/again")).unwrap();
    space.sync();
    eventually("the tree follows", Duration::from_secs(20), || is_in_step(&space));
    space
}

/// As fsck leaves it where the directory was damaged that they lay in.
pub fn lose_backing_files(space: &Space) {
    for (path, _) in listing(&space.pool().join(".ullage/2-512")) {
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
}

#[track_caller]
fn expect(space: &Space) {
    for (name, content) in [("one", "one"), ("dir/again", "one"), ("dir/sub/two", "dir/sub/two")] {
        assert_eq!(fs::read_to_string(space.path(name)).unwrap(), content);
    }
    eventually("the tree is as it should be", Duration::from_secs(20), || is_in_step(space));
    for (name, content) in [("one", "one"), ("dir/again", "one"), ("dir/sub/two", "dir/sub/two")] {
        assert_eq!(fs::read_to_string(space.pool().join(name)).unwrap(), content);
    }
}

/// Regression: they passed for files that were never flushed, and empty ones took the place of the last names of their data.
#[test]
fn what_only_the_plain_tree_shows_is_there_again_after_a_kill() {
    let space = bed();
    space.kill();
    unmount(&space.mount);
    lose_backing_files(&space);
    space.up();
    expect(&space);
    assert!(!space.log().contains("was never flushed"), "{}", space.log());
    space.down_and_check();
}

/// Regression: they were dropped, and the next start took the last names of their data from the tree.
#[test]
fn what_only_the_plain_tree_shows_is_there_again_after_a_rebuild() {
    let mut space = bed();
    space.down_and_check();
    lose_backing_files(&space);
    let report = rebuild::rebuild(&mut space, &[]);
    assert!(report["dropped"] == 0 && report["adopted"] == 0, "{report}");
    expect(&space);
    space.down_and_check();
}

/// Regression: what lost its name in the pool unseen went with its name in the tree when it was renamed.
#[test]
fn what_only_the_plain_tree_shows_is_renamed_and_there_again() {
    let space = bed();
    space.down_and_check();
    lose_backing_files(&space);
    space.up();
    assert!(fs::read(space.path("one")).is_err(), "it has lost nothing");
    fs::rename(space.path("dir/sub/two"), space.path("renamed")).unwrap();
    // Of the last names of a file this one goes alone.
    fs::remove_file(space.path("one")).unwrap();
    // Else the tree may never be without that name, and need not save what it has.
    eventually("the tree follows", Duration::from_secs(20), || is_in_step(&space));
    fs::rename(space.path("dir/again"), space.path("one")).unwrap();
    eventually("the tree follows", Duration::from_secs(20), || is_in_step(&space));
    for root in [&space.mount, &space.pool()] {
        assert_eq!(fs::read_to_string(root.join("renamed")).unwrap(), "dir/sub/two");
        assert_eq!(fs::read_to_string(root.join("one")).unwrap(), "one");
        assert!(!root.join("dir/again").exists());
    }
    fs::remove_file(space.path("renamed")).unwrap();
    eventually("the tree follows", Duration::from_secs(20), || is_in_step(&space));
    assert!(!space.pool().join("renamed").exists());
    space.down_and_check();
}
