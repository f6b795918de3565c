//! FALLOCATE.

use crate::headroom::fence::{fill_holes, is_enclosed};
use crate::headroom::holes::{Holes, data_in};
use crate::headroom::loads;
use crate::headroom::{Range, Work};
use crate::node::Node;
use crate::open_file::Measure;
use crate::ops::Stream;
use crate::{Errno, Outcome, Space, without_reserve};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::sync::Arc;
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_fallocate(&self, node: NodeId, offset: u64, length: u64, mode: u32) -> Outcome<()> {
        let node = self.node(node)?;
        let stream = self.stream(node.id)?;
        if stream.discards {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = FallocateFlags::from_bits_retain(mode);
        let untold = mode.is_empty() && self.is_untold(&node, &stream.file)?;
        drop(stream);
        let frees = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE);
        let _taking = if frees { None } else { self.before_taking_for(&node.inode, length)? };
        if untold {
            let write = |stream: &Stream| self.allocate_written(&node, &stream.file, offset..offset + length);
            if self.with_room(&node, length, true, write)? {
                self.look_anew(&node);
                return Ok(());
            }
        }
        // Zeroed ranges are as if never written. Nothing may fail from here on until they are freed.
        drop(Self::lock_to_free(&node));
        let outcome = self
            .with_room(&node, length, true, |stream| self.fallocate_freeing(&node, &stream.file, offset, length, mode));
        // What has blocks now was not written for that.
        self.firm(&mut node.open.lock());
        Self::write_out_late(&node);
        let measured = {
            let mut open = node.open.lock();
            open.grant.freed();
            if let Some(backing) = &mut open.backing {
                backing.is_changed();
            }
            self.record_measure(&node, &mut open)
        };
        // It is measured later then: what was done has not failed.
        measured.unwrap_or_else(|error| node.not_measured(error));
        self.look_anew(&node);
        outcome
    }

    /// As asked for, while nothing counts on blocks that the file has.
    fn fallocate_freeing(
        &self,
        node: &Arc<Node>,
        file: &File,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
    ) -> Outcome<()> {
        if node.open.lock().backing.as_deref().is_some_and(|backing| backing.solid)
            && mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE)
        {
            let end = offset + length;
            let inside = end.min(Measure::of(file)?.size).max(offset);
            // What lies behind the end may be refused, and then nothing has been zeroed. So may holes that madvise(2) made.
            if mode.contains(FallocateFlags::ZERO_RANGE) {
                self.allocate_within(node, file, offset, length, mode.difference(FallocateFlags::ZERO_RANGE))?;
            }
            return Self::zero(file, offset..inside);
        }
        let frees = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE);
        if frees || mode.contains(FallocateFlags::INSERT_RANGE) {
            // Neither adds blocks, and what frees them must work at a limit too. What is freed gets none afterwards.
            self.firm(&mut node.open.lock());
            rustix::fs::fallocate(file, mode, offset, length)?;
        } else {
            match self.allocate_within(node, file, offset, length, mode) {
                // The map of the file may not grow.
                Err(Errno::EDQUOT | Errno::ENOSPC) if mode.contains(FallocateFlags::ZERO_RANGE) => {
                    self.allocate_within(node, file, offset, length, mode.difference(FallocateFlags::ZERO_RANGE))?;
                    self.zero_within(node, file, offset..offset + length)?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Gives a range its blocks, as far as the limits let it.
    fn allocate_within(
        &self,
        node: &Arc<Node>,
        file: &File,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
    ) -> Outcome<()> {
        let reaches = if mode.contains(FallocateFlags::KEEP_SIZE) { 0 } else { offset + length };
        let work = if mode.contains(FallocateFlags::ZERO_RANGE) { Work::Unwrites } else { Work::Allocates };
        let range = Range { node, file, offset, length, work, whole: true, reaches };
        self.write_within(&range, |offset, length| {
            let adds = mode.difference(FallocateFlags::KEEP_SIZE).is_empty();
            let to_load = if adds && loads::is_in_memory(file) && self.is_bounded(&node.inode)? {
                Some(Holes::of(file, offset..offset + length, Measure::of(file)?.block)?)
            } else {
                None
            };
            let enclosed = adds && is_enclosed(&node.open.lock());
            without_reserve(|| {
                if enclosed {
                    let block = Measure::of(file)?.block;
                    return fill_holes(file, offset..offset + length, block, mode).map(|()| length);
                }
                rustix::fs::fallocate(file, mode, offset, length)?;
                if let Some(holes) = to_load {
                    // Told apart from a hole, what was allocated can be written at the limit.
                    loads::load(file, &holes, offset + length)?;
                }
                Ok(length)
            })
        })?;
        Ok(())
    }

    /// Writes zeros to what was written of a range.
    fn zero_within(&self, node: &Arc<Node>, file: &File, range: std::ops::Range<u64>) -> Outcome<()> {
        for data in data_in(file, range.start..range.end.min(Measure::of(file)?.size))? {
            let (offset, end) = (data.start, data.end.min(range.end));
            let length = end.saturating_sub(offset);
            let data = Range { node, file, offset, length, work: Work::Writes, whole: true, reaches: 0 };
            self.write_within(&data, |at, length| {
                without_reserve(|| Ok(crate::headroom::solid::zeros(file, at..at + length).map(|()| length)?))
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Filesystem;
    use crate::headroom::lend::tests::lending_file;
    use ullage_catalog::{Limit, Subject};
    use ullage_types::FileId;

    /// Whoever came to map the file next waited for its end, which never came, and soon everybody who opened a file.
    #[test]
    fn an_allocation_that_fails_before_it_begins_has_not_begun_to_take_blocks_away() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 7);
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        space.look_after(Some(&node));
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        assert!(space.fallocate(node.id, 1, 0, 1 << 30, 0).is_err(), "its directory is not found");
        node.inode.lock().record.parent = parent;
        assert!(!node.open.lock().grant.is_freeing());
        space.brake.stop();
    }

    /// What had its blocks was told to have failed, since the ledger could not be told.
    #[test]
    fn an_allocation_that_was_made_has_not_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 7);
        space.set_limit(Subject::Directory(FileId(1)), Limit::NONE).unwrap();
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        space.fallocate(node.id, 1, 0, 1 << 20, 0).unwrap();
        node.inode.lock().record.parent = parent;
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        assert!(node.inode.lock().record.blocks >= 2048, "it is measured later");
        space.brake.stop();
    }
}
