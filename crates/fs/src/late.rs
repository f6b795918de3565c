//! Files whose writes take blocks only when they are written out, though all they are written to has blocks: what was allocated
//! and never written is split then, so that the map of the file grows, and what is shared with a copy gets a place of its own (xfs).
//!
//! Below a limit such a file is written out before it is measured. At the limit, where the map may not grow, what was never
//! written is filled with zeros as a whole before a part of it is written: then nothing is split.

use crate::headroom::{Blocks, Range, Work};
use crate::holes::Holes;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::sys::{self, Extent};
use crate::{Errno, Outcome, Space};
use std::ops;
use ullage_policy::headroom::Counting;
use ullage_types::PoolId;

/// The most that is filled at once: who has more of it in one piece has a map outside the inode already.
const FILLED: u64 = 512 << 20;

impl Space {
    /// Looks whether a file is of this kind before it is written to below a limit: once, until its extents change otherwise.
    pub(crate) fn find_late(&self, open: &mut OpenFile) {
        if open.backing.as_ref().is_none_or(|backing| backing.looked) {
            return;
        }
        let below = self.counting_of(open);
        let Some(backing) = &mut open.backing else { return };
        backing.looked = true;
        // The map of one without extents has its blocks with the data.
        let late = |(pool, counting): (PoolId, Counting)| {
            self.pools.blocks(pool) == Blocks::Later && counting.in_inode == 0
                || counting.map && is_late(backing, counting)
        };
        backing.late = below.is_some_and(late);
    }

    /// Writes out a file of this kind, so that all it takes can be measured.
    pub(crate) fn settle_late(open: &mut OpenFile) {
        if let Some(backing) = open.backing.as_ref().filter(|backing| backing.late) {
            let written = sys::write_out(&backing.file).map_err(Errno::from);
            // Who asks for it at fsync(2) is told.
            let _ = open.told(written);
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
        let Some(backing) = &mut open.backing else { return Err(Errno::EBADF) };
        if backing.solid {
            // That is kept for all of them.
            return Ok(0);
        }
        // What was written and is not on the disk yet looks as if it never was.
        sys::write_out(range.file)?;
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
        sys::write_out(range.file)?;
        backing.keep_times(before)?;
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

fn is_late(backing: &mut OpenBacking, counting: Counting) -> bool {
    let extents = |backing: &OpenBacking| {
        let any = Measure::of(&backing.file).is_ok_and(|now| now.blocks > 0);
        if any { sys::extents(&backing.file, 0..u64::MAX >> 1).unwrap_or_default() } else { Vec::new() }
    };
    let mut found = extents(backing);
    if found.iter().any(Extent::is_bare) && sys::write_out(&backing.file).is_ok() {
        // What was written and had not found its way to the disk is no longer among them.
        found = extents(backing);
    }
    let shared = found.iter().any(Extent::is_shared);
    if shared && let Err(error) = copy_by_blocks(backing, counting) {
        tracing::debug!(%error, "a file takes more for copies of shared blocks than is written");
    }
    shared || found.iter().any(Extent::is_bare)
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
