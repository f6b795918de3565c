//! What was allocated and never written, at a limit where the map of the file may not grow: it is filled with zeros as a whole before a
//! part of it is written, so that nothing is split.

use super::holes::{Holes, in_blocks};
use super::late::write_out;
use super::{Range, Work};
use crate::open_file::{Measure, OpenFile};
use crate::{Errno, Outcome, Space};
use std::ops;
use ullage_policy::headroom::Counting;

/// The most that is filled at once: who has more of it in one piece has a map outside the inode already.
const FILLED: u64 = 512 << 20;

/// What a write does to the map of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Splits {
    /// It may grow by so much at most,
    pub growth: u64,
    /// where zeros are written first to what lies between the end of the file and the write: that makes it longer, and is left until the
    /// write is sure to have room.
    pub gap: Option<ops::Range<u64>>,
}

impl From<u64> for Splits {
    fn from(growth: u64) -> Self {
        Self { growth, gap: None }
    }
}

impl Space {
    /// What the map of a file may grow by at most when this happens to what has blocks in a range of it, while nobody else writes.
    pub(crate) fn splits(
        range: &Range<'_>,
        bytes: &ops::Range<u64>,
        holes: &Holes,
        counting: Counting,
    ) -> Outcome<Splits> {
        if !counting.map {
            return Ok(Splits::default());
        }
        match range.work {
            Work::Allocates => Ok(Splits::default()),
            // The ends of the range.
            Work::Unwrites => Ok(counting.map_growth(1, holes.extents).into()),
            Work::Writes if split(holes, bytes, counting).next().is_none() => Ok(Splits::default()),
            Work::Writes => Self::fill_bare(range, bytes, counting),
        }
    }

    /// Writes zeros to what was never written of the extents that a write would split. Where somebody may be writing there unseen
    /// it cannot be, and the map may grow.
    fn fill_bare(range: &Range<'_>, bytes: &ops::Range<u64>, counting: Counting) -> Outcome<Splits> {
        let fills = {
            let mut open = range.node.open.lock();
            if open.backing.as_deref().ok_or(Errno::EBADF)?.solid {
                // That is kept for all of them.
                return Ok(Splits::default());
            }
            begins_to_fill(&mut open)
        };
        let outcome = Self::fill_split(range, bytes, counting, fills);
        if fills {
            range.node.open.lock().grant.filled();
        }
        outcome
    }

    /// Fills the gap that a write leaves, which has room by now. Not where somebody began to free blocks meanwhile, or may write there unseen:
    /// false then.
    pub(crate) fn fill_behind(range: &Range<'_>, gap: ops::Range<u64>) -> Outcome<bool> {
        if !begins_to_fill(&mut range.node.open.lock()) {
            return Ok(false);
        }
        let zeros = || crate::without_reserve(|| super::solid::zeros(range.file, gap)).map_err(Errno::from);
        let outcome = zeros().and_then(|()| write_out(range.node, range.file));
        range.node.open.lock().grant.filled();
        outcome.map(|()| true)
    }

    fn fill_split(range: &Range<'_>, bytes: &ops::Range<u64>, counting: Counting, fills: bool) -> Outcome<Splits> {
        // What was written and is not on the disk yet looks as if it never was.
        write_out(range.node, range.file)?;
        let holes = Holes::to_write(range.file, bytes.clone(), counting)?;
        let split: Vec<_> = split(&holes, bytes, counting).cloned().collect();
        // Extents may begin within a block that the write touches.
        let ops::Range { start: first, end: last } = in_blocks(bytes, counting.block);
        if !fills {
            let touched = split.iter().map(|extent| extent.end.min(last).saturating_sub(extent.start.max(first)));
            return Ok(counting.map_growth(touched.sum::<u64>().div_ceil(counting.block), holes.extents).into());
        }
        let whole = |part| ullage_extents::whole_extent(range.file, part, counting.block);
        let split = split.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let before = Measure::of(range.file)?;
        let (mut rests, mut gap) = (0, None);
        for extent in split {
            let from = |at: u64| at.clamp(extent.start, extent.end) - extent.start;
            let start = extent.start + from(bytes.start) / FILLED * FILLED;
            // Behind the end of the file nothing can be filled but the gap that the write leaves there.
            let most = before.size.max(bytes.start);
            let end = (extent.start + from(bytes.end).next_multiple_of(FILLED)).min(extent.end).min(most).max(start);
            // What is left of it on either side is an extent more; but where the write goes on from what was written, it is that one.
            let written = if start < end { start.min(first)..end.max(last) } else { first..last };
            let left = written.start > extent.start;
            rests += u64::from(left);
            rests +=
                u64::from(written.end < extent.end && (left || !ullage_extents::goes_on(range.file, extent.start)));
            let (within, behind) = (start..end.min(before.size), start.max(before.size)..end);
            crate::without_reserve(|| super::solid::zeros(range.file, within))?;
            gap = Some(behind).filter(|behind| !behind.is_empty()).or(gap);
        }
        write_out(range.node, range.file)?;
        range.node.open.lock().backing.as_deref_mut().ok_or(Errno::EBADF)?.keep_times(before)?;
        Ok(Splits { growth: counting.map_growth(rests, holes.extents), gap })
    }
}

/// Begins to fill what was never written, unless somebody may be writing there unseen, or frees blocks. Whoever cuts the file, frees blocks, or comes
/// to write to it unseen waits for it.
pub(super) fn begins_to_fill(open: &mut OpenFile) -> bool {
    let is_seen = open.backing.as_deref().is_some_and(|backing| !backing.unseen && !backing.lends);
    let fills = is_seen && !open.grant.is_freeing();
    if fills {
        open.grant.fill();
    }
    fills
}

/// Extents that were never written and would be in part.
fn split<'a>(
    holes: &'a Holes,
    bytes: &ops::Range<u64>,
    counting: Counting,
) -> impl Iterator<Item = &'a ops::Range<u64>> {
    let whole = in_blocks(bytes, counting.block);
    holes.bare.iter().filter(move |extent| extent.start < whole.start || extent.end > whole.end)
}
