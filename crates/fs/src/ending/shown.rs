//! Times of files in plain trees that nobody wrote to.

use crate::node::Node;
use crate::open_file::OpenFile;
use crate::pools::answering::Call;
use crate::{Outcome, Space};

impl Space {
    /// A file that was measured, and that nobody can write to any more, has the times that its record says, also where its backing file was made
    /// ahead of it and was never written to, or was only cut off.
    pub(crate) fn show_times(&self, node: &Node, open: &mut OpenFile) -> Outcome<()> {
        let Some(backing) = open.backing.as_deref_mut().filter(|backing| !backing.discards) else { return Ok(()) };
        let has_tree = self.pools.member(backing.pool).is_some_and(|member| member.tree.is_some());
        let record = node.inode.record();
        // What is newer was written by somebody who found it in the tree.
        if !has_tree || record.nlink == 0 || backing.baseline.mtime >= record.mtime {
            return Ok(());
        }
        self.pools.call(backing.pool, Call::Writes, || backing.begin_with_times(&record))
    }
}
