//! FORGET and RELEASE: what the kernel lets go of.

use crate::open_file::{is_lent, writes};
use crate::{Outcome, Space};
use ullage_types::NodeId;

impl Space {
    pub(crate) fn do_release(&self, node: NodeId, handle: u64) -> Outcome<()> {
        let node = self.node(node)?;
        let mut open = node.open.lock();
        assert!(open.handles > 0, "node {} is released more often than it was opened", node.id);
        open.handles -= 1;
        open.writers -= u32::from(writes(handle));
        // What is in a fence may be mapped still: that is looked at.
        if is_lent(handle)
            && !open.is_fenced()
            && let Some(backing) = open.backing.as_mut().filter(|backing| backing.lends)
        {
            backing.lent_is_gone = true;
            if open.handles > 0 {
                self.record_measure(&node, &mut open)?;
            }
        }
        if open.handles > 0 {
            return Ok(());
        }
        open.failed = None;
        let named = node.inode.lock().record.nlink > 0;
        let measured = if named { self.closed(&node, &mut open) } else { Ok(()) };
        drop(open);
        if !node.is_known() {
            self.let_go(&node);
        }
        measured
    }
}
