//! LOOKUP, GETATTR, READLINK.

use crate::attributes::shown;
use crate::node::Nodes;
use crate::space::FOREVER;
use crate::{Attributes, AttributesFor, Entry, Errno, Outcome, Space, hurry};
use std::sync::Arc;
use std::time::Duration;
use ullage_catalog::Inode;
use ullage_types::{Kind, NodeId, Timestamp};

/// There is no such name, and the kernel may believe it until it makes one itself.
const NOTHING: Entry = Entry {
    node: NodeId(0),
    attributes: AttributesFor {
        attributes: Attributes {
            ino: 0,
            size: 0,
            blocks: 0,
            atime: EPOCH,
            mtime: EPOCH,
            ctime: EPOCH,
            btime: EPOCH,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 0,
        },
        lifetime: Duration::ZERO,
    },
    lifetime: FOREVER,
};

const EPOCH: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };

impl Space {
    pub(crate) fn do_lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        if let b"." | b".." = name {
            let inode = self.by_handle(parent)?;
            return self.entry_by_handle(if name == b"." { inode } else { self.catalog.parent(&inode) });
        }
        let parent = self.inode(parent)?;
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let (found, cold) = self.catalog.lookup_counted(&parent, name)?;
        if cold {
            self.listing.looked_up();
        }
        match found {
            Some(inode) => self.entry_at_once(inode),
            None => Ok(NOTHING),
        }
    }

    /// The entry for a file, without waiting for who has it open, or its pool: who puts another in its place holds up all renames between
    /// directories meanwhile. The kernel takes nothing of what a file is like then that it knows, and whoever wants to know that asks.
    fn entry_at_once(&self, inode: Arc<Inode>) -> Outcome<Entry> {
        match hurry::without_waiting(|| self.entry_in_use(inode.clone())) {
            Err(Errno::LATER) => {
                let node = self.nodes.enter(inode);
                self.show_only(&node);
                let attributes = shown(node.inode.id, &node.inode.record());
                let attributes = AttributesFor { attributes, lifetime: Duration::ZERO };
                Ok(Entry { node: node.id, attributes, lifetime: FOREVER })
            }
            outcome => outcome,
        }
    }

    /// The file that a handle is of (open_by_handle_at(2), NFS), which the kernel may have forgotten long ago. ESTALE when it
    /// has no name any more.
    fn by_handle(&self, node: NodeId) -> Outcome<Arc<Inode>> {
        if let Ok(inode) = self.inode(node) {
            return Ok(inode);
        }
        match self.catalog.get(Nodes::file_of(node)) {
            Ok(inode) if inode.lock().record.nlink > 0 => Ok(inode),
            Ok(_) | Err(ullage_catalog::Error::NotFound) => Err(Errno::ESTALE),
            Err(error) => Err(error.into()),
        }
    }

    /// The entry for such a file. ESTALE when it went for good before anybody knew that it was looked up.
    fn entry_by_handle(&self, inode: Arc<Inode>) -> Outcome<Entry> {
        let entry = self.entry_in_use(inode.clone())?;
        if inode.lock().is_removed() {
            self.forget_node(entry.node, 1);
            return Err(Errno::ESTALE);
        }
        Ok(entry)
    }

    pub(crate) fn do_getattr(&self, node: NodeId) -> Outcome<AttributesFor> {
        let node = self.node(node)?;
        // Before the kernel changes entries of a directory it asks, unless it knows: so what it was shown once only since the last change it
        // has by the next one, and a create in a loop costs no more than that question.
        if node.inode.is_directory() {
            node.inode.note_shown_once();
        } else {
            node.inode.note_shown();
        }
        self.attributes(&node)
    }

    pub(crate) fn do_readlink(&self, node: NodeId) -> Outcome<Vec<u8>> {
        let inode = self.inode(node)?;
        if inode.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        Ok(inode.lock().record.target.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Caller;
    use crate::headroom::lend::tests::lending;
    use crate::test_kernel::TestKernel;
    use std::sync::atomic::Ordering::Relaxed;

    /// It was there, without a name, and opening it was an error of its pool.
    #[test]
    fn a_handle_of_a_file_that_goes_while_it_is_looked_up_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let (caller, root) = (Caller { uid: 0, gid: 0, pid: 1 }, NodeId(1));
        let pipe = space.do_mknod(caller, root, b"pipe", libc::S_IFIFO | 0o600, 0, 0).unwrap();
        space.forget_node(pipe.node, 1);
        let inode = space.by_handle(pipe.node).unwrap();
        space.do_unlink(root, b"pipe").unwrap();
        assert_eq!(space.entry_by_handle(inode).map(drop), Err(Errno::ESTALE));
        assert!(space.node(pipe.node).is_err());
    }

    /// Regression: to look a file up waited for whoever stood still with it. The kernel does that while it keeps all others from renaming
    /// anything from one directory to another.
    #[test]
    fn to_look_a_file_up_waits_for_nobody_who_works_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let kernel = Arc::new(TestKernel::default());
        space.set_kernel(kernel.clone());
        let look = || space.do_lookup(NodeId(1), b"file").unwrap();
        let before = (look().attributes.lifetime, kernel.dropped.load(Relaxed));
        let held = node.open.lock();
        let entry = look();
        assert_eq!((entry.node, entry.attributes.lifetime), (node.id, Duration::ZERO));
        assert_eq!(kernel.dropped.load(Relaxed), before.1 + 1, "it takes nothing of this answer");
        drop(held);
        assert_eq!((look().attributes.lifetime, kernel.dropped.load(Relaxed)), (before.0, before.1 + 1));
    }
}
