//! UNLINK and RMDIR.

use crate::{Outcome, Space};
use ullage_catalog::Unlinked;
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        let parent = self.inode(parent)?;
        let unlinked = self.catalog.unlink(&parent, name, crate::now())?;
        self.trees.name(parent.id, name);
        self.after_unlink(unlinked);
        Ok(())
    }

    pub(crate) fn do_rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        let parent = self.inode(parent)?;
        let unlinked = self.catalog.rmdir(&parent, name, crate::now())?;
        self.trees.name(parent.id, name);
        self.after_unlink(unlinked);
        Ok(())
    }

    /// A file that lost its last name goes when the kernel forgets it; at once if it does not know it.
    pub(crate) fn after_unlink(&self, unlinked: Unlinked) {
        if !unlinked.last {
            return;
        }
        self.expect_room(&unlinked.file);
        if self.catalog.has_limits() {
            self.leaving.begin(unlinked.file.id);
        }
        match self.nodes.find(unlinked.file.id) {
            Some(node) if node.is_known() => {}
            Some(node) => self.let_go_in_time(&node),
            None => {
                // Counted and forgotten at once, so that there is one way out.
                let node = self.nodes.enter(unlinked.file);
                self.forget_node(node.id, 1);
            }
        }
    }
}
