//! Which of a state and its pools is newer, while the space is up and its disks come and go.

use crate::rebuild::{copy, expect, fill, pools, rebuild, two};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;

/// Takes a space down and up again that mirrors its catalog, and counts, each second from then on.
pub fn every_second(space: &Space) {
    space.down();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("mirror_seconds = 30", "mirror_seconds = 1")).unwrap();
    space.up();
}

fn counted(pool: &Path) -> u64 {
    fs::read_to_string(pool.join(".ullage-turns")).unwrap().trim().parse().unwrap()
}

/// Changes something until it was counted twice in all of these pools: what was there before is mirrored then.
fn until_counted(space: &Space, pools: &[PathBuf]) {
    let before: Vec<u64> = pools.iter().map(|pool| counted(pool)).collect();
    let mut names = 0..;
    eventually("what is changed is counted", Duration::from_secs(30), || {
        fs::write(space.path(format!("tick-{}", names.next().unwrap_or(0))), "").unwrap();
        pools.iter().zip(&before).all(|(pool, before)| counted(pool) >= before + 2)
    });
}

/// Regression: who could write in the directory of a pool had root empty any file, or close any directory and clear it.
#[test]
fn no_link_in_the_directory_of_a_pool_leads_what_is_written_there_elsewhere() {
    let space = Space::plain();
    every_second(&space);
    let (pool, kept, other) = (space.pool(), space.ground.join("kept"), space.ground.directory("other"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for file in [&kept, &other.join("of-others.new"), &other.join("space.toml.new")] {
        fs::write(file, "content").unwrap();
    }
    fs::set_permissions(&kept, Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
    symlink(&kept, pool.join(".ullage-turns.new")).unwrap();
    until_counted(&space, std::slice::from_ref(&pool));
    assert_eq!((fs::read(&kept).unwrap(), mode(&kept)), (b"content".to_vec(), 0o640));
    space.down();
    let (mirror, aside) = (pool.join(".ullage-mirror"), pool.join("aside"));
    fs::rename(&mirror, &aside).unwrap();
    symlink(&other, &mirror).unwrap();
    space.up();
    until_counted(&space, std::slice::from_ref(&pool));
    space.down();
    assert_eq!((fs::read_dir(&other).unwrap().count(), mode(&other)), (2, 0o755));
    assert!(space.log().contains("Not a directory"), "{}", space.log());
    fs::remove_file(&mirror).unwrap();
    fs::rename(&aside, &mirror).unwrap();
    // Nor does one in the mirror's directory.
    let settings = mirror.join("space.toml.new");
    symlink(&kept, &settings).unwrap();
    space.up();
    eventually("the settings are mirrored", Duration::from_secs(30), || fs::symlink_metadata(&settings).is_err());
    space.down_and_check();
    assert_eq!((fs::read(&kept).unwrap(), mode(&kept)), (b"content".to_vec(), 0o640));
}

/// Only starts and ends were counted: after a crash a state that was copied at any time of the last run was taken for the newest, and
/// what was made since for nobody's, what fsync(2) had returned for too.
#[test]
fn a_state_that_was_copied_while_the_space_was_up_is_refused_after_a_crash() {
    let mut space = two();
    every_second(&space);
    fill(&space, 0, 3);
    space.sync();
    let kept = space.ground.join("kept");
    copy(&space.state, &kept);
    fill(&space, 3, 40);
    for n in 3..43 {
        File::open(space.path(format!("dir/file-{n}"))).and_then(|file| file.sync_all()).unwrap();
    }
    until_counted(&space, &pools(&space));
    space.kill();
    copy(&kept, &space.state);
    space.try_up().refused("older than the pool 'a'");
    assert!(space.try_check(&[]).out.contains("older than the pool"), "a check says that it is clean");
    assert_ne!(space.try_check(&["--repair"]).code, Some(0));
    rebuild(&mut space, &[]);
    (0..43).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// Nobody was told: files that were made since failed with EIO, and others were as before, one by one as somebody came to them.
#[test]
fn a_pool_that_is_older_than_its_state_is_said_to_be() {
    let space = two();
    fill(&space, 0, 4);
    space.down();
    let (kept, pool) = (space.ground.join("kept"), &pools(&space)[0]);
    copy(pool, &kept);
    space.up();
    fill(&space, 4, 8);
    space.down();
    copy(&kept, pool);
    let says = |up: Outcome| {
        assert_eq!(up.code, Some(0), "{}", up.err);
        up.err
    };
    let told = says(space.try_up());
    assert!(told.contains("the pool 'a' is older than the state") && !told.contains("'b'"), "{told}");
    assert!(space.log().contains("the pool 'a' is older than the state"));
    space.kill();
    let again = says(space.try_up());
    assert!(!again.contains("older"), "{again}");
    space.down();
    // One that was not there says the same, once.
    let up = |more: &[&str]| says(ullage(space.up_arguments().into_iter().chain(more.iter().map(Into::into))));
    assert_eq!(up(&["--without", "b"]), "");
    space.down();
    assert!(up(&[]).contains("the pool 'b' is older"));
    space.down();
    assert_eq!(up(&[]), "");
}

/// A space whose pool and state lie on disks of their own, in this order, the names of which are returned.
fn on_two_disks() -> (Space, PathBuf, PathBuf) {
    let mut ground = Ground::new();
    let (pool_disk, state_disk) = (ground.ext4("pool-disk", 128), ground.ext4("state-disk", 256));
    let mut space = Space::on(ground, &state_disk);
    fs::create_dir(pool_disk.join("pool")).unwrap();
    space.pools = vec![format!("main={}", pool_disk.join("pool").display())];
    space.up();
    every_second(&space);
    (space, pool_disk, state_disk)
}

/// The device that is mounted somewhere.
fn device(at: &Path) -> PathBuf {
    program("findmnt", ["-n".as_ref(), "-o".as_ref(), "SOURCE".as_ref(), at.as_os_str()]).ok().trim().into()
}

/// Takes a disk from the tree that is still in use, and shows it elsewhere.
fn moved_away(space: &mut Space, disk: &Path) -> PathBuf {
    let device = device(disk);
    program("umount", ["-l".as_ref(), disk.as_os_str()]).ok();
    space.ground.mount_image_with("elsewhere", &device, "defaults")
}

/// The pool went on and its copy of the catalog did not: that, and the count, went to the disk below.
#[test]
fn what_a_pool_has_of_the_catalog_stays_with_it_when_its_disk_is_unmounted_lazily() {
    let (mut space, pool_disk, _) = on_two_disks();
    let pool = moved_away(&mut space, &pool_disk).join("pool");
    let mirrored = || crate::rebuild::generations(&pool, "").len();
    let before = mirrored();
    until_counted(&space, std::slice::from_ref(&pool));
    assert!(mirrored() > before, "the copy of the catalog does not follow");
    // What is mounted over it is none of ours either.
    space.ground.mount_image_with("pool-disk", &device(&space.ground.join("elsewhere")), "defaults");
    space.ground.tmpfs("pool-disk", 1024);
    until_counted(&space, &[pool]);
    assert_eq!(fs::read_dir(&pool_disk).unwrap().count(), 0, "something was written over the pool's disk");
    unmount(&pool_disk);
    space.down_and_check();
    rebuild(&mut space, &[]);
    assert!(space.path("tick-0").exists());
    space.down_and_check();
}

/// The end was counted in the pools, and in what lay below the state's disk: when that came back the state was older than its pools.
#[test]
fn a_state_whose_disk_is_unmounted_lazily_is_no_older_than_its_pools() {
    let (mut space, pool_disk, state_disk) = on_two_disks();
    let pid = space.pid();
    let elsewhere = moved_away(&mut space, &state_disk);
    until_counted(&space, &[pool_disk.join("pool")]);
    // All said that there is no space, and how one is made.
    for command in ["status", "down", "df", "du", "limit"] {
        let said = format!(
            "is not there: mount the disk that this lies on where it was, or take the space away with `umount {}`",
            space.mount.display()
        );
        ullage([command.as_ref(), space.mount.as_os_str()]).refused(&said);
    }
    unmount(&space.mount);
    process::wait(pid);
    assert_eq!(fs::read_dir(&state_disk).unwrap().count(), 0, "something was written below the state's disk");
    space.ground.mount_image_with("state-disk", &device(&elsewhere), "defaults");
    space.up();
    assert!(space.path("tick-0").exists());
    space.down_and_check();
}
