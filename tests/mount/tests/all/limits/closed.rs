//! What is closed where nothing is limited is measured a moment later, or by who asks.

use super::bed::{Below, in_pool, is_full, limit};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::recount::{counted, told};
use ullage_mount_tests::run::{LIMIT, eventually};
use ullage_mount_tests::space::Space;

fn write_files(dir: &Path, round: usize) {
    for n in 0..100 {
        fs::write(dir.join(format!("{round}-{n}")), vec![1; 4096 * (1 + n % 7)]).unwrap();
    }
}

#[test]
fn what_was_closed_a_moment_ago_is_counted_by_who_asks() {
    let space = Space::plain();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    let by_attribute = || {
        let mut value = [0; 32];
        let length = rustix::fs::getxattr(&dir, "user.ullage.used", &mut value).unwrap();
        std::str::from_utf8(&value[..length]).unwrap().parse::<u64>().unwrap()
    };
    let mut right = [0; 2];
    for round in 0..10 {
        write_files(&dir, round);
        // The end of the last handle is on its way.
        std::thread::sleep(Duration::from_millis(15));
        let first = if round % 2 == 0 { by_attribute() } else { told(&dir).bytes };
        right[round % 2] += usize::from(first == counted(&dir).bytes);
        space.compare_du(&dir);
    }
    assert!(right.iter().all(|right| *right >= 3), "right at once in {right:?} of 5 rounds only");
    space.down_and_check();
}

#[test]
fn what_was_closed_is_removed_moved_and_given_away_before_it_is_measured() {
    let space = Space::plain();
    let (dir, other) = (space.path("dir"), space.path("other"));
    for round in 0..20 {
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&other).unwrap();
        write_files(&dir, round);
        for n in 0..100 {
            let file = dir.join(format!("{round}-{n}"));
            match n % 5 {
                0 => fs::remove_file(file).unwrap(),
                1 => fs::rename(file, other.join(n.to_string())).unwrap(),
                2 => std::os::unix::fs::chown(&file, Some(1000 + n), None).unwrap(),
                3 => fs::hard_link(&file, other.join(format!("link-{n}"))).unwrap(),
                _ => fs::write(file, vec![2; 100]).unwrap(),
            }
        }
        space.compare_du(&space.mount);
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_dir_all(&other).unwrap();
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Closes and limits race: what was left for later is not missed.
fn bounded_while_files_are_closed(below: Below) {
    let mut space = below.space();
    space.limit(Duration::from_secs(120));
    for round in 0..8 {
        let dir = space.path(format!("dir{round}"));
        fs::create_dir(&dir).unwrap();
        let most = std::thread::scope(|scope| {
            for writer in 0..4 {
                let dir = &dir;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        let outcome = fs::write(dir.join(format!("{writer}-{n}")), vec![1; 16384]);
                        if is_full(&outcome) {
                            return;
                        }
                        outcome.unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    panic!("nobody is stopped");
                });
            }
            std::thread::sleep(Duration::from_millis(100 + 37 * round));
            let most = told(&dir).bytes + (16 << 20);
            limit(&[&format!("{most}B")], &dir);
            most
        });
        let now = counted(&dir).bytes;
        assert!(now <= most, "{} bytes past the limit in round {round}", now - most);
        assert!(now + 65536 + below.slack() >= most, "refused with {} bytes left in round {round}", most - now);
        space.compare_du(&dir);
        limit(&["none"], &dir);
        fs::remove_dir_all(&dir).unwrap();
    }
    space.down_and_check();
}

#[test]
fn a_limit_counts_what_was_closed_the_moment_before_on_ext4() {
    bounded_while_files_are_closed(Below::Ext4);
}

#[test]
fn a_limit_counts_what_was_closed_the_moment_before_on_tmpfs() {
    bounded_while_files_are_closed(Below::Tmpfs);
}

/// Files of many pieces, each of which is an extent of its own. Gives back their last changes.
fn scatter(dir: &Path, pieces: u64) -> Vec<(i64, i64)> {
    let changed = |n: u64| {
        let file = File::create(dir.join(n.to_string())).unwrap();
        // From the end: who makes a file longer is given more than he writes on xfs.
        (0..pieces).rev().for_each(|piece| file.write_all_at(&[1; 4096], piece * 65536).unwrap());
        let meta = file.metadata().unwrap();
        (meta.mtime_nsec(), meta.ctime_nsec())
    };
    (0..200).map(changed).collect()
}

/// The file system below finds blocks for the map of such a file when it writes it, which was long after its last measurement.
#[test]
fn blocks_of_the_map_that_are_found_later_are_counted() {
    for (below, pieces) in [(Below::Ext4, 5), (Below::Xfs, 40)] {
        let space = below.space();
        let (dir, other) = (space.path("dir"), space.path("other"));
        let in_both = || told(&dir).bytes + told(&other).bytes - 8192;
        let write_out = || rustix::fs::syncfs(File::open(space.pool()).unwrap()).unwrap();
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&other).unwrap();
        let before = scatter(&dir, pieces);
        // They are measured within this time, most often: then what is written out is found later.
        std::thread::sleep(Duration::from_secs(4));
        eventually(&format!("{below:?}: settled"), LIMIT, || {
            write_out();
            in_both() == in_pool(&space)
        });
        let times = |n: u64| {
            let meta = dir.join(n.to_string()).metadata().unwrap();
            (meta.mtime_nsec(), meta.ctime_nsec())
        };
        assert_eq!((0..200).map(times).collect::<Vec<_>>(), before, "{below:?}: times");
        // So it is where the space is taken down at once.
        scatter(&other, pieces);
        space.down();
        write_out();
        space.up();
        assert_eq!(in_both(), in_pool(&space), "{below:?}: taken down");
        space.down_and_check();
    }
}
