//! A write that goes on in the kernel, and asks before: what it may take is set aside, or it is refused (`brake.rs`).

use super::Blocks;
use super::fence::{beside, is_enclosed};
use super::lend::PATIENCE;
use super::waiting::{self, Doing, File, Place};
use crate::node::Node;
use crate::open_file::{OpenBacking, OpenFile};
use crate::privileges::CAPABILITY;
use crate::{AttributesFor, Caller, Errno, Outcome, Space, hurry, sys};
use std::sync::Arc;
use ullage_policy::headroom::CALL;

/// A write unseen that asks.
struct Write {
    length: Option<u64>,
    /// Where it goes, if that matters and is known.
    place: Option<Place>,
    /// What may be written between it and the next one that asks.
    between: u64,
}

impl Space {
    /// Whether the kernel is to be told that a file has capabilities, so that it asks to remove them.
    pub(crate) fn asks_first(&self, node: &Node, name: &[u8], size: u32) -> bool {
        size == 0 && name == CAPABILITY && self.brake.is_engaged() && node.open.lock().braked.is_some()
    }

    /// Lets what makes the kernel remove capabilities go on.
    ///
    /// # Errors
    /// EDQUOT or ENOSPC when it is a write that may take more than there is room for, [`Errno::LATER`] when that needs waiting.
    pub(crate) fn passes_brake(&self, caller: Caller, node: &Arc<Node>) -> Outcome<()> {
        if !self.brake.is_engaged() || node.open.lock().braked.is_none() {
            return Ok(());
        }
        if self.lender.is_tried_by(caller) {
            return if self.lender.asks_again() { Err(Errno::EDQUOT) } else { Ok(()) };
        }
        let Doing::Writing(length) = waiting::doing(caller.pid)? else { return Ok(()) };
        // Whoever waits for it needs not wait for us.
        self.ended_unseen(node)?;
        self.leave_no_gap(caller, node)?;
        let write = Write { length, place: self.place_of_write(caller, node), between: self.next_asks(node)? };
        let outcome = {
            let _flow = hurry::shared(&self.headroom.flow)?;
            self.let_write(caller, node, &write)
        };
        match outcome {
            Err(Errno::EDQUOT | Errno::ENOSPC) => {
                hurry::may_wait()?;
                let wanted = length.unwrap_or(CALL).saturating_add(write.between);
                let _alone = self.alone_with_room(Some(node), wanted, PATIENCE);
                self.let_write(caller, node, &write)
            }
            outcome => outcome,
        }
    }

    /// Sets aside what a write unseen may take, a block where nobody shows what it is (else all that one may where its length is not known), and
    /// what may be written between it and the next that asks, until they are known to be over.
    fn let_write(&self, caller: Caller, node: &Arc<Node>, write: &Write) -> Outcome<()> {
        self.ended_unseen(node)?;
        let (pool, counting, lends) = {
            let open = node.open.lock();
            let Some(backing) = &open.backing else { return Ok(()) };
            let counting = self.pools.counting(backing.pool, backing.baseline.block);
            (backing.pool, counting, backing.lends)
        };
        let worst = |length: u64| counting.anywhere(length.min(CALL));
        let beside = beside(&node.open.lock());
        let need = match write.length {
            Some(length) if self.takes_nothing(node, write.place, length) => 0,
            Some(length) => worst(length) + beside,
            None if lends => worst(CALL),
            None if waiting::is_kernels(caller.pid) => worst(waiting::longest_request()),
            None if sys::sees_calls() => worst(CALL),
            None => counting.unit,
        };
        let need = need + if write.between > 0 { worst(write.between) } else { 0 };
        self.take_just(node, pool, need)?;
        node.open.lock().grant.let_go(need);
        Ok(())
    }

    /// Whether a write unseen goes where everything was written before, and has its place for itself. Whoever could take that away waits
    /// for the file's lock, which the writer has. Where it goes is what its descriptor says now, which other threads may have changed
    /// since the call began (`O_APPEND`, dup2): so this is believed only where a fence stops what takes more after all.
    fn takes_nothing(&self, node: &Node, place: Option<Place>, length: u64) -> bool {
        let open = node.open.lock();
        let (Some(backing), Some(Place::At(at))) = (&open.backing, place) else { return false };
        if !self.may_take_nothing(&open) {
            return false;
        }
        let end = at.saturating_add(length);
        ullage_extents::written_bytes(&backing.file, at..end).is_ok_and(|written| written == length)
    }

    fn may_take_nothing(&self, open: &OpenFile) -> bool {
        let shows = |backing: &OpenBacking| matches!(self.pools.blocks(backing.pool), Blocks::Later | Blocks::Ahead);
        is_enclosed(open) && open.backing.as_deref().is_some_and(shows)
    }

    /// Where a write unseen goes, if that matters and is known. Asked with no lock held: it may lie in the caller's memory, the lock of
    /// which somebody may hold who waits for one of ours.
    fn place_of_write(&self, caller: Caller, node: &Node) -> Option<Place> {
        let matters = self.may_take_nothing(&node.open.lock());
        if matters { waiting::place(caller.pid) } else { None }
    }

    /// A file as the processes that have it open know it.
    pub(crate) fn file_of(&self, node: &Node) -> Option<File> {
        self.kernel()?.device().map(|(major, minor)| (major, minor, node.id.0))
    }

    /// A write unseen to a file that may be mapped leaves no hole behind it: what would be one gets its blocks first.
    fn leave_no_gap(&self, caller: Caller, node: &Arc<Node>) -> Outcome<()> {
        let solid = node.open.lock().backing.as_deref().is_some_and(|backing| backing.lends && backing.solid);
        if !solid {
            return Ok(());
        }
        hurry::may_wait()?;
        // Where it is not known the write might begin anywhere.
        match waiting::furthest(caller.pid, self.file_of(node)).ok_or(Errno::ENOSPC)? {
            Place::End => Ok(()),
            Place::At(at) => {
                let Some(gap) = Self::gap(node, at)? else { return Ok(()) };
                let _alone = self.alone_to_fill(node, gap)?;
                self.fill_gap(node, at, 0)
            }
        }
    }

    /// No write unseen is under way: who was let go on has written what he will.
    pub(crate) fn ended_unseen(&self, node: &Arc<Node>) -> Outcome<()> {
        self.ended_unseen_of(node, &mut node.open.lock())
    }

    /// The same, and the kernel is about to be told what makes the next write ask.
    pub(crate) fn refreshed(&self, node: &Arc<Node>) -> Outcome<AttributesFor> {
        {
            let mut open = node.open.lock();
            // Whoever wants it done from here on wants it done once more.
            open.refresher = None;
            self.ended_unseen_of(node, &mut open)?;
        }
        self.attributes_now(node)
    }

    fn ended_unseen_of(&self, node: &Arc<Node>, open: &mut OpenFile) -> Outcome<()> {
        if open.braked.is_some() {
            // The next one asks.
            if open.is_fenced() {
                self.lend_to_holes(open);
            }
            open.grant.end_lending();
        }
        if let Some(grant) = open.grant.changed() {
            grant.end_let_go();
        }
        self.record_measure(node, open)
    }
}
