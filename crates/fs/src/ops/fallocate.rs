//! FALLOCATE.

use crate::{Outcome, Space};
use rustix::fs::FallocateFlags;
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_fallocate(&self, node: NodeId, offset: u64, length: u64, mode: u32) -> Outcome<()> {
        let node = self.node(node)?;
        let stream = self.stream(node.id)?;
        if stream.discards {
            return Err(crate::Errno::EOPNOTSUPP);
        }
        rustix::fs::fallocate(&stream.file, FallocateFlags::from_bits_retain(mode), offset, length)?;
        let mut open = node.open.lock();
        self.record_measure(&node, &mut open)
    }
}
