//! Files whose writes take blocks only when they are written out, though all they are written to has blocks: what was allocated
//! and never written is split then, so that the map of the file grows, and what is shared with a copy gets a place of its own (xfs).
//!
//! Below a limit such a file is written out before what was held for its writes is let go of, by who may wait for a disk; nothing is
//! lent to it. At the limit, where the map may not grow, what was never
//! written is filled with zeros as a whole before a part of it is written: then nothing is split.

use crate::headroom::{Blocks, Range, Work};
use crate::holes::Holes;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::sys::{self, Extent};
use crate::{Errno, Outcome, Space, hurry};
use std::ops;
use std::sync::Arc;
use ullage_policy::headroom::Counting;
use ullage_types::PoolId;

/// The most that is filled at once: who has more of it in one piece has a map outside the inode already.
const FILLED: u64 = 512 << 20;
/// So much is held for writes to such a file before it is written out for more.
const HELD: u64 = 64 << 20;

impl Space {
    /// Looks whether a file is of this kind before it is written to below a limit: once, until its extents change otherwise. What was lent to
    /// it is asked back then.
    ///
    /// # Errors
    /// [`Errno::LATER`] where it must be written out for that.
    pub(crate) fn find_late(&self, open: &mut OpenFile) -> Outcome<()> {
        if open.backing.as_ref().is_none_or(|backing| backing.looked) {
            return Ok(());
        }
        let Some((pool, counting)) = self.counting_of(open) else { return Ok(()) };
        // The map of one without extents has its blocks with the data.
        let mapped = self.pools.blocks(pool) == Blocks::Later && counting.in_inode == 0;
        let found = if counting.map { changed_later(open, counting)? } else { Vec::new() };
        let Some(backing) = &mut open.backing else { return Ok(()) };
        (backing.looked, backing.late) = (true, mapped || !found.is_empty());
        if backing.outgrows() && backing.lends {
            // Until it asks, any of that may be written.
            open.grant.owe(found.iter().map(Extent::range).map(|range| range.end - range.start).sum(), counting);
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
            _ if !counting.map || counting.needs_no_map(blocks * 512) => false,
            _ => sys::extents(&backing.file, 0..u64::MAX >> 1).is_ok_and(|found| found.iter().any(is_changed_later)),
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
        if !open.backing.as_ref().is_some_and(|backing| backing.late) || open.grant.spent() >= HELD {
            return Ok(false);
        }
        match self.take_more(node, open, pool, need, more()?) {
            Err(Errno::EDQUOT | Errno::ENOSPC) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// The extents of a file changed otherwise than by writes to it.
    pub(crate) fn look_anew(&self, open: &mut OpenFile) -> Outcome<()> {
        if let Some(backing) = &mut open.backing {
            backing.looked = false;
        }
        if open.lends() { self.find_late(open) } else { Ok(()) }
    }

    /// Writes out a file of this kind, so that all it takes can be measured.
    pub(crate) fn settle_late(open: &mut OpenFile) {
        if let Some(backing) = open.backing.as_ref().filter(|backing| backing.late) {
            let written = sys::write_out(&backing.file);
            // Who asks for it at fsync(2) is told.
            let _ = open.told(written.map_err(Errno::from));
        }
    }

    /// What the map of a file may grow by at most when this happens to what has blocks in a range of it, while nobody else writes.
    pub(crate) fn splits(
        range: &Range<'_>,
        bytes: &ops::Range<u64>,
        holes: &Holes,
        counting: Counting,
    ) -> Outcome<u64> {
        if !counting.map {
            return Ok(0);
        }
        match range.work {
            Work::Allocates => Ok(0),
            // The ends of the range.
            Work::Unwrites => Ok(counting.map_growth(1, holes.extents)),
            Work::Writes if split(holes, bytes, counting).next().is_none() => Ok(0),
            Work::Writes => Self::fill_bare(range, bytes, counting),
        }
    }

    /// Writes zeros to what was never written of the extents that a write would split. Where somebody may be writing there unseen
    /// it cannot be, and the map may grow.
    fn fill_bare(range: &Range<'_>, bytes: &ops::Range<u64>, counting: Counting) -> Outcome<u64> {
        // Whoever cuts the file, or frees blocks, waits for it.
        let mut open = range.node.open.lock();
        let freeing = open.grant.is_freeing();
        if open.backing.as_ref().ok_or(Errno::EBADF)?.solid {
            // That is kept for all of them.
            return Ok(0);
        }
        // What was written and is not on the disk yet looks as if it never was.
        write_out(&mut open)?;
        let Some(backing) = &open.backing else { return Err(Errno::EBADF) };
        let holes = Holes::to_write(range.file, bytes.clone(), counting)?;
        let split: Vec<_> = split(&holes, bytes, counting).cloned().collect();
        if backing.unseen || backing.lends || freeing {
            let touched = split.iter().map(|extent| extent.end.min(bytes.end) - extent.start.max(bytes.start));
            return Ok(counting.map_growth(touched.sum::<u64>().div_ceil(counting.block), holes.extents));
        }
        let before = Measure::of(range.file)?;
        for extent in split {
            let from = |at: u64| at.clamp(extent.start, extent.end) - extent.start;
            let start = extent.start + from(bytes.start) / FILLED * FILLED;
            // Behind the end of the file nothing can be filled but the gap that the write leaves there.
            let most = before.size.max(bytes.start);
            let end = (extent.start + from(bytes.end).next_multiple_of(FILLED)).min(extent.end).min(most);
            crate::without_reserve(|| crate::solid::zeros(range.file, start..end.max(start)))?;
        }
        write_out(&mut open)?;
        open.backing.as_mut().ok_or(Errno::EBADF)?.keep_times(before)?;
        Ok(0)
    }
}

/// Extents that were never written and would be in part.
fn split<'a>(
    holes: &'a Holes,
    bytes: &ops::Range<u64>,
    counting: Counting,
) -> impl Iterator<Item = &'a ops::Range<u64>> {
    let (start, end) = (bytes.start / counting.block * counting.block, bytes.end.next_multiple_of(counting.block));
    holes.bare.iter().filter(move |extent| extent.start < start || extent.end > end)
}

/// Writes a file out. A failure is told to who asks for it at fsync(2) too.
fn write_out(open: &mut OpenFile) -> Outcome<()> {
    let Some(backing) = &open.backing else { return Ok(()) };
    let written = sys::write_out(&backing.file).map_err(Errno::from);
    if written.is_err() {
        let _ = open.told(written);
    }
    written
}

fn is_changed_later(extent: &Extent) -> bool {
    extent.is_bare() || extent.is_shared()
}

fn changed_later(open: &mut OpenFile, counting: Counting) -> Outcome<Vec<Extent>> {
    let extents = |open: &OpenFile| {
        let file = open.backing.as_ref().map(|backing| &backing.file);
        let file = file.filter(|file| Measure::of(*file).is_ok_and(|now| now.blocks > 0));
        file.map_or_else(Vec::new, |file| sys::extents(file, 0..u64::MAX >> 1).unwrap_or_default())
    };
    let mut found = extents(open);
    if found.iter().any(Extent::is_bare) {
        hurry::may_wait()?;
        // What was written and had not found its way to the disk is no longer among them.
        let _ = write_out(open);
        found = extents(open);
    }
    if found.iter().any(Extent::is_shared)
        && let Some(backing) = &mut open.backing
        && let Err(error) = copy_by_blocks(backing, counting)
    {
        tracing::debug!(%error, "a file takes more for copies of shared blocks than is written");
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
