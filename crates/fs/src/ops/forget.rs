//! FORGET and RELEASE: what the kernel lets go of.

use crate::hurry;
use crate::node::Node;
use crate::open_file::{OpenFile, is_lent, writes};
use crate::pools::answering::Call;
use crate::{Outcome, Space};
use ullage_pool::Locator;
use ullage_types::NodeId;

impl Space {
    /// LATER where the calling thread may not wait, and to release a handle may take that.
    pub(crate) fn releases_at_once(&self, node: NodeId) -> Outcome<()> {
        let Ok(node) = self.nodes.get(node) else { return Ok(()) };
        let is_measured = |open: &OpenFile| self.is_remote(open) && self.measures_at_close(open);
        self.goes_at_once_if(&node, |open| is_measured(open).then_some(Call::Reads))
    }

    /// The same for who lets go of a node.
    pub(crate) fn goes_at_once(&self, node: &Node) -> Outcome<()> {
        self.goes_at_once_if(node, |open| {
            if self.is_to_be_marked(node, open) {
                return Some(Call::Flushes);
            }
            // What goes for good is closed there and then, which its pool may be told of.
            (self.is_remote(open) && node.inode.lock().record.nlink == 0).then_some(Call::Reads)
        })
    }

    fn goes_at_once_if(&self, node: &Node, takes: impl FnOnce(&OpenFile) -> Option<Call>) -> Outcome<()> {
        if hurry::may_wait().is_ok() {
            return Ok(());
        }
        hurry::can_lock(&node.open)?;
        let open = node.open.lock();
        // What is measured may be given its blocks before.
        let loose = open.grant.is_loose().then_some(Call::Writes);
        match takes(&open).max(loose) {
            Some(call) => self.answers_at_once(&node.inode, call),
            None => Ok(()),
        }
    }

    /// Whether its pool may have to ask others what an open file looks like.
    fn is_remote(&self, open: &OpenFile) -> bool {
        open.backing.as_deref().is_some_and(|backing| self.pools.is_remote(backing.pool))
    }

    /// Whether a file that is let go of goes for good, and that is to be noted in its pool before.
    fn is_to_be_marked(&self, node: &Node, open: &OpenFile) -> bool {
        if open.backing.as_deref().is_some_and(|backing| backing.claimed) {
            return false;
        }
        let state = node.inode.lock();
        let Some(place) = state.record.backing.as_ref().filter(|_| state.record.nlink == 0) else { return false };
        self.pools.get(place.pool).is_ok_and(|pool| !pool.is_marked(&Locator(place.locator.clone())))
    }

    pub(crate) fn do_release(&self, node: NodeId, handle: u64) -> Outcome<()> {
        // Whether this may be done here was asked before: who is told LATER now never does it.
        let node = self.nodes.get(node)?;
        let mut open = node.open.lock();
        assert!(open.handles > 0, "node {} is released more often than it was opened", node.id);
        open.handles -= 1;
        open.writers -= u32::from(writes(handle));
        // What is in a fence may be mapped still: that is looked at.
        if is_lent(handle)
            && !open.is_fenced()
            && let Some(backing) = open.backing.as_deref_mut().filter(|backing| backing.lends)
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
            self.let_go_in_time(&node);
        }
        measured
    }
}
