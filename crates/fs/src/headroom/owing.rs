//! Closed files that owe: below a limit, what was written to them unseen may lack blocks that the file system below finds later.
//!
//! To be closed, such a file is given those. From then on until the disk has the data, ext4 calls that never written, so that whoever
//! comes to append is lent nothing (`late.rs`), and has every write ask. So while there is plenty of room it is kept open, with what is held
//! for its map, until the kernel has written it out by itself as a rule.

use crate::Space;
use crate::node::Node;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use ullage_policy::headroom::{Counting, lend};
use ullage_types::PoolId;

/// How much longer than others they stay open: with what others do, 30 s, after which the kernel writes data out.
const TIMES: u32 = 14;

/// No more of them stay open, nor more than two in three of all closed files that may.
const MOST: usize = 16_384;

/// Nor one that owes more bytes: a file of 31 MB.
const MUCH: u64 = 1 << 20;

/// Those that are kept open, and since when.
#[derive(Default)]
pub(crate) struct Owing {
    files: Mutex<VecDeque<(Instant, Arc<Node>)>>,
}

impl Owing {
    /// Of files that were closed a while ago keeps those that owe. Gives back the others.
    pub(crate) fn keep(&self, space: &Space, closed: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
        let mut files = self.files.lock();
        let most = MOST.min(space.options.linger_max / 3 * 2);
        let (mut left, now) = (Vec::new(), Instant::now());
        for node in closed {
            if files.len() < most && space.may_owe(&node) {
                files.push_back((now, node));
            } else {
                left.push(node);
            }
        }
        left
    }

    /// Those whose time has come, or that may not owe any longer.
    pub(crate) fn due(&self, space: &Space) -> Vec<Arc<Node>> {
        let mut files = self.files.lock();
        let (mut due, long) = (Vec::new(), space.options.linger * TIMES);
        files.retain(|(since, node)| {
            let keeps = since.elapsed() < long && space.may_owe(node);
            if !keeps {
                due.push(node.clone());
            }
            keeps
        });
        due
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.files.lock().len()
    }

    /// All of them.
    pub(crate) fn take(&self) -> Vec<(Instant, Arc<Node>)> {
        self.files.lock().drain(..).collect()
    }
}

impl Space {
    /// Whether a closed file owes, and keeps nothing from anybody that way.
    fn may_owe(&self, node: &Node) -> bool {
        let owes = || {
            let open = node.open.try_lock().filter(|open| open.grant.owes() && open.grant.held <= MUCH)?;
            let backing = open.backing.as_deref()?;
            let by_calls = !backing.mappable && !backing.late && backing.fence.is_none();
            if open.handles == 0 && by_calls { self.counting_of(&open) } else { None }
        };
        owes().is_some_and(|(pool, counting)| self.has_plenty(node, pool, counting))
    }

    /// Whether so much room is left for a file that some is lent.
    pub(crate) fn has_plenty(&self, node: &Node, pool: PoolId, counting: Counting) -> bool {
        self.room_of(&node.inode, pool).is_ok_and(|room| lend(counting, room).is_some())
    }
}
