//! What somebody is refused at his limit holds up nobody else.

use super::bed::{Below, is_full, limit, limited};
use super::writers::Told;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::space::Space;

const BLOCK: u64 = 4096;

/// How often a step was made while others do something again and again.
fn steps(beside: impl Fn() + Sync, mut step: impl FnMut()) -> u64 {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                beside();
            }
        });
        let _told = Told(&done);
        let until = Instant::now() + Duration::from_secs(1);
        let mut made = 0;
        while Instant::now() < until {
            step();
            made += 1;
        }
        made
    })
}

/// Of what is made otherwise, a good part is made beside this, too: at one of three times, since the machine may have other things to do.
#[track_caller]
fn held_up_by_nothing(what: &str, otherwise: impl Fn() -> u64, beside: impl Fn() -> u64) {
    let mut made = Vec::new();
    let is_free = (0..3).any(|_| {
        let (otherwise, beside) = (otherwise(), beside());
        made.push((otherwise, beside));
        beside > otherwise / 3
    });
    assert!(is_free, "{what}: {made:?}");
}

/// A file of so many extents. What lies between them is taken away again, so that the disk's image is in one piece.
fn pieces(path: &Path, count: u64) {
    let file = File::create_new(path).unwrap();
    let block = vec![1; 2 * BLOCK as usize];
    (0..count).for_each(|n| file.write_all_at(&block, n * 2 * BLOCK).unwrap());
    file.sync_all().unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (0..count).for_each(|n| fallocate(&file, hole, (2 * n + 1) * BLOCK, BLOCK).unwrap());
}

/// Each had the whole map of the file read while all others waited: they made a thousandth of their writes.
#[test]
fn writes_that_are_refused_to_a_file_in_many_pieces_hold_up_nobody() {
    for below in [Below::Ext4, Below::Xfs] {
        let space = below.space();
        let dir = space.path("full");
        fs::create_dir(&dir).unwrap();
        for (name, count) in [("few", 8), ("many", 12_000)] {
            pieces(&dir.join(name), count);
        }
        // Until the daemon has closed them: they were open before there was a limit.
        std::thread::sleep(Duration::from_secs(3));
        space.sync();
        limit(&["1M"], &dir);
        let other = limited(&space, "other", 32 << 20);
        let step = OpenOptions::new().write(true).create(true).truncate(false).open(other.join("file")).unwrap();
        let made = |name| {
            let file = OpenOptions::new().write(true).open(dir.join(name)).unwrap();
            steps(|| assert!(is_full(&file.write_all_at(&[2], BLOCK))), || step.write_all_at(&[3; 4096], 0).unwrap())
        };
        held_up_by_nothing(&format!("{below:?}"), || made("few"), || made("many"));
        drop(step);
        space.down_and_check();
    }
}

/// Each kept all others from opening anything for a tenth of a second: they opened a thousandth as many files.
#[test]
fn renames_and_links_that_are_refused_hold_up_nobody_who_opens_files() {
    let space = Space::new();
    let dir = limited(&space, "box", 1 << 20);
    fs::create_dir(space.path("tree")).unwrap();
    let open = |name| OpenOptions::new().write(true).create(true).truncate(false).open(space.path(name)).unwrap();
    let (file, below) = (open("file"), open("tree/below"));
    if !space.uses_passthrough() {
        return;
    }
    let step = || drop(open("other"));
    let alone = || steps(|| std::thread::sleep(Duration::from_millis(1)), step);
    let refused = |outcome: std::io::Result<()>| assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EXDEV));
    let beside: [(&str, &(dyn Fn() + Sync)); 3] = [
        ("a file", &|| refused(fs::rename(space.path("file"), dir.join("file")))),
        ("a directory", &|| refused(fs::rename(space.path("tree"), dir.join("tree")))),
        ("a link", &|| refused(fs::hard_link(space.path("file"), dir.join("file")))),
    ];
    for (what, beside) in beside {
        held_up_by_nothing(what, alone, || steps(beside, step));
    }
    drop((file, below));
    space.down_and_check();
}
