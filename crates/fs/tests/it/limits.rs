//! What a limit refuses, and what it does not.

use crate::bed::{Bed, CALLER, ROOT};
use std::time::{Duration, Instant};
use ullage_catalog::{Limit, Subject};
use ullage_fs::{Errno, Filesystem, Space, hurried};
use ullage_types::{FileId, NodeId};

const RDWR: u32 = libc::O_RDWR as u32;

/// A directory with a limit of its own.
fn limited(space: &Space, name: &[u8], limit: Limit) -> NodeId {
    let node = space.mkdir(CALLER, ROOT, name, 0o755, 0).unwrap().node;
    space.set_limit(Subject::Directory(FileId(node.0)), limit).unwrap();
    node
}

/// One fallocate(2) by anybody ended the process, and with it the mount.
#[test]
fn an_allocation_of_more_than_there_can_be_is_refused() {
    let mut bed = Bed::new();
    let space = bed.space();
    let dir = limited(&space, b"dir", Limit { bytes: Some(1 << 20), inodes: None });
    for (parent, name) in [(dir, b"bounded".as_slice()), (ROOT, b"free")] {
        let (entry, opened) = space.create(CALLER, parent, name, 0o644, 0, RDWR).unwrap();
        let allocate = |length| space.fallocate(entry.node, opened.handle, 0, length, 0);
        assert_eq!(allocate(i64::MAX as u64), Err(Errno::EFBIG));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(allocate((1 << 62) + (1 << 61)), Err(Errno::EFBIG));
                        assert_eq!(allocate(1 << 60), Err(Errno::ENOSPC));
                    }
                });
            }
        });
        space.write(entry.node, opened.handle, 0, b"data", 0, None).unwrap();
        space.release(entry.node, opened.handle);
        space.forget(entry.node, 1);
    }
    space.forget(dir, 1);
    drop(space);
    bed.reopen();
}

/// The kernel lets go of a removed file some time after the call that removed it has ended: who made the next one was refused, with room left.
#[test]
fn what_was_removed_is_waited_for_before_anything_is_refused() {
    const LATER: Duration = Duration::from_millis(20);
    let mut bed = Bed::new();
    let space = bed.space();
    let dir = limited(&space, b"dir", Limit { bytes: Some(20 * 4096), inodes: Some(2) });
    let create = |name: &[u8]| space.create(CALLER, dir, name, 0o644, 0, RDWR);
    let (entry, opened) = create(b"first").unwrap();
    assert_eq!(space.write(entry.node, opened.handle, 0, &vec![1; 15 * 4096], 0, None), Ok(15 * 4096));
    space.unlink(dir, b"first").unwrap();
    assert_eq!(hurried(|| create(b"second")).map(drop), Err(Errno::LATER), "who answers the kernel waits for nothing");
    let second = std::thread::scope(|scope| {
        let made = scope.spawn(|| create(b"second"));
        std::thread::sleep(LATER);
        space.release(entry.node, opened.handle);
        space.forget(entry.node, 1);
        made.join().unwrap().unwrap()
    });
    // The same for data: of two files of which one fits.
    space.set_limit(Subject::Directory(FileId(dir.0)), Limit { bytes: Some(20 * 4096), inodes: None }).unwrap();
    let third = create(b"third").unwrap();
    let write = |made: &(ullage_fs::Entry, ullage_fs::Opened)| {
        space.write(made.0.node, made.1.handle, 0, &vec![2; 15 * 4096], 0, None)
    };
    assert_eq!(write(&second), Ok(15 * 4096));
    space.unlink(dir, b"second").unwrap();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| write(&third));
        std::thread::sleep(LATER);
        space.release(second.0.node, second.1.handle);
        space.forget(second.0.node, 1);
        assert_eq!(written.join().unwrap(), Ok(15 * 4096), "all of it");
    });
    space.release(third.0.node, third.1.handle);
    space.forget(third.0.node, 1);
    space.forget(dir, 1);
    drop(space);
    bed.reopen();
}

#[test]
fn what_somebody_has_open_is_waited_for_once() {
    let mut bed = Bed::new();
    let space = bed.space();
    let dir = limited(&space, b"dir", Limit { bytes: None, inodes: Some(2) });
    let (entry, opened) = space.create(CALLER, dir, b"open", 0o644, 0, RDWR).unwrap();
    space.unlink(dir, b"open").unwrap();
    let took = || {
        let began = Instant::now();
        assert_eq!(space.mkdir(CALLER, dir, b"more", 0o755, 0).map(drop), Err(Errno::ENOSPC));
        began.elapsed()
    };
    assert!(took() >= Duration::from_millis(100));
    assert!((0..10).any(|_| took() < Duration::from_millis(50)));
    space.release(entry.node, opened.handle);
    space.forget(entry.node, 1);
    space.forget(dir, 1);
    drop(space);
    bed.reopen();
}
