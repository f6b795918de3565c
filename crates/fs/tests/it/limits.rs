//! What a limit refuses, and what it does not.

use crate::bed::{Bed, CALLER, ROOT};
use ullage_catalog::{Limit, Subject};
use ullage_fs::{Errno, Filesystem, Space};
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
        space.write(entry.node, opened.handle, 0, b"data", None).unwrap();
        space.release(entry.node, opened.handle);
        space.forget(entry.node, 1);
    }
    space.forget(dir, 1);
    drop(space);
    bed.reopen();
}
