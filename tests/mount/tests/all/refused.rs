//! A pool with most room that takes no files keeps none from the next one.

use crate::pools::pool_of;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

const MIB: usize = 1 << 20;

/// Has a tmpfs take no more files: by what it is mounted with.
type Closes = fn(&Path) -> String;

const WITHOUT_INODES: Closes = |disk| {
    let stat = rustix::fs::statvfs(disk).unwrap();
    format!("remount,nr_inodes={}", stat.f_files - stat.f_ffree)
};
const READ_ONLY: Closes = |_| "remount,ro".to_owned();

/// Whoever wrote to a file of a full pool was refused, and a pool that was to be emptied kept its files, as long as the roomiest one had no
/// inodes or was read-only: it alone was asked.
fn files_go_to_the_next(closes: Closes) {
    let mut ground = Ground::new();
    let disks =
        [("full", 8 << 10), ("next", 64 << 10), ("roomy", 256 << 10)].map(|(name, kib)| ground.tmpfs(name, kib));
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = disks.iter().map(|disk| format!("{0}={1}", name(disk), disk.display())).collect();
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    let mut file = File::create(space.path("grows")).unwrap();
    file.write_all(&vec![1; MIB]).unwrap();
    fs::write(space.path("stays"), "stays").unwrap();
    assert_eq!(pool_of(&space, &space.path("grows")), "full");
    program("mount", ["-o", &closes(&disks[2]), disks[2].to_str().unwrap()]).ok();
    file.write_all(&vec![2; 16 * MIB]).unwrap();
    drop(file);
    assert_eq!(pool_of(&space, &space.path("grows")), "next");
    assert!(fs::read(space.path("grows")).unwrap() == [vec![1; MIB], vec![2; 16 * MIB]].concat());
    assert_eq!(pool_of(&space, &space.path("stays")), "full");
    space.pool_command("remove", &["full"]).ok();
    assert_eq!(pool_of(&space, &space.path("stays")), "next");
    program("mount", ["-o", "remount,rw,nr_inodes=0", disks[2].to_str().unwrap()]).ok();
    space.down_and_check();
}

fn name(disk: &Path) -> &str {
    disk.file_name().unwrap().to_str().unwrap()
}

#[test]
fn files_go_to_the_next_pool_where_the_roomiest_has_no_inodes() {
    files_go_to_the_next(WITHOUT_INODES);
}

#[test]
fn files_go_to_the_next_pool_where_the_roomiest_is_read_only() {
    files_go_to_the_next(READ_ONLY);
}
