//! READDIR and READDIRPLUS.

use crate::{Errno, Listed, Outcome, Sink, Space};
use ullage_types::NodeId;

/// Entries taken from the catalog at a time: about what a request of 128 KiB holds.
const AT_ONCE: usize = 1024;
/// For a request with attributes, whose entries take more room.
const AT_ONCE_PLUS: usize = 256;

impl Space {
    pub(crate) fn do_readdir(&self, node: NodeId, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()> {
        let directory = self.inode(node)?;
        let mut after = offset;
        let dots: [(&[u8], u64); 2] = [(b".", directory.id.0), (b"..", self.catalog.parent(&directory).id.0)];
        for (place, (name, ino)) in (1u64..).zip(dots) {
            if after < place {
                let listed = Listed { name, ino, mode: u32::from(libc::DT_DIR) << 12, next: place, entry: None };
                if !sink(&listed) {
                    return Ok(());
                }
                after = place;
            }
        }
        let most = if plus { AT_ONCE_PLUS } else { AT_ONCE };
        loop {
            let entries = self.catalog.list(&directory, after, most)?;
            let done = entries.len() < most;
            for found in entries {
                let entry = if plus {
                    match self.catalog.get(found.file) {
                        Ok(inode) => Some(self.entry(inode)?),
                        // Removed since it was listed.
                        Err(ullage_catalog::Error::NotFound) => continue,
                        Err(error) => return Err(Errno::from(error)),
                    }
                } else {
                    None
                };
                let listed = Listed {
                    name: &found.name,
                    ino: found.file.0,
                    mode: found.kind.mode_bits(),
                    next: found.cookie,
                    entry,
                };
                if !sink(&listed) {
                    if let Some(entry) = entry {
                        self.forget_node(entry.node, 1);
                    }
                    return Ok(());
                }
                after = found.cookie;
            }
            if done {
                return Ok(());
            }
        }
    }
}
