//! Before files come under another limit: what is held for them comes along, and may be more than that limit has left.

use super::lend::LONG_PATIENCE;
use crate::node::Node;
use crate::{Outcome, Space, hurry};
use std::sync::Arc;
use ullage_catalog::Inode;
use ullage_types::Kind;

impl Space {
    /// What a file has by its record, or all that lies below a directory, in bytes.
    pub(crate) fn charged_to(of: &Inode) -> u64 {
        match of.kind {
            Kind::Directory => of.totals().now().actual.0.iter().map(|charge| charge.bytes.0).sum(),
            _ => of.lock().record.charge().bytes.0,
        }
    }

    /// A file, or all below a directory, is about to come under limits that have so much left: where it does not fit with what is held until its
    /// data is on the disk, that is written out. While nobody waits behind the caller: a disk may take its time.
    ///
    /// # Errors
    /// [`crate::Errno::LATER`] where the calling thread may not wait for that.
    pub(crate) fn before_bringing(&self, of: &Arc<Inode>, room: Option<u64>) -> Outcome<()> {
        let Some(room) = room else { return Ok(()) };
        let mut nodes = self.holders();
        nodes.retain(|node| node.inode.id == of.id || of.kind == Kind::Directory && self.lies_below(node, of));
        let held = |node: &Arc<Node>| node.open.try_lock().map_or(u64::MAX, |open| open.grant.held);
        let all = nodes.iter().map(held).fold(Self::charged_to(of), u64::saturating_add);
        let Some(space) = self.own().upgrade().filter(|_| !nodes.is_empty() && all > room) else { return Ok(()) };
        hurry::may_wait()?;
        self.headroom.aside.run(&space, nodes, LONG_PATIENCE, |space, node| {
            // What it grew by unseen may lack its blocks: those are asked for first, and what is then held for them goes with their data.
            let measured = space.measure_closely(node, &mut node.open.lock(), true).1;
            if let Err(error) = measured.and_then(|()| space.let_go_of_given(node)) {
                node.not_measured(error);
            }
        });
        Ok(())
    }
}
