//! LOOKUP, GETATTR, READLINK.

use crate::node::Nodes;
use crate::space::FOREVER;
use crate::{Attributes, AttributesFor, Entry, Errno, Outcome, Space};
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
            return self.entry_in_use(if name == b"." { inode } else { self.catalog.parent(&inode) });
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
            Some(inode) => self.entry_in_use(inode),
            None => Ok(NOTHING),
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

    pub(crate) fn do_getattr(&self, node: NodeId) -> Outcome<AttributesFor> {
        self.attributes(&self.node(node)?)
    }

    pub(crate) fn do_readlink(&self, node: NodeId) -> Outcome<Vec<u8>> {
        let inode = self.inode(node)?;
        if inode.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        Ok(inode.lock().record.target.to_vec())
    }
}
