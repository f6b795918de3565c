//! chmod(2) of a file with an access ACL: both change, or neither.

use crate::bed::{Bed, CALLER, ROOT, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ullage_fs::{Errno, Filesystem, SetAttributes, Space, Xattr};
use ullage_kv::Room;
use ullage_types::NodeId;

const ACCESS: &[u8] = b"system.posix_acl_access";

#[derive(Default)]
struct Disk {
    full: AtomicBool,
}

impl Room for Disk {
    fn is_there(&self) -> bool {
        !self.full.load(Relaxed)
    }

    fn most_waiting(&self) -> usize {
        0
    }
}

/// Of the owner, these users, the group, the mask and others.
fn acl(owner: u16, users: &[u32], mask: u16, others: u16) -> Vec<u8> {
    let mut items = vec![(1, owner, u32::MAX)];
    items.extend(users.iter().map(|user| (2, 6, *user)));
    items.extend([(4, 4, u32::MAX), (16, mask, u32::MAX), (32, others, u32::MAX)]);
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in items {
        bytes.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn chmod(space: &Space, node: NodeId, mode: u32) -> u32 {
    let change = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    space.setattr(CALLER, node, change).unwrap().attributes.mode & 0o7777
}

fn with_acl(bed: &Bed) -> NodeId {
    let space = bed.space();
    let node = space.mknod(CALLER, ROOT, b"file", libc::S_IFIFO | 0o640, 0, 0).unwrap().node;
    space.setxattr(CALLER, node, ACCESS, &acl(6, &[7], 6, 0), 0, None).unwrap();
    node
}

fn has_acl(space: &Space, node: NodeId, expected: &[u8]) {
    let Ok(Xattr::Bytes(found)) = space.getxattr(CALLER, node, ACCESS, 4096) else { panic!("no ACL") };
    assert_eq!(found, expected);
}

/// The mode was changed, the ACL was refused: they differed for good, and the kernel kept the old mode.
#[test]
fn the_mode_of_a_file_with_an_acl_changes_while_the_disk_of_the_catalog_is_full() {
    let mut bed = Bed::new();
    let (space, node) = (bed.space(), with_acl(&bed));
    let disk = Arc::new(Disk::default());
    bed.set_room(disk.clone());
    disk.full.store(true, Relaxed);
    eventually("the catalog has no room for more", || {
        let made = space.setxattr(CALLER, node, b"user.more", b"1234", 0, None);
        if made.is_ok() {
            space.removexattr(CALLER, node, b"user.more").unwrap();
        }
        made == Err(Errno::ENOSPC)
    });
    assert_eq!(chmod(&space, node, 0o701), 0o701);
    has_acl(&space, node, &acl(7, &[7], 0, 1));
    // The same by the ACL; one that is longer is refused whole.
    space.setxattr(CALLER, node, ACCESS, &acl(6, &[8], 4, 0), 0, None).unwrap();
    let longer = space.setxattr(CALLER, node, ACCESS, &acl(7, &[8, 9], 7, 7), 0, None);
    assert_eq!(longer, Err(Errno::ENOSPC));
    assert_eq!(space.getattr(node, None).unwrap().attributes.mode & 0o7777, 0o640);
    has_acl(&space, node, &acl(6, &[8], 4, 0));
    disk.full.store(false, Relaxed);
    space.forget(node, 1);
    drop(space);
    bed.reopen();
}

/// A crash between the two left the new mode and the old ACL.
#[test]
fn a_mode_and_the_acl_that_follows_it_are_one_commit() {
    let bed = Bed::new();
    let (space, node) = (bed.space(), with_acl(&bed));
    let commits = |mode: u32| {
        let before = space.catalog().kv().newest().0;
        let ctime = space.getattr(node, None).unwrap().attributes.ctime;
        chmod(&space, node, mode);
        assert!(space.getattr(node, None).unwrap().attributes.ctime > ctime);
        space.catalog().kv().newest().0 - before
    };
    // What goes on in the background may commit, too.
    assert_eq!((0o600..0o620).map(commits).min(), Some(1));
    has_acl(&space, node, &acl(6, &[7], 1, 7));
}
