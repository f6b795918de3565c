//! What was allocated and never written, at a limit where the map of the file may not grow: it is filled with zeros as a whole before a
//! part of it is written, so that nothing is split.

use crate::grant::Taken;
use crate::headroom::{Range, Work};
use crate::holes::{Holes, in_blocks};
use crate::late::write_out;
use crate::open_file::Measure;
use crate::{Errno, Outcome, Space};
use std::ops;
use ullage_policy::headroom::Counting;

/// The most that is filled at once: who has more of it in one piece has a map outside the inode already.
const FILLED: u64 = 512 << 20;

impl Space {
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
        let fills = {
            let mut open = range.node.open.lock();
            let backing = open.backing.as_deref().ok_or(Errno::EBADF)?;
            if backing.solid {
                // That is kept for all of them.
                return Ok(0);
            }
            let fills = !backing.unseen && !backing.lends && !open.grant.is_freeing();
            if fills {
                // Whoever cuts the file, or frees blocks, waits for it.
                open.grant.count_on_blocks();
            }
            fills
        };
        let outcome = Self::fill_split(range, bytes, counting, fills);
        if fills {
            range.node.open.lock().grant.ended(Taken::Nothing);
        }
        outcome
    }

    fn fill_split(range: &Range<'_>, bytes: &ops::Range<u64>, counting: Counting, fills: bool) -> Outcome<u64> {
        // What was written and is not on the disk yet looks as if it never was.
        write_out(range.node, range.file)?;
        let holes = Holes::to_write(range.file, bytes.clone(), counting)?;
        let split: Vec<_> = split(&holes, bytes, counting).cloned().collect();
        // Extents may begin within a block that the write touches.
        let ops::Range { start: first, end: last } = in_blocks(bytes, counting.block);
        if !fills {
            let touched = split.iter().map(|extent| extent.end.min(last).saturating_sub(extent.start.max(first)));
            return Ok(counting.map_growth(touched.sum::<u64>().div_ceil(counting.block), holes.extents));
        }
        let whole = |part| ullage_extents::whole_extent(range.file, part, counting.block);
        let split = split.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let before = Measure::of(range.file)?;
        let mut rests = 0;
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
            crate::without_reserve(|| crate::solid::zeros(range.file, start..end))?;
        }
        write_out(range.node, range.file)?;
        range.node.open.lock().backing.as_deref_mut().ok_or(Errno::EBADF)?.keep_times(before)?;
        Ok(counting.map_growth(rests, holes.extents))
    }
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
