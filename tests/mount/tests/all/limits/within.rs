//! What the kernel writes within calls that say something else is bound like any other write.

use super::bed::{Below, assert_filled, is_full, limit, until_full};
use super::lend::{CALL, GIB, held, lending, lent, spacious};
use rustix::fs::copy_file_range;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::time::Duration;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::{eventually, program, unmount};

/// The kernel copies piece by piece between file systems, and each piece passed for a copy that the server makes.
#[test]
fn a_copy_between_pools_on_two_file_systems_stops_at_the_limit() {
    let mut space = spacious(Below::Ext4);
    space.down();
    fs::remove_dir_all(&space.state).unwrap();
    fs::remove_dir_all(space.pool()).unwrap();
    // In one with little left nothing is lent.
    let other = space.ground.tmpfs("other", 8 << 20);
    fs::create_dir(space.pool()).unwrap();
    space.pools.push(format!("other={}", other.display()));
    space.flags = ["--spread", "round-robin"].iter().map(Into::into).collect();
    space.up();
    let sources = ["one", "two"].map(|name| {
        fs::write(space.path(name), vec![7; 4 << 20]).unwrap();
        File::open(space.path(name)).unwrap()
    });
    let left = 1 << 20;
    for (n, source) in sources.iter().enumerate() {
        let dir = lending(&space, &n.to_string(), 8 * GIB);
        let file = lent(&dir.join("file"));
        file.write_all_at(&[1; 4096], 0).unwrap();
        limit(&[&format!("{}B", left + 4096)], &dir);
        // What is over there already is said, then nothing fits.
        until_full(|n| {
            let (mut from, mut to) = (0, 4096 + n * (4 << 20));
            Ok(copy_file_range(source, Some(&mut from), &file, Some(&mut to), 4 << 20).map(drop)?)
        });
        assert_filled(&dir, left, Below::Ext4.slack() + CALL, "copied");
    }
    drop(sources);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Overlayfs copies a file up within open(2), which writes nothing.
#[test]
fn what_an_overlay_copies_up_stops_at_the_limit() {
    const SIZE: usize = 1 << 30;
    let mut space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    let below = space.ground.tmpfs("below", 2 << 20);
    let [above, work, point] = [dir.join("above"), dir.join("work"), space.ground.directory("point")];
    fs::create_dir(&above).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(below.join("file"), vec![1; SIZE]).unwrap();
    let options = format!("lowerdir={},upperdir={},workdir={}", below.display(), above.display(), work.display());
    program("mount", ["-t", "overlay", "overlay", "-o", &options, point.to_str().unwrap()]).ok();
    space.ground.will_unmount(&point);
    let small = lent(&point.join("small"));
    small.write_all_at(&[2; 16384], 0).unwrap();
    let before = held(&space);

    let mut most = 0;
    let refused = (0..5).find_map(|_| {
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| OpenOptions::new().write(true).open(point.join("file")));
            if space.uses_passthrough() {
                eventually("the copy is lent room", Duration::from_secs(10), || {
                    held(&space) > before + GIB || opening.is_finished()
                });
            }
            most = counted(&dir).bytes + (64 << 20);
            limit(&[&format!("{most}B")], &dir);
            let outcome = opening.join().unwrap();
            if outcome.is_ok() {
                // The copy was there before the limit.
                limit(&[&format!("{}B", 8 * GIB)], &dir);
                fs::remove_file(point.join("file")).unwrap();
                fs::write(below.join("file"), vec![1; SIZE]).unwrap();
            }
            outcome.err()
        })
    });
    assert!(is_full::<()>(&Err(refused.expect("it was refused"))));
    assert!(counted(&dir).bytes <= most, "{} bytes past the limit", counted(&dir).bytes - most);

    // Taking away works there as well.
    until_full(|n| small.write_all_at(&vec![3; 65536], 65536 * (n + 1)));
    small.set_len(4096).unwrap();
    until_full(|n| small.write_all_at(&vec![3; 65536], 65536 * (n + 1)));
    chown(point.join("small"), Some(1234), Some(1234)).unwrap();
    File::create(point.join("small")).unwrap();
    assert_eq!(small.metadata().unwrap().blocks(), 0);
    drop(small);
    unmount(&point);
    space.compare_du(&space.mount);
    space.down_and_check();
}
