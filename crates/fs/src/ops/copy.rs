//! COPY_FILE_RANGE: between backing files of one file system the pool can share blocks.

use crate::{Outcome, Space};
use ullage_types::NodeId;

/// The most that one call copies, so that a signal is not kept waiting: the caller asks again.
const AT_ONCE: u64 = 256 << 20;

impl Space {
    pub(crate) fn do_copy_file_range(
        &self,
        (from, from_offset): (NodeId, u64),
        (to, to_offset): (NodeId, u64),
        length: u64,
    ) -> Outcome<u64> {
        let source = self.stream(from)?;
        let target = self.stream(to)?;
        if source.discards || target.discards {
            return Err(crate::Errno::EOPNOTSUPP);
        }
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        let length = length.min(AT_ONCE) as usize;
        let copied = rustix::fs::copy_file_range(
            &source.file,
            Some(&mut from_offset),
            &target.file,
            Some(&mut to_offset),
            length,
        )?;
        let node = self.node(to)?;
        let mut open = node.open.lock();
        self.record_measure(&node, &mut open)?;
        Ok(copied as u64)
    }
}
