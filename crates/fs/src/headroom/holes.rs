//! Which parts of a backing file's range have no blocks yet.

use crate::Outcome;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use ullage_extents::Extent;
use ullage_policy::headroom::{Counting, extents_of};

/// The holes of a range, and what the file is made of.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// In order, whole blocks.
    pub ranges: Vec<Range<u64>>,
    /// How many extents the map of the whole file has, at most; many where one look does not show them all.
    pub extents: u64,
    /// Extents that the range touches and that were never written: to write to a part splits them. Where they reach further than the range, the
    /// block beside it is all that is known of that.
    pub bare: Vec<Range<u64>>,
    /// Some of what counts as hole is shared.
    pub shared: bool,
    /// Allocated space that was never written counts as hole, since the file system does not tell it apart.
    pub guessed: bool,
    /// Up to here the file is charged for those blocks by now: only what its map grows by is missing (`removed.rs`).
    pub charged: u64,
}

impl Holes {
    /// Looks for holes in the blocks that `range` touches.
    pub(crate) fn of(file: &File, range: Range<u64>, block: u64) -> Outcome<Self> {
        Self::but(file, range, block, |_| false)
    }

    /// The same for what is to be written, where the file system counts that: what is shared is written elsewhere (xfs), and what lies
    /// in the inode may no longer fit there (ext4).
    pub(crate) fn to_write(file: &File, range: Range<u64>, counting: Counting) -> Outcome<Self> {
        Self::but(file, range, counting.block, |extent| counting.map && (extent.is_shared() || extent.is_inline()))
    }

    fn but(file: &File, range: Range<u64>, block: u64, is_hole: impl Fn(&Extent) -> bool) -> Outcome<Self> {
        let whole = in_blocks(&range, block);
        // Who asks may keep others waiting: no more of the file's map is read than this takes.
        let beside = whole.start.saturating_sub(block)..whole.end.saturating_add(block);
        let Ok(extents) = ullage_extents::extents(file, beside) else {
            let data = data_in(file, whole.clone())?;
            let ranges = between(whole, data.into_iter(), block);
            return Ok(Self { ranges, extents: u64::MAX, guessed: true, ..Self::default() });
        };
        let allocated = extents.iter().filter(|extent| !is_hole(extent)).map(Extent::range);
        let touched = || {
            let touches = |extent: &&Extent| extent.range().start < whole.end && whole.start < extent.range().end;
            extents.iter().filter(touches)
        };
        Ok(Self {
            ranges: between(whole.clone(), allocated, block),
            extents: in_map(file, block),
            bare: touched().filter(|extent| extent.is_bare()).map(Extent::range).collect(),
            shared: touched().any(|extent| is_hole(extent) && extent.is_shared()),
            ..Self::default()
        })
    }

    /// Bytes without blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|hole| hole.end - hole.start).sum()
    }

    /// What it takes at most to fill them.
    pub(crate) fn cost(&self, counting: Counting) -> u64 {
        let span = |hole: &Range<u64>| {
            let start = hole.start.max(self.charged);
            counting.span(start, hole.end.saturating_sub(start))
        };
        let spans: u64 = self.ranges.iter().map(span).sum();
        spans + counting.map_growth(self.bytes() / counting.block, self.extents)
    }
}

/// How many extents the map of a file has at most.
fn in_map(file: &File, block: u64) -> u64 {
    match ullage_extents::few_extents(file) {
        Some(extents) if !extents.iter().any(Extent::is_of_blocks) => {
            extents.iter().map(|extent| extents_of(extent.range().end - extent.range().start, block)).sum()
        }
        _ => u64::MAX,
    }
}

/// A range with all of the blocks that it touches.
pub(crate) fn in_blocks(range: &Range<u64>, block: u64) -> Range<u64> {
    range.start / block * block..range.end.div_ceil(block).saturating_mul(block)
}

/// The length of that.
pub(crate) fn bytes_in_blocks(range: &Range<u64>, block: u64) -> u64 {
    let whole = in_blocks(range, block);
    whole.end - whole.start
}

/// What of `whole` lies in none of the pieces, which are in order.
fn between(whole: Range<u64>, pieces: impl Iterator<Item = Range<u64>>, block: u64) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut at = whole.start;
    for piece in pieces {
        // An extent may end within a block, which then is allocated.
        let piece = in_blocks(&piece, block);
        if piece.end <= at {
            continue;
        }
        if piece.start >= whole.end {
            break;
        }
        if piece.start > at {
            holes.push(at..piece.start);
        }
        at = piece.end;
    }
    if at < whole.end {
        holes.push(at..whole.end);
    }
    holes
}

/// What of a range holds data, in order.
pub(crate) fn data_in(file: &File, whole: Range<u64>) -> Outcome<Vec<Range<u64>>> {
    let mut pieces = Vec::new();
    let mut at = whole.start;
    while at < whole.end {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        pieces.push(start..end);
        at = end;
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_lie_between_the_pieces() {
        let pieces = [0..10, 4096..4097, 16384..20480];
        assert_eq!(between(0..32768, pieces.into_iter(), 4096), [8192..16384, 20480..32768]);
        assert_eq!(between(4096..8192, std::iter::once(0..10_000), 4096), []);
        assert_eq!(between(0..4096, std::iter::empty(), 4096), vec![0..4096]);
    }

    #[test]
    fn a_sparse_file_has_its_holes_and_a_full_one_none() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(&[1; 4096], 8192).unwrap();
        file.set_len(40960).unwrap();
        let holes = Holes::of(&file, 1..40000, 4096).unwrap();
        assert_eq!(holes.ranges, [0..8192, 12288..40960]);
        assert_eq!(holes.bytes(), 8192 + 28672);
        file.write_all_at(&vec![1; 40960], 0).unwrap();
        assert_eq!(Holes::of(&file, 0..40960, 4096).unwrap().bytes(), 0);
    }
}
