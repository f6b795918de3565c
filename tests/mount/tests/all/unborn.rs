//! Plain trees where the file system says no times of birth, of earlier versions, and without inodes: what is ours is told by names.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// A space, up, with one `mirror` pool on an ext4 with small inodes and the state elsewhere; and that disk.
fn space(more: &[&str]) -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let flags = [&["-q", "-F", "-I", "128"], more].concat();
    let disk = ground.image("pool-disk", 256, "mkfs.ext4", &flags, "loop");
    let state = ground.directory("state-disk");
    let mut space = Space::on(ground, &state);
    fs::create_dir(disk.join("pool")).unwrap();
    space.pools = vec![format!("main={},layout=mirror", disk.join("pool").display())];
    space.up();
    (space, disk)
}

pub fn is_in_step(space: &Space) -> bool {
    ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json()["trees_behind"] == 0
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Their names in the pool went before the tree came to its own, as after a kill that found the tree behind: then these were taken for copies
/// for ever.
#[test]
fn files_that_were_removed_before_a_kill_go_from_a_tree_without_times_of_birth() {
    let (space, _) = space(&[]);
    let shown = space.pool().join("dir");
    fs::create_dir(space.path("dir")).unwrap();
    let name = |n: usize| space.path(format!("dir/file-{n}"));
    (0..50).for_each(|n| fs::write(name(n), "content").unwrap());
    eventually("the tree shows all", Duration::from_secs(30), || files(&shown) == 50 && is_in_step(&space));
    // So the tree cannot follow.
    program("chattr", ["+i".as_ref(), shown.as_os_str()]).ok();
    (0..50).for_each(|n| fs::remove_file(name(n)).unwrap());
    space.sync();
    eventually("they are taken back", Duration::from_secs(30), || {
        let leaves = space.pool().join(".ullage/2-512");
        program("find", [leaves.as_os_str(), "-links".as_ref(), "2".as_ref(), "-type".as_ref(), "f".as_ref()])
            .ok()
            .is_empty()
    });
    space.kill();
    program("chattr", ["-i".as_ref(), shown.as_os_str()]).ok();
    assert_eq!(files(&shown), 50, "the tree followed");
    space.up();
    eventually("the tree is as it should be", Duration::from_secs(30), || is_in_step(&space));
    assert_eq!(files(&shown), 0);
    eventually("none of them is kept", Duration::from_secs(20), || {
        files(&space.pool().join(".ullage/quarantine")) == 0
    });
    space.down_and_check();
}

/// The end waits for nobody who waits for the tree: what has left it is gone when the space is down.
#[test]
fn what_was_removed_just_before_the_end_goes_from_a_tree_without_times_of_birth() {
    let (space, _) = space(&[]);
    let pool = space.pool();
    (0..300).for_each(|n| fs::write(space.path(format!("file-{n}")), "content").unwrap());
    eventually("the tree shows all", Duration::from_secs(30), || is_in_step(&space) && pool.join("file-299").exists());
    (0..300).for_each(|n| fs::remove_file(space.path(format!("file-{n}"))).unwrap());
    space.sync();
    space.down_and_check();
    assert!((0..300).all(|n| !pool.join(format!("file-{n}")).exists()));
    assert_eq!(files(&pool.join(".ullage/quarantine")), 0);
}

/// Without times of birth its attributes are those that this version writes, and it was taken for a tree in step.
#[test]
fn links_and_fifos_of_an_earlier_version_are_ours_from_the_first_start_on() {
    let (space, _) = space(&[]);
    let pool = space.pool();
    symlink("target", space.path("link")).unwrap();
    program("mkfifo", [space.path("fifo").as_os_str()]).ok();
    space.down_and_check();
    fs::remove_dir_all(pool.join(".ullage/.names")).unwrap();
    space.up();
    eventually("all is looked at", Duration::from_secs(20), || is_in_step(&space));
    fs::remove_file(space.path("link")).unwrap();
    fs::remove_file(space.path("fifo")).unwrap();
    space.down_and_check();
    assert!(pool.join("link").symlink_metadata().is_err() && pool.join("fifo").symlink_metadata().is_err());
}

/// The directory of first names, which earlier versions have not, was made or the start refused.
#[test]
fn a_pool_of_an_earlier_version_without_inodes_is_started() {
    let (space, disk) = space(&["-N", "2048"]);
    let pool = space.pool();
    symlink("target", space.path("link")).unwrap();
    fs::write(space.path("file"), "content").unwrap();
    space.down_and_check();
    fs::remove_dir_all(pool.join(".ullage/.names")).unwrap();
    let taken = disk.join("taken");
    fs::create_dir(&taken).unwrap();
    while File::create(taken.join(files(&taken).to_string())).is_ok() {}
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    fs::remove_file(space.path("file")).unwrap();
    space.sync();
    fs::remove_dir_all(&taken).unwrap();
    eventually("there is room again", Duration::from_secs(30), || symlink("other", space.path("later")).is_ok());
    eventually("the tree follows", Duration::from_secs(30), || pool.join("later").symlink_metadata().is_ok());
    space.down_and_check();
    space.up();
    eventually("all is looked at", Duration::from_secs(20), || is_in_step(&space));
    for name in ["link", "later"] {
        fs::remove_file(space.path(name)).unwrap();
    }
    space.down_and_check();
    for name in ["file", "link", "later"] {
        assert!(pool.join(name).symlink_metadata().is_err(), "{name} is still there");
    }
}

/// It was told of once, and missing as long as the space was up, though nothing was said to be behind.
#[test]
fn what_a_plain_tree_had_no_room_for_is_shown_once_there_is() {
    let (space, disk) = space(&["-N", "256"]);
    eventually("the tree is there", Duration::from_secs(10), || is_in_step(&space));
    let hogs: Vec<PathBuf> = (0..1000).map(|n| disk.join(format!("hog-{n}"))).collect();
    let taken = hogs.iter().take_while(|path| File::create(path).is_ok()).count();
    assert!(taken < hogs.len());
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    symlink("sub", space.path("dir/link")).unwrap();
    eventually("it is refused", Duration::from_secs(10), || space.log().contains("does not show"));
    assert!(!is_in_step(&space) && !space.pool().join("dir").exists());
    hogs[..taken].iter().for_each(|path| fs::remove_file(path).unwrap());
    eventually("it is shown", Duration::from_secs(20), || is_in_step(&space));
    assert!(space.pool().join("dir/sub").is_dir() && space.pool().join("dir/link").is_symlink());
    space.down_and_check();
    assert!(space.state.join("trees-in-step").exists());
}
