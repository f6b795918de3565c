//! Paths that are not UTF-8, or hold what others take for a sign.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use ullage_mount_tests::binary;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{run, ullage};
use ullage_mount_tests::space::Space;

fn odd() -> &'static OsStr {
    OsStr::from_bytes(b"no-text-\xFF")
}

/// Regression: `du`, `limit` and `stat` failed for everybody as long as anybody had anything mounted on such a path. Here in a namespace
/// of its own, so that no other test meets it.
#[test]
fn a_mount_on_a_path_that_is_no_text_is_in_nobodys_way() {
    let space = Space::plain();
    let place = space.ground.path().join(odd());
    fs::create_dir(&place).unwrap();
    for command in ["du", "limit", "stat"] {
        let mut beside = Command::new("unshare");
        beside.args(["-m", "sh", "-c", "mount -t tmpfs none \"$1\" && shift && exec \"$@\"", "sh"]);
        run(beside.arg(&place).arg(binary::path()).arg(command).arg(&space.mount)).ok();
    }
}

/// Regression: the helper of ordinary users takes commas for its own, so the mount says another source, and it was not found.
#[test]
fn a_state_directory_with_a_comma_is_found_by_the_mount_point() {
    let ground = Ground::new();
    let (disk, pool) = (ground.directory("disk,of,three"), ground.directory("pool"));
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={}", pool.display())];
    space.flags = vec!["--transport".into(), "fuser".into()];
    space.up();
    fs::create_dir(space.path("directory")).unwrap();
    for command in ["du", "stat", "limit"] {
        ullage([command.as_ref(), space.path("directory").as_os_str()]).ok();
    }
    space.down_and_check();
}
