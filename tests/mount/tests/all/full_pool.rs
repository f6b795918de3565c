//! A pool that is full, with the catalog elsewhere.

use crate::full::fill;
use crate::rebuild::{generations, rebuild};
use std::fs::{self, File};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::eventually;
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
