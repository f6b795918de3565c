//! COPY_FILE_RANGE: between backing files of one file system the pool can share blocks.

use crate::headroom::{Blocks, Range, Work};
use crate::node::Node;
use crate::open_file::Measure;
use crate::{Outcome, Space, without_reserve};
use ullage_types::{NodeId, Timestamp};

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
        let node = self.node(to)?;
        let ends = [self.node(from)?, node.clone()];
        let solid = |node: &Node| node.open.lock().backing.as_deref().is_some_and(|backing| backing.solid);
        if self.pools.blocks(target.pool) == Blocks::Ahead && ends.iter().any(|node| solid(node)) {
            // What is stored unseen into blocks that are shared takes others. The kernel copies the data itself then.
            return Err(crate::Errno::EOPNOTSUPP);
        }
        // No more is held than there is to copy.
        let before = Measure::of(&source.file)?;
        let length = length.min(AT_ONCE).min(before.size.saturating_sub(from_offset));
        // Who has them could not move to another pool.
        drop((source, target));
        let _taking = self.before_taking_for(&node.inode, length)?;
        let copied = self.with_room(&node, length, false, |target| {
            let (file, offset) = (&*target.file, to_offset);
            let range = Range { node: &node, file, offset, length, work: Work::Writes, whole: false, reaches: offset };
            let source = Self::stream_of(&ends[0])?.file;
            self.write_within(&range, |at, length| {
                let (mut from, mut to) = (from_offset + (at - to_offset), at);
                let length = length as usize;
                without_reserve(|| {
                    Ok(rustix::fs::copy_file_range(&source, Some(&mut from), file, Some(&mut to), length)? as u64)
                })
            })
        })?;
        // Both may share blocks from now on.
        for node in &ends {
            self.look_anew(node);
        }
        self.show_access(&ends[0], before.atime);
        Self::write_out_late(&node);
        // It is measured later then: what was copied has not failed.
        self.record_measure(&node, &mut node.open.lock()).unwrap_or_else(|error| node.not_measured(error));
        Ok(copied)
    }

    /// The kernel takes what it knows of the source for true: it marks no access to files of ours itself.
    fn show_access(&self, source: &Node, before: Timestamp) {
        let now = Self::stream_of(source).and_then(|stream| Ok(Measure::of(&stream.file)?.atime));
        if now.is_ok_and(|now| now != before) {
            self.show_only(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::headroom::lend::tests::lending_file;
    use std::sync::Arc;
    use ullage_catalog::{Limit, Subject};
    use ullage_types::FileId;

    /// What was copied was told to have failed, since the ledger could not be told.
    #[test]
    fn a_copy_that_was_made_has_not_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 65536);
        let file = std::fs::File::options().read(true).write(true).open(dir.path().join("backing")).unwrap();
        node.open.lock().backing.as_deref_mut().unwrap().file = Arc::new(file);
        space.set_limit(Subject::Directory(FileId(1)), Limit::NONE).unwrap();
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        let copied = space.do_copy_file_range((node.id, 0), (node.id, 65536), 65536);
        node.inode.lock().record.parent = parent;
        assert_eq!(copied, Ok(65536));
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        assert!(node.inode.lock().record.blocks >= 256, "it is measured later");
        space.brake.stop();
    }
}
