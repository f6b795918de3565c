//! Files whose writes take blocks only when they are written out, though all they are written to has blocks: what was allocated
//! and never written is split then, so that the map of the file grows, and what is shared with a copy gets a place of its own (xfs).
//!
//! Below a limit such a file is written out before what was held for its writes is let go of, by who may wait for a disk and without
//! the file's lock; nothing is lent to it. At the limit, where the map may not grow, see `splits.rs`.

use super::Blocks;
use super::given::Upto;
use super::grant::Mark;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::sys;
use crate::{Errno, Outcome, Space, hurry};
use parking_lot::MutexGuard;
use std::fs::File;
use std::sync::Arc;
use ullage_extents::Extent;
use ullage_policy::headroom::Counting;
use ullage_types::PoolId;

/// So much is held for writes to such a file before it is written out for more.
const HELD: u64 = 64 << 20;

impl Space {
    /// A file's lock, for a write to it below a limit: it is known whether the file is of this kind.
    ///
    /// # Errors
    /// [`Errno::LATER`] where it must be written out for that.
    pub(crate) fn lock_looked_at<'a>(&self, node: &'a Arc<Node>) -> Outcome<MutexGuard<'a, OpenFile>> {
        let open = node.open.lock();
        // For what is solid its map is kept.
        if open.backing.as_deref().is_none_or(|backing| backing.looked || backing.solid) {
            return Ok(open);
        }
        drop(open);
        self.find_late(node)?;
        Ok(node.open.lock())
    }

    /// Looks whether a file is of this kind: once, until its extents change otherwise. What was lent to it is asked back then.
    fn find_late(&self, node: &Arc<Node>) -> Outcome<()> {
        let looked_at = |open: &OpenFile| {
            let (pool, counting) = self.counting_of(open)?;
            let backing = open.backing.as_deref()?;
            Some((self.pools.blocks(pool), counting, backing.file.clone(), backing.changed))
        };
        let Some((blocks, counting, file, changed)) = looked_at(&node.open.lock()) else { return Ok(()) };
        let found = if counting.map { changed_later(node, &file)? } else { Vec::new() };
        let mut open = node.open.lock();
        let Some(backing) = &mut open.backing else { return Ok(()) };
        if found.iter().any(Extent::is_shared)
            && let Err(error) = copy_by_blocks(backing, counting)
        {
            tracing::debug!(%error, "a file takes more for copies of shared blocks than is written");
        }
        // The map of one without extents has its blocks with the data.
        let mapped = blocks == Blocks::Later && counting.in_inode == 0;
        (backing.looked, backing.late) = (backing.changed == changed, mapped || !found.is_empty());
        if backing.outgrows() && backing.lends {
            // Until it asks, any of that may be written.
            let open = &mut *open;
            open.grant.owe(found.iter().map(Extent::range).map(|range| range.end - range.start).sum(), 0, counting);
            self.brake.engage(open);
        }
        Ok(())
    }

    /// Whether a file may be of this kind, as far as can be said at once.
    pub(crate) fn may_be_late(&self, open: &OpenFile) -> bool {
        let (Some((pool, counting)), Some(backing)) = (self.counting_of(open), &open.backing) else { return false };
        if backing.looked {
            return backing.late;
        }
        let blocks = Measure::of(&backing.file).map_or(u64::MAX, |now| now.blocks);
        match self.pools.blocks(pool) {
            Blocks::Later if counting.in_inode == 0 => true,
            _ if !counting.map || counting.needs_no_map(blocks.saturating_mul(512)) => false,
            _ => ullage_extents::extents(&backing.file, 0..u64::MAX >> 1)
                .is_ok_and(|found| found.iter().any(is_changed_later)),
        }
    }

    /// Holds more for a file that would have to be written out first, where not much is held for it yet and there is room. Gives
    /// back whether `need` was set aside.
    pub(crate) fn takes_late(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        pool: PoolId,
        need: u64,
        more: impl Fn() -> Outcome<u64>,
    ) -> Outcome<bool> {
        if !open.backing.as_deref().is_some_and(|backing| backing.late) || open.grant.spent() >= HELD {
            return Ok(false);
        }
        match self.take_more(node, open, pool, need, more()?) {
            Err(Errno::EDQUOT | Errno::ENOSPC) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// The extents of a file changed otherwise than by writes to it. That is done: where nobody can say what they are now, writes ask from here on.
    pub(crate) fn look_anew(&self, node: &Arc<Node>) {
        let lends = {
            let mut open = node.open.lock();
            if let Some(backing) = &mut open.backing {
                backing.is_changed();
            }
            open.lends()
        };
        if let Some(Err(error)) = lends.then(|| self.find_late(node)) {
            node.not_measured(error);
            self.brake.engage(&mut node.open.lock());
        }
    }

    /// Writes out a file of this kind, so that the next measurement lets go of what was held for its writes so far. The caller does not
    /// hold its lock: who answers the kernel may wait for that.
    pub(crate) fn write_out_late(node: &Node) {
        let late = |open: &OpenFile| Some((open.backing.as_deref()?.file.clone(), late_mark(open)?));
        let Some((file, upto)) = late(&node.open.lock()) else { return };
        let _ = write_out(node, &file);
        node.open.lock().grant.settle(upto);
    }

    /// Writes out what was given its blocks ahead, so that the next measurement lets go of what is held for its map. Gives back whether there
    /// was any.
    pub(crate) fn write_out_given(&self, node: &Node) -> bool {
        let given = |open: &OpenFile| Some((open.backing.as_deref()?.file.clone(), open.grant.given_waits()?));
        let Some((file, upto)) = given(&node.open.lock()) else { return false };
        let _ = write_out(node, &file);
        self.given_is_out(&mut node.open.lock(), upto);
        true
    }

    /// The same, and measures the file.
    pub(crate) fn let_go_of_given(&self, node: &Node) -> Outcome<()> {
        if self.write_out_given(node) { self.record_measure(node, &mut node.open.lock()) } else { Ok(()) }
    }

    /// As [`Space::write_out_given`] for who holds the file's lock, which nobody else needs now.
    pub(crate) fn write_out_given_locked(&self, open: &mut OpenFile) {
        let Some((upto, backing)) = open.grant.given_waits().zip(open.backing.as_deref()) else { return };
        let written = sys::write_out(&backing.file).map_err(Errno::from);
        let _ = open.told(written);
        self.given_is_out(open, upto);
    }

    /// All that was given so far is on the disk, or will not be.
    fn given_is_out(&self, open: &mut OpenFile, upto: Upto) {
        if let Some((_, counting)) = self.counting_of(open) {
            open.grant.given.written_out(upto, counting);
        }
    }

    /// What is held for a file's writes that take blocks when they are written out, and how far that has come.
    pub(crate) fn late_work(open: &OpenFile) -> Option<LateWork> {
        let work = LateWork { mark: late_mark(open), given: open.grant.given_waits() };
        (work.mark.is_some() || work.given.is_some()).then_some(work)
    }

    /// It was written out, so that the next measurement lets go of it.
    pub(crate) fn late_work_is_done(&self, open: &mut OpenFile, work: LateWork) {
        if let Some(upto) = work.mark {
            open.grant.settle(upto);
        }
        if let Some(upto) = work.given {
            self.given_is_out(open, upto);
        }
    }

    /// Writes out a file before it is measured as closely as can be: of one that nobody can write to any more also what was written unseen into
    /// space that it had, and of any what it owes where that cannot be asked for.
    pub(crate) fn write_out_bare(&self, node: &Node) {
        Self::write_out_late(node);
        let Some(bare) = self.bare(node) else { return };
        let _ = write_out(node, &bare.file);
        let mut open = node.open.lock();
        if let Some(backing) = &mut open.backing {
            backing.pays_later = false;
        }
        // Else more was written since.
        if bare.pays && open.grant.unplaced() == bare.unplaced {
            open.grant.pay();
        }
    }

    /// What is to be written out for that.
    pub(crate) fn bare(&self, node: &Node) -> Option<Bare> {
        let mut open = node.open.lock();
        let backing = open.backing.as_deref().filter(|backing| !backing.discards)?;
        // What a quota counts beside what is there cannot be asked for at all.
        let pays = (backing.pays_later || backing.fence.is_some()) && open.grant.owes();
        let counting = self.pools.counting(backing.pool, backing.baseline.block);
        let large = counting.map && !counting.needs_no_map(backing.baseline.blocks * 512);
        let closed = large && open.handles == 0 && backing.written;
        let may_grow = closed && self.is_settled(&mut open) && self.may_be_late(&open);
        let file = open.backing.as_deref().filter(|_| pays || may_grow)?.file.clone();
        Some(Bare { file, unplaced: open.grant.unplaced(), pays })
    }
}

/// A file that is to be written out before it is measured.
pub(crate) struct Bare {
    file: Arc<File>,
    unplaced: u64,
    /// It has paid what it owes then.
    pub(crate) pays: bool,
}

/// How far the writes to a file had come at some moment that take blocks when it is written out.
pub(crate) struct LateWork {
    mark: Option<Mark>,
    given: Option<Upto>,
}

/// How far writes have come for which something is held until they are written out.
pub(crate) fn late_mark(open: &OpenFile) -> Option<Mark> {
    let late = open.backing.as_deref().is_some_and(|backing| backing.late) && open.grant.spent() > 0;
    late.then(|| open.grant.mark())
}

/// Has a file written out by and by.
pub(crate) fn begin_writing(node: &Node) {
    let file = node.open.lock().backing.as_deref().map(|backing| backing.file.clone());
    // What fails here fails again when it is waited for.
    let _ = file.map(|file| sys::begin_writing(&file));
}

/// Writes a file out. A failure is told to who asks for it at fsync(2) too.
pub(crate) fn write_out(node: &Node, file: &File) -> Outcome<()> {
    let written = sys::write_out(file).map_err(Errno::from);
    if written.is_err() {
        let _ = node.open.lock().told(written);
    }
    written
}

fn is_changed_later(extent: &Extent) -> bool {
    extent.is_bare() || extent.is_shared()
}

fn changed_later(node: &Node, file: &File) -> Outcome<Vec<Extent>> {
    let extents = || {
        let any = Measure::of(&file).is_ok_and(|now| now.blocks > 0);
        if any { ullage_extents::extents(file, 0..u64::MAX >> 1).unwrap_or_default() } else { Vec::new() }
    };
    let mut found = extents();
    if found.iter().any(Extent::is_bare) {
        hurry::may_wait()?;
        // What was written and had not found its way to the disk is no longer among them.
        let _ = write_out(node, file);
        found = extents();
    }
    found.retain(is_changed_later);
    Ok(found)
}

/// Has xfs copy no more of what is shared than is written: it gives 128 KiB to each block else.
fn copy_by_blocks(backing: &mut OpenBacking, counting: Counting) -> std::io::Result<()> {
    let before = Measure::of(&backing.file)?;
    // That it changes the file's times is no news of its data.
    if ullage_pool::set_copy_extent_size(&backing.file, counting.block as u32)? && before == backing.baseline {
        backing.baseline = Measure::of(&backing.file)?;
    }
    Ok(())
}
