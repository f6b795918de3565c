//! LINK.

use crate::headroom::{ANY, SMALL};
use crate::{Entry, Outcome, Space};
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        let node = self.node(node)?;
        self.will_be_shown_at_once(&node)?;
        let file = node.inode.clone();
        let parent = self.inode(parent)?;
        let charged = || self.catalog.get(file.lock().record.parent);
        self.await_unseen(&file, &charged()?, &parent)?;
        let is_first = file.lock().record.nlink == 0;
        let mut taking = None;
        if is_first {
            if self.catalog.differ_in_limits(&charged()?, &parent) {
                taking = self.before_taking_all(&file)?;
            }
            self.before_bringing(&file, self.catalog.room(None, &parent).0)?;
        }
        let limits = self.keep_limits()?;
        self.may_move(&file, &charged()?, &parent)?;
        // With its first name comes all of it.
        let wanted = if is_first { ANY } else { SMALL };
        self.asked(wanted, || self.catalog.link(&file, &parent, name, crate::now()))?;
        self.changed(&parent);
        self.trees.name(parent.id, name);
        // Its pool is asked what it looks like now, and may not answer.
        drop((limits, taking));
        if is_first {
            // Who closed it when it had none left it alone: it was to go.
            self.closes_unused(&node);
        }
        self.entry(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Caller;
    use crate::headroom::lend::tests::lending;

    /// It stayed open for ever, its leaf marked, and what it takes was not known.
    #[test]
    fn a_file_that_is_closed_before_it_gets_its_first_name_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let (caller, root) = (Caller { uid: 0, gid: 0, pid: 1 }, NodeId(1));
        let (entry, opened) = space.do_tmpfile(caller, root, 0o600, 0, libc::O_WRONLY as u32).unwrap();
        space.do_release(entry.node, opened.handle).unwrap();
        let node = space.node(entry.node).unwrap();
        assert!(!node.open.lock().queued);
        space.do_link(entry.node, root, b"name").unwrap();
        assert!(node.open.lock().queued);
    }
}
