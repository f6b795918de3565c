//! A pool that is full, with the catalog elsewhere.

use crate::full::fill;
use crate::rebuild::{generations, rebuild};
use std::cell::Cell;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, unmount};
use ullage_mount_tests::space::Space;

/// Every turn wrote a whole new copy until there was no room, removed it and began again.
#[test]
fn the_copy_of_the_catalog_waits_while_a_pool_is_full_and_follows_when_there_is_room() {
    let mut ground = Ground::new();
    let disk = ground.image("pool", 64, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    let state = ground.directory("state-disk");
    let mut space = Space::on(ground, &state);
    space.pools = vec![format!("main={}", disk.join("pool").display())];
    fs::create_dir(disk.join("pool")).unwrap();
    space.up();
    space.down();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("mirror_seconds = 30", "mirror_seconds = 1")).unwrap();
    let snapshots = || generations(&disk.join("pool"), ".snapshot");
    fs::create_dir_all(disk.join("pool/.ullage-mirror")).unwrap();
    let earlier = snapshots();
    space.up();
    eventually("there is a copy", Duration::from_secs(20), || snapshots().len() > earlier.len());
    let before = snapshots();
    let mut big = File::create(space.path("big")).unwrap();
    let behind = |space: &Space| space.log().contains("not mirrored into the pools");
    let (mut names, mut failed) = (0, None);
    let end = Instant::now() + Duration::from_secs(30);
    while failed.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(5)) {
        assert!(Instant::now() < end, "it was never full:\n{}", space.log());
        fill(&mut big);
        fs::create_dir(space.path(format!("dir-{names}"))).unwrap();
        names += 1;
        if failed.is_none() && behind(&space) {
            failed = Some(Instant::now());
        }
        let begun = generations(&disk.join("pool"), ".snapshot.new");
        assert!(failed.is_none() || begun.is_empty(), "{begun:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(snapshots(), before);
    drop(big);
    fs::remove_file(space.path("big")).unwrap();
    space.sync();
    let tails = || generations(&disk.join("pool"), ".tail").len();
    let (had, mut more) = (tails(), 0);
    eventually("the copy follows", Duration::from_secs(20), || {
        fs::create_dir(space.path(format!("more-{more}"))).unwrap();
        more += 1;
        tails() > had
    });
    assert_eq!(snapshots(), before);
    space.down_and_check();
    rebuild(&mut space, &[]);
    (0..names).for_each(|n| assert!(space.path(format!("dir-{n}")).is_dir(), "dir-{n} is missing"));
    space.down_and_check();
}

/// Fills the pool of a space by `fill`, and once more by `rest` while it is down, brings it up and makes room.
fn filled_and_started(mut space: Space, pool: &Path, fill: impl Fn(&Space), rest: impl Fn()) {
    fs::create_dir(pool).unwrap();
    space.pools = vec![format!("main={}", pool.display())];
    space.up();
    fs::create_dir(space.path("dir")).unwrap();
    (0..20).for_each(|n| fs::write(space.path(format!("dir/{n}")), vec![7; 70_000]).unwrap());
    for round in 0..2 {
        let open = File::create(space.path("unflushed")).unwrap();
        let lost = space.backing(&space.path("unflushed"));
        fill(&space);
        if round == 0 {
            drop(open);
            space.down_and_check();
        } else {
            space.sync();
            space.kill();
            drop(open);
            unmount(&space.mount);
            // As a power cut takes it. There may be no room to make it again.
            fs::remove_file(lost).unwrap();
        }
        rest();
        space.up();
        assert!(space.log().contains("is full: until a start"), "it was not full: {}", space.log());
        assert_eq!(fs::read(space.path("dir/19")).unwrap(), vec![7; 70_000]);
        fs::remove_dir_all(space.path("fill")).unwrap();
        space.sync();
        eventually("there is room again", Duration::from_secs(30), || {
            fs::write(space.path("again"), vec![8; 70_000]).is_ok()
        });
        space.compare_du(&space.mount);
        space.down_and_check();
        space.up();
    }
    assert_eq!(fs::read_to_string(space.path("unflushed")).unwrap(), "");
    space.down_and_check();
}

/// A start tried out what the pool can do on a file that it could not make.
#[test]
fn a_space_with_a_full_pool_is_started_and_files_are_removed() {
    let mut ground = Ground::new();
    let (disk, state) = (ground.xfs("pool", 400), ground.directory("state-disk"));
    let fill = |space: &Space| {
        fs::create_dir(space.path("fill")).unwrap();
        for n in 0..3 {
            if let Ok(mut big) = File::create(space.path(format!("fill/{n}"))) {
                fill(&mut big);
            }
        }
    };
    filled_and_started(Space::on(ground, &state), &disk.join("pool"), fill, || ());
}

/// The same where blocks are left and inodes are not.
#[test]
fn a_space_with_a_pool_without_inodes_is_started_and_files_are_removed() {
    let mut ground = Ground::new();
    let disk = ground.image("pool", 256, "mkfs.ext4", &["-q", "-F", "-N", "2048"], "loop");
    let state = ground.directory("state-disk");
    let fill = |space: &Space| {
        fs::create_dir(space.path("fill")).unwrap();
        let made = (0..).take_while(|n| File::create(space.path(format!("fill/{n}"))).is_ok());
        assert!(made.count() > 500);
    };
    // The end gives back what was ready: others take it.
    let names = Cell::new(0);
    let rest = || while File::create(disk.join(format!("other-{}", names.replace(names.get() + 1)))).is_ok() {};
    filled_and_started(Space::on(ground, &state), &disk.join("pool"), fill, rest);
}
