//! The mark: how the kernel is brought to ask before every write to a file.
//!
//! Before the first write after any refresh of a file's attributes the kernel asks whether it has capabilities, and notes that it needs not
//! ask again; but for one that would run with its owner's rights, which every write takes away from such: so it asks each time. A file
//! whose writes are to ask is therefore given that bit of its mode in what SETATTR is answered, which the kernel takes in the turn of
//! the writer that asked, before he goes on. Nobody sees it: it is in no other answer, and the kernel takes no other as long as writes
//! are to ask. Nor does anybody run such a file: only what nobody may execute is marked.

use super::waiting;
use crate::attributes::WHILE_ASKED;
use crate::node::Node;
use crate::{AttributesFor, Errno, Outcome, Space, hurry};
use std::sync::Arc;
use ullage_policy::headroom::CALL;
use ullage_types::Kind;

const MARK: u32 = libc::S_ISUID;
const EXECUTABLE: u32 = 0o111;

impl Space {
    /// What the kernel is told of a file that it lets nobody write to meanwhile: with the mark, where writes are to ask.
    pub(crate) fn mark(&self, node: &Arc<Node>, answer: &mut AttributesFor) {
        if !self.brake.is_used() || node.inode.kind != Kind::Regular {
            return;
        }
        let mut open = node.open.lock();
        open.marked = open.braked.is_some() && can_be_marked(answer.attributes.mode);
        if open.marked {
            answer.attributes.mode |= MARK;
            answer.lifetime = WHILE_ASKED;
        }
    }

    /// A change failed that had asked back what is lent: the kernel is told nothing by its answer, and is brought to ask otherwise.
    ///
    /// # Errors
    /// LATER where the calling thread may not wait for that.
    pub(crate) fn asks_without_mark(&self, node: &Arc<Node>) -> Outcome<()> {
        let asks = {
            let open = node.open.lock();
            open.braked.is_some() && open.lends() && open.grant.lent() == 0 && !open.marked
        };
        if asks {
            hurry::may_wait()?;
            self.refresh_behind(node);
        }
        Ok(())
    }

    /// What is allowed with a file was changed, and the kernel is to know that of one that is marked, too.
    pub(crate) fn mark_again(&self, node: &Arc<Node>) {
        let marked = node.open.lock().marked;
        if marked {
            self.refresh(node);
        }
    }

    /// Sees to it that the write after the one that asks does so too. Gives back how much may be written in between.
    pub(crate) fn next_asks(&self, node: &Arc<Node>) -> Outcome<u64> {
        if can_be_marked(node.inode.lock().record.mode) {
            return Ok(0);
        }
        hurry::may_wait()?;
        if !self.refresh_behind(node) && node.open.lock().lends() {
            // Nobody would stop it after this call.
            return Err(Errno::ENOSPC);
        }
        // Who waits for his turn already does not ask, nor does who comes between him and the next.
        Ok(if waiting::is_waited_for(self.file_of(node)) { CALL } else { 0 })
    }
}

/// Whether nobody may execute a file of this mode.
pub(crate) fn can_be_marked(mode: u32) -> bool {
    mode & EXECUTABLE == 0
}

#[cfg(test)]
mod tests {
    use crate::headroom::lend::tests::lending;
    use crate::{Caller, Errno, Filesystem, SetAttributes};
    use ullage_catalog::{Limit, Subject};

    /// Nothing was held for it any more, and its next write asked nobody.
    #[test]
    fn a_file_whose_owner_could_not_be_changed_asks_from_then_on_or_is_lent_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        space.set_limit(Subject::User(5), Limit { bytes: None, inodes: Some(0) }).unwrap();
        {
            let mut open = node.open.lock();
            assert!(space.lend_more(&node, &mut open).unwrap());
            open.backing.as_deref_mut().unwrap().lends = true;
        }
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let change = SetAttributes { uid: Some(5), ..SetAttributes::default() };
        assert_eq!(space.setattr(caller, node.id, change).map(drop), Err(Errno::EDQUOT));
        let open = node.open.lock();
        assert!(open.grant.lent() > 0 || open.refresher.is_some());
        drop(open);
        space.brake.stop();
    }
}
