//! Pools whose file system does not tell what was allocated from holes (on servers, in user space): below a limit zeros are written to what is
//! allocated there, since nothing could be written into it at the limit otherwise.

use super::holes::Holes;
use super::solid::zero_holes;
use super::splits::begins_to_fill;
use super::writes::PIECE;
use super::{Range, Work, loads};
use crate::node::Node;
use crate::{Errno, Outcome, Space, hurry, without_reserve};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::ops;
use std::sync::Arc;

impl Space {
    /// Whether what is allocated for a file is to be written for that. On tmpfs it is loaded (`loads.rs`).
    pub(crate) fn is_untold(&self, node: &Node, file: &File) -> Outcome<bool> {
        if !self.is_bounded(&node.inode)? || loads::is_in_memory(file) {
            return Ok(false);
        }
        let block = self.counting_of(&node.open.lock()).map_or(4096, |(_, counting)| counting.block);
        Ok(Holes::of(file, 0..1, block)?.guessed)
    }

    /// Allocates a range and writes zeros where there was nothing: all of it or nothing. Piece by piece, while nobody else writes.
    /// Gives back whether it did: not while somebody may be writing there unseen, or frees blocks.
    pub(crate) fn allocate_written(&self, node: &Arc<Node>, file: &File, range: ops::Range<u64>) -> Outcome<bool> {
        hurry::may_wait()?;
        if !begins_to_fill(&mut node.open.lock()) {
            return Ok(false);
        }
        let outcome = self.write_pieces(node, file, range);
        node.open.lock().grant.filled();
        outcome.map(|()| true)
    }

    fn write_pieces(&self, node: &Arc<Node>, file: &File, range: ops::Range<u64>) -> Outcome<()> {
        let (pool, counting) = self.counting_of(&node.open.lock()).ok_or(Errno::EBADF)?;
        let mut at = range.start;
        while at < range.end {
            let alone = self.alone_to_fill(node, at..range.end)?;
            self.fill_gap(node, at, 0)?;
            let rest = Holes::of(file, at..range.end, counting.block)?.cost(counting);
            let fits = self.room_of(&node.inode, pool)?.is_none_or(|room| rest <= room);
            // Else all of it is refused as one.
            let end = if fits { range.end.min(at.saturating_add(PIECE)) } else { range.end };
            let piece =
                Range { node, file, offset: at, length: end - at, work: Work::Allocates, whole: true, reaches: 0 };
            self.write_alone(&piece, pool, counting, |at, length| {
                let holes = Holes::of(file, at..at + length, counting.block)?;
                without_reserve(|| {
                    rustix::fs::fallocate(file, FallocateFlags::empty(), at, length)?;
                    Ok::<_, Errno>(zero_holes(file, &holes, at..at + length).map(|()| length)?)
                })
            })?;
            drop(alone);
            at = end;
        }
        Ok(())
    }
}
