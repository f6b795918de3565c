//! LSEEK: where data and holes are.
//!
//! What is stored into a mapping whose pages are the server's lies in the kernel until it is written back, and the backing file has a hole there.
//! Who copies a file without its holes would leave it out. So what looks like a hole is written back first.

use crate::node::Node;
use crate::pools::answering::Call;
use crate::{Errno, Outcome, Space, hurry};
use rustix::fs::{SeekFrom, seek};
use rustix::io;
use std::ops::Range;
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_lseek(&self, node: NodeId, offset: u64, whence: u32) -> Outcome<u64> {
        let of = self.node(node)?;
        // The file's map may have to be read from the disk.
        self.answers_at_once(&of.inode, Call::Writes)?;
        let stream = Self::stream_of(&of)?;
        let find = |from| self.pools.call(stream.pool, Call::Reads, || seek(&stream.file, from));
        let hides = may_hide_stores(&of);
        let data = |at| match find(SeekFrom::Data(at)) {
            Err(io::Errno::NXIO) => Ok(u64::MAX),
            found => found,
        };
        match whence as i32 {
            libc::SEEK_DATA if hides => {
                if !self.write_back(&of, offset..data(offset)?)? && offset < find(SeekFrom::End(0))? {
                    return Ok(offset);
                }
                Ok(find(SeekFrom::Data(offset))?)
            }
            libc::SEEK_HOLE if hides => {
                let mut looked = 0..0;
                loop {
                    let hole = find(SeekFrom::Hole(offset))?;
                    if looked.contains(&hole) {
                        return Ok(hole);
                    }
                    looked = hole..data(hole)?;
                    if !self.write_back(&of, looked.clone())? {
                        // There is one at the end at the latest.
                        return Ok(find(SeekFrom::End(0))?);
                    }
                }
            }
            libc::SEEK_DATA => Ok(find(SeekFrom::Data(offset))?),
            libc::SEEK_HOLE => Ok(find(SeekFrom::Hole(offset))?),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Has the kernel write back what was stored into a range that looks like a hole. Gives back false where somebody is at that already, so
    /// that no more than one thread waits for what others are to carry out.
    fn write_back(&self, node: &Node, hole: Range<u64>) -> Outcome<bool> {
        let Some(kernel) = self.kernel().filter(|_| !hole.is_empty()) else { return Ok(true) };
        hurry::may_wait()?;
        let Some(_turn) = self.writing_back.try_lock() else { return Ok(false) };
        // To the end of the file, where that is no length.
        let length = i64::try_from(hole.end - hole.start).unwrap_or(0);
        if let Err(error) = kernel.invalidate_node(node.id, hole.start as i64, length) {
            // What found no room is told by msync(2).
            tracing::debug!(inode = %node.inode.id, %error, "the kernel keeps pages of a file");
        }
        Ok(true)
    }
}

/// Whether something may be stored into pages of the server's.
fn may_hide_stores(node: &Node) -> bool {
    let open = node.open.lock();
    open.handles > 0 && open.backing.as_deref().is_some_and(|it| it.mappable && it.registered.is_none() && !it.discards)
}
