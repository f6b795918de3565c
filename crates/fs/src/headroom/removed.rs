//! What a solid file is charged after madvise(2) with MADV_REMOVE took blocks from it, of which nobody tells us.
//!
//! Stores into its mapping may fill such holes again unseen. So it is charged for all that lies below its end, whatever it has there, and for
//! what it has beside that. How many blocks it has says little: what it got at its end, or behind that, may be as many as it lost.

use super::holes::Holes;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::{Outcome, Space};
use std::fs::File;
use ullage_policy::headroom::Counting;

/// How often a file is looked at that changes meanwhile.
const TRIES: u32 = 3;

impl Space {
    /// A file looks like this `now`, as far as it is charged.
    pub(crate) fn charged(&self, open: &mut OpenFile, now: Measure) -> Measure {
        let Some(backing) = &mut open.backing else { return now };
        if !backing.filled {
            return backing.shown(now);
        }
        let counting = self.pools.counting(backing.pool, backing.baseline.block);
        let blocks = backing.with_holes(now, counting).unwrap_or_else(|error| {
            tracing::debug!(?error, "the holes of a file are not known");
            backing.shown(now).blocks.max(backing.baseline.blocks)
        });
        Measure { blocks, ..now }
    }

    /// How far a file is charged for the holes that it has.
    pub(crate) fn charged_up_to(node: &Node) -> Outcome<u64> {
        let open = node.open.lock();
        let filled = open.backing.as_deref().filter(|backing| backing.filled);
        filled.map_or(Ok(0), |backing| Ok(whole(&Measure::of(&backing.file)?)))
    }
}

impl OpenBacking {
    /// It looks like this `now`, as far as it is charged at least, for who asks nobody: to look for holes may take a disk.
    pub(crate) fn shown(&self, now: Measure) -> Measure {
        let whole = whole(&now) / 512;
        let kept = match (self.solid, self.filled) {
            (true, true) if now.size == self.baseline.size => whole.max(self.baseline.blocks),
            (true, true) => whole,
            // What it lacks is being filled.
            (true, false) => whole.min(self.baseline.blocks),
            (false, _) => 0,
        };
        Measure { blocks: now.blocks.max(kept), ..now }
    }

    /// The blocks that it has, with those that its holes may get.
    fn with_holes(&mut self, mut now: Measure, counting: Counting) -> Outcome<u64> {
        // One look shows all of it, or a look at all of it is worth while only where something is missing.
        let is_large = ullage_extents::few_extents(&self.file).is_none();
        let mut tries = 0;
        loop {
            let sure = (whole(&now) + behind(&self.file, whole(&now))) / 512;
            if is_large && self.beside.is_some_and(|beside| now.blocks == sure + beside) {
                return Ok(now.blocks);
            }
            let all = (now.blocks + holes(&self.file, now.size, counting)? / 512).max(sure);
            let then = Measure::of(&self.file)?;
            tries += 1;
            let rests = (then.blocks, then.size) == (now.blocks, now.size);
            self.beside = rests.then_some(all - sure);
            if rests || tries == TRIES {
                return Ok(all);
            }
            now = then;
        }
    }
}

/// Bytes of the blocks that its length takes.
fn whole(now: &Measure) -> u64 {
    now.size.next_multiple_of(now.block)
}

/// Bytes that were allocated behind `end`, as far as the file system tells of them.
fn behind(file: &File, end: u64) -> u64 {
    let extents = ullage_extents::extents(file, end..u64::MAX >> 1).unwrap_or_default();
    extents.iter().map(|extent| extent.range().end.saturating_sub(extent.range().start.max(end))).sum()
}

/// Bytes of the holes below the end of a file.
fn holes(file: &File, size: u64, counting: Counting) -> Outcome<u64> {
    let holes = Holes::of(file, 0..size, counting.block)?;
    // A cluster is given back as a whole.
    let unit = if counting.map { counting.unit } else { counting.block };
    let end = size.next_multiple_of(counting.block);
    let inner = |hole: &std::ops::Range<u64>| {
        let upto = if hole.end == end { end } else { hole.end / unit * unit };
        upto.saturating_sub(hole.start.next_multiple_of(unit))
    };
    Ok(holes.ranges.iter().map(inner).sum())
}
