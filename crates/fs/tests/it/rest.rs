//! Leaves come to rest: what is over leaves no mark behind, and an orderly end none at all.

use crate::bed::{Bed, CALLER, ROOT, Times, eventually};
use std::collections::BTreeSet;
use std::time::Duration;
use ullage_fs::Filesystem;

const RDWR: u32 = libc::O_RDWR as u32;
const FILES: u64 = 20;

/// Files that wait to be closed were announced as being removed once more when they had been removed already, and their
/// leaves stayed marked for good: the next start looked through them for nothing, though the end had been orderly.
#[test]
fn files_that_are_removed_while_they_wait_to_be_closed_leave_no_mark() {
    let mut bed = Bed::with(Times { linger: Duration::from_secs(3600), ..Times::default() });
    let space = bed.space();
    for number in 0..FILES {
        let name = format!("f{number}");
        let (entry, opened) = space.create(CALLER, ROOT, name.as_bytes(), 0o644, 0, RDWR).unwrap();
        space.write(entry.node, opened.handle, 0, b"data", 0, None).unwrap();
        space.release(entry.node, opened.handle);
        space.unlink(ROOT, name.as_bytes()).unwrap();
        space.forget(entry.node, 1);
    }
    space.syncfs().unwrap();
    eventually("the files are taken back", || {
        let now = bed.counters();
        now.recycled + now.emptied + now.removed >= FILES
    });
    drop(space);
    bed.reopen();
}

/// Its mark was cleared before the files were given back: had the process been killed then, nobody would have looked for
/// them again. And what was changed there later went unmarked, since the pool took the leaf for marked.
#[test]
fn a_leaf_stays_marked_while_what_recovery_gives_back_lies_in_it() {
    let bed = Bed::with(Times { clear_after: Duration::from_secs(5), ..Times::default() });
    let space = bed.space();
    let create = |name: &str| {
        let (entry, opened) = space.create(CALLER, ROOT, name.as_bytes(), 0o644, 0, RDWR).unwrap();
        space.write(entry.node, opened.handle, 0, b"data", 0, None).unwrap();
        (entry.node, opened.handle)
    };
    let held = create("held");
    space.unlink(ROOT, b"held").unwrap();
    let beside = (0..7).map(|number| create(&format!("beside-{number}"))).collect::<Vec<_>>();
    space.syncfs().unwrap();
    bed.copy_catalog();
    for number in 0..500 {
        let (node, handle) = create(&number.to_string());
        space.release(node, handle);
        space.forget(node, 1);
    }
    let orphans_and_strays: BTreeSet<_> = bed.leaves();
    assert!(orphans_and_strays.len() > 60);
    let mut after = bed.after_a_crash();
    let marked: BTreeSet<_> = after.marked().into_iter().collect();
    let missing: Vec<_> = orphans_and_strays.difference(&marked).map(|leaf| String::from_utf8_lossy(leaf)).collect();
    assert!(missing.is_empty(), "{missing:?} are not marked, {} are", marked.len());
    after.reopen();
    for (node, handle) in beside.into_iter().chain([held]) {
        space.release(node, handle);
    }
}

/// What the kernel has still to say when a connection ends it never says: files that had been removed stayed until the next start, which spoke
/// of an unclean end, and the leaves of those that had been closed stayed marked.
#[test]
fn what_the_kernel_had_still_to_let_go_of_when_the_connection_ended_goes() {
    let mut bed = Bed::new();
    let space = bed.space();
    for number in 0..FILES {
        let name = format!("f{number}");
        let (entry, opened) = space.create(CALLER, ROOT, name.as_bytes(), 0o644, 0, RDWR).unwrap();
        space.write(entry.node, opened.handle, 0, b"data", 0, None).unwrap();
        let [released, removed] = [number & 1, number & 2].map(|bit| bit > 0);
        if released {
            space.release(entry.node, opened.handle);
        }
        if removed {
            space.unlink(ROOT, name.as_bytes()).unwrap();
        }
    }
    let directory = space.mkdir(CALLER, ROOT, b"directory", 0o755, 0).unwrap();
    let (below, _) = space.create(CALLER, directory.node, b"below", 0o644, 0, RDWR).unwrap();
    space.unlink(directory.node, b"below").unwrap();
    space.rmdir(ROOT, b"directory").unwrap();
    assert!(space.getattr(below.node, None).is_ok());
    drop(space);
    bed.reopen();
}
