//! UNLINK and RMDIR.

use crate::{Outcome, Space};
use ullage_catalog::Unlinked;
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        let parent = self.inode(parent)?;
        let unlinked = self.catalog.unlink(&parent, name, crate::now())?;
        self.changed(&parent);
        self.trees.name(parent.id, name);
        self.after_unlink(unlinked);
        Ok(())
    }

    pub(crate) fn do_rmdir(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        let parent = self.inode(parent)?;
        let unlinked = self.catalog.rmdir(&parent, name, crate::now())?;
        self.changed(&parent);
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
            Some(node) if node.open.is_locked() => self.settler.push_in_use(&node),
            Some(node) => self.let_go_in_time(&node),
            None => {
                // Counted and forgotten at once, so that there is one way out.
                let node = self.nodes.enter(unlinked.file);
                self.forget_node(node.id, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// The change is made by then, so that nobody else can do the rest: threads that answer the kernel stood still.
    #[test]
    fn who_removes_a_file_waits_for_nobody_who_works_on_it() {
        for is_known in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (space, node) = lending(dir.path());
            if !is_known {
                let mut open = node.open.lock();
                (open.handles, open.writers) = (0, 0);
                assert!(space.nodes.forget(node.id, 1).is_some());
            }
            let held = node.open.lock();
            let (removes, removed) = mpsc::channel();
            let theirs = space.clone();
            std::thread::spawn(move || removes.send(theirs.do_unlink(NodeId(1), b"file")));
            removed.recv_timeout(Duration::from_secs(10)).expect("it waits").unwrap();
            drop(held);
            if !is_known {
                let until = Instant::now() + Duration::from_secs(20);
                while !node.inode.lock().is_removed() {
                    assert!(Instant::now() < until, "it never goes");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}
