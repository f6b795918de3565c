//! LINK.

use crate::headroom::{ANY, SMALL};
use crate::hurry;
use crate::{Entry, Outcome, Space};
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        let file = self.node(node)?.inode.clone();
        let parent = self.inode(parent)?;
        let charged = || self.catalog.get(file.lock().record.parent);
        self.await_unseen(&file, &charged()?, &parent)?;
        let is_first = file.lock().record.nlink == 0;
        if is_first {
            self.before_bringing(&file, self.catalog.room(None, &parent).0)?;
        }
        let _modes = self.catalog.has_limits().then(|| hurry::alone(&self.headroom.modes)).transpose()?;
        self.may_move(&file, &charged()?, &parent)?;
        // With its first name comes all of it.
        let wanted = if is_first { ANY } else { SMALL };
        self.asked(wanted, || self.catalog.link(&file, &parent, name, crate::now()))?;
        self.trees.name(parent.id, name);
        self.entry(file)
    }
}
