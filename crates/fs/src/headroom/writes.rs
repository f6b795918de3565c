//! A write to a file that a limit bounds: as far as there is room, and near the limit hole by hole.

use super::fence::{beside, is_enclosed};
use super::grant::Taken;
use super::holes::{Holes, bytes_in_blocks};
use super::lend::{LONG_PATIENCE, PATIENCE};
use super::splits::Splits;
use super::{Blocks, placing};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::{Errno, Outcome, Space, hurry};
use parking_lot::MutexGuard;
use std::fs::File;
use std::sync::Arc;
use ullage_policy::headroom::{Counting, ask};
use ullage_types::PoolId;

/// The most that one write asks for near a limit.
pub(super) const PIECE: u64 = 64 << 20;

/// What happens to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It is written.
    Writes,
    /// It gets blocks where it has none.
    Allocates,
    /// The same, and what was written is as if it never was.
    Unwrites,
}

/// A range of a backing file that is about to be written.
pub(crate) struct Range<'a> {
    pub node: &'a Arc<Node>,
    pub file: &'a File,
    pub offset: u64,
    pub length: u64,
    pub work: Work,
    /// All of it or nothing.
    pub whole: bool,
    /// How far the file will reach without what is written: a solid one has no hole up to there.
    pub reaches: u64,
}

impl Range<'_> {
    fn bytes(&self) -> std::ops::Range<u64> {
        self.offset..self.offset.saturating_add(self.length)
    }

    /// What it may take with this `gap` before it.
    fn wants(&self, gap: Option<std::ops::Range<u64>>, counting: Counting) -> u64 {
        let start = gap.map_or(self.offset, |gap| gap.start.min(self.offset));
        counting.worst(start, self.bytes().end - start)
    }

    /// How many bytes of it get their block with what a solid file would have as a hole before it: a write that has none of its own would be
    /// refused, and the file stay longer, or charged for what lies behind its end.
    fn first(&self) -> u64 {
        u64::from(self.work == Work::Writes && self.length > 0)
    }
}

impl Space {
    /// Writes to a range with `write(offset, length)`, which gives back how much it wrote, as far as the limits let it.
    /// EDQUOT, or ENOSPC for the limit of a directory or the reserve of a pool, when that is nothing.
    pub(crate) fn write_within(&self, range: &Range<'_>, write: impl Fn(u64, u64) -> Outcome<u64>) -> Outcome<u64> {
        let (pool, block) = {
            let open = range.node.open.lock();
            open.backing.as_deref().map(|backing| (backing.pool, backing.baseline.block)).ok_or(Errno::EBADF)?
        };
        let flow = self.flow_without_gap(range.node, range.reaches, range.first())?;
        if !self.may_bound(pool) {
            return write(range.offset, range.length);
        }
        let blocks = self.pools.blocks(pool);
        let counting = self.pools.counting(pool, block);
        match self.take(range, pool, blocks, counting) {
            Ok(taken) => {
                let enclosed = is_enclosed(&range.node.open.lock());
                let ahead = matches!(blocks, Blocks::Ahead | Blocks::Unknown) && !enclosed;
                let given = ahead && self.allocate(pool, range.file, &range.bytes(), block);
                let outcome = write(range.offset, range.length);
                let mut open = range.node.open.lock();
                if outcome != Ok(range.length) {
                    // What was to be written here counts as loose, and part of it was not.
                    self.firm(&mut open);
                    open.grant.unplace();
                }
                open.grant.ended(taken);
                if given {
                    Self::was_given(&mut open, range.file, bytes_in_blocks(&range.bytes(), block), counting);
                }
                outcome
            }
            Err(Errno::EDQUOT | Errno::ENOSPC) => {
                drop(flow);
                hurry::may_wait()?;
                let gathering = self.ask_back_own(range.node)?;
                let gap = Self::gap(range.node, range.reaches)?;
                let wanted = range.wants(gap, counting);
                let patience = if range.whole { LONG_PATIENCE } else { PATIENCE };
                let _alone = self.alone_with_room(Some(range.node), wanted, patience);
                drop(gathering);
                self.fill_gap(range.node, range.reaches, range.first())?;
                self.write_alone(range, pool, counting, write)
            }
            Err(other) => Err(other),
        }
    }

    /// As [`Space::write_within`] while nobody else writes and nothing is held: hole by hole, to the last block.
    pub(crate) fn write_alone(
        &self,
        range: &Range<'_>,
        pool: PoolId,
        counting: Counting,
        write: impl Fn(u64, u64) -> Outcome<u64>,
    ) -> Outcome<u64> {
        let (end, mut at) = (range.offset.saturating_add(range.length), range.offset);
        let refused = |at: u64, error: Errno| if at > range.offset { Ok(at - range.offset) } else { Err(error) };
        while at < end {
            let most = if range.whole { end } else { end.min(at.saturating_add(PIECE)) };
            let mut holes = Holes::to_write(range.file, at..most, counting)?;
            if holes.shared {
                // What was written before is in its own place then, and what that took is there again.
                Self::write_out_late(range.node);
                self.record_measure(range.node, &mut range.node.open.lock())?;
                holes = Holes::to_write(range.file, at..most, counting)?;
            }
            // What is shared gets blocks of its own.
            holes.charged = if holes.shared { 0 } else { Self::charged_up_to(range.node)? };
            let room = self.room_of(&range.node.inode, pool)?;
            let (upto, need) = piece(&holes, at..most, counting, room, range.whole);
            let beside = if need > 0 { beside(&range.node.open.lock()) } else { 0 };
            let Splits { growth, gap } = Self::splits(range, &(at..upto), &holes, counting)?;
            let need = need + beside + growth;
            if let Err(error) = self.take_just(range.node, pool, need) {
                return refused(at, error);
            }
            let filled = gap.map_or(Ok(true), |gap| Self::fill_behind(range, gap));
            if filled != Ok(true) {
                range.node.open.lock().grant.ended(Taken::Held(need));
                match filled {
                    Err(error) => return refused(at, error),
                    // Somebody frees blocks: it is looked at anew.
                    Ok(_) => continue,
                }
            }
            let given =
                counting.map && need > 0 && beside == 0 && self.allocate(pool, range.file, &(at..upto), counting.block);
            let outcome = write(at, upto - at);
            {
                let mut open = range.node.open.lock();
                open.grant.ended(Taken::Held(need));
                if given {
                    Self::was_given(&mut open, range.file, holes.bytes().min(upto - at), counting);
                }
            }
            Self::write_out_late(range.node);
            self.record_measure(range.node, &mut range.node.open.lock())?;
            self.let_go_of_given(range.node)?;
            match outcome {
                Ok(count) => {
                    at += count;
                    if at < upto {
                        return Ok(at - range.offset);
                    }
                }
                Err(error) => return refused(at, error),
            }
        }
        Ok(at - range.offset)
    }

    /// Sets aside what a write may take: of what the file holds, or else of what is asked for now, some more than that.
    fn take(&self, range: &Range<'_>, pool: PoolId, blocks: Blocks, counting: Counting) -> Outcome<Taken> {
        let (node, bytes) = (range.node, range.bytes());
        let mut open = self.lock_looked_at(node)?;
        let may_rely = blocks == Blocks::Later && !open.may_lose_blocks();
        if may_rely && (open.grant.rely(&bytes) || placing::finds_placed(&mut open, range.file, &bytes)) {
            return Ok(Taken::Nothing);
        }
        let beside = beside(&open);
        let mut need = open.grant.need(&bytes, counting) + beside;
        let more = |need: u64| Ok::<_, Errno>(ask(need, self.room_of(&node.inode, pool)?));
        if !open.grant.spend(need) && !self.takes_late(node, &mut open, pool, need, || more(need))? {
            open = self.let_go_of_rest(node, open)?;
            need = open.grant.need(&bytes, counting) + beside;
            self.take_more(node, &mut open, pool, need, more(need)?)?;
        }
        if blocks == Blocks::Later
            && let Some(before) = open.grant.loosen(bytes, need)
            && self.gives(&mut open, pool, range.file, &before)
        {
            open.grant.place(before);
        }
        Ok(Taken::Held(need))
    }

    /// Sets aside `need` and nothing more.
    pub(crate) fn take_just(&self, node: &Arc<Node>, pool: PoolId, need: u64) -> Outcome<()> {
        let mut open = self.lock_looked_at(node)?;
        if open.grant.spend(need) || self.takes_late(node, &mut open, pool, need, || Ok(need))? {
            return Ok(());
        }
        open = self.let_go_of_rest(node, open)?;
        self.take_more(node, &mut open, pool, need, need)
    }

    /// What the writes so far did not take is let go of before more is held.
    fn let_go_of_rest<'a>(
        &self,
        node: &'a Arc<Node>,
        mut open: MutexGuard<'a, OpenFile>,
    ) -> Outcome<MutexGuard<'a, OpenFile>> {
        if open.backing.as_deref().is_some_and(|backing| backing.late) {
            hurry::may_wait()?;
            drop(open);
            Self::write_out_late(node);
            open = node.open.lock();
        }
        self.record_measure(node, &mut open)?;
        Ok(open)
    }
}

/// How far a write goes and what it needs for that: to the end of the range where all of it fits into `room`.
fn piece(holes: &Holes, range: std::ops::Range<u64>, counting: Counting, room: Option<u64>, whole: bool) -> (u64, u64) {
    let all = holes.cost(counting);
    if whole || all == 0 || room.is_none_or(|room| all <= room) {
        return (range.end, all);
    }
    let first = &holes.ranges[0];
    if first.start > range.start {
        return (first.start.min(range.end), 0);
    }
    if first.start < holes.charged {
        let end = first.end.min(holes.charged);
        return (end.min(range.end), counting.map_growth((end - first.start) / counting.block, holes.extents));
    }
    let blocks = (first.end - first.start) / counting.block;
    // Where nothing fits a block is asked for all the same, so that the limit says which one it is.
    let fits = counting.fitting(blocks, holes.extents, room.unwrap_or(u64::MAX)).max(1) * counting.block;
    let cost = counting.span(first.start, fits) + counting.map_growth(fits / counting.block, holes.extents);
    ((first.start + fits).min(range.end), cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Counting = Counting { block: 4096, unit: 4096, map: false, in_inode: 4 };

    fn holes(ranges: &[(u64, u64)]) -> Holes {
        Holes { ranges: ranges.iter().map(|(start, end)| *start..*end).collect(), ..Holes::default() }
    }

    #[test]
    fn a_write_goes_as_far_as_there_is_room() {
        let two = holes(&[(4096, 8192), (12288, 20480)]);
        assert_eq!(piece(&two, 0..20480, PLAIN, None, false), (20480, 12288));
        assert_eq!(piece(&two, 0..20480, PLAIN, Some(12288), false), (20480, 12288));
        // First what needs nothing, then what fits.
        assert_eq!(piece(&two, 0..20480, PLAIN, Some(4096), false), (4096, 0));
        assert_eq!(piece(&two, 4096..20480, PLAIN, Some(4096), false), (8192, 4096));
        let last = holes(&[(12288, 20480)]);
        assert_eq!(piece(&last, 12288..20480, PLAIN, Some(4096), false), (16384, 4096));
        assert_eq!(piece(&last, 12288..20480, PLAIN, Some(0), false), (16384, 4096));
        assert_eq!(piece(&last, 12288..20480, PLAIN, Some(4096), true), (20480, 8192));
        assert_eq!(piece(&holes(&[]), 5..9, PLAIN, Some(0), false), (9, 0));
    }

    /// It was looked at whenever anybody was refused, until the end: nothing was ever given back that would have taken it out.
    #[test]
    fn who_keeps_nothing_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = crate::headroom::lend::tests::lending(dir.path());
        let keep = node.open.lock().grant.to_keep(1 << 20, true, PLAIN);
        space.keep(&node, PoolId(0), keep).unwrap();
        assert!(space.holders().is_empty());
        let mapped = Counting { map: true, ..PLAIN };
        let keep = node.open.lock().grant.to_keep(1 << 20, true, mapped);
        space.keep(&node, PoolId(0), keep).unwrap();
        assert_eq!(space.holders().len(), 1);
    }

    #[test]
    fn holes_that_are_charged_by_now_take_what_the_map_grows_by() {
        let two = Holes { charged: 16384, ..holes(&[(4096, 8192), (12288, 20480)]) };
        assert_eq!(piece(&two, 0..20480, PLAIN, Some(4096), false), (20480, 4096));
        assert_eq!(piece(&two, 4096..20480, PLAIN, Some(0), false), (8192, 0));
        let last = Holes { charged: 16384, ..holes(&[(12288, 20480)]) };
        assert_eq!(piece(&last, 12288..20480, PLAIN, Some(0), false), (16384, 0));
        let mapped = Counting { map: true, ..PLAIN };
        let many = Holes { extents: 100, charged: 16384, ..holes(&[(4096, 8192)]) };
        assert_eq!(piece(&many, 4096..8192, mapped, Some(0), false), (8192, mapped.map_growth(1, 100)));
    }

    #[test]
    fn each_hole_takes_the_clusters_that_it_touches() {
        let clusters = Counting { unit: 65536, ..PLAIN };
        let two = holes(&[(61440, 69632), (131_072, 135_168)]);
        assert_eq!(piece(&two, 61440..135_168, clusters, None, false), (135_168, 3 * 65536));
        assert_eq!(piece(&two, 61440..135_168, clusters, Some(65536), false), (65536, 65536));
    }

    #[test]
    fn a_piece_inside_a_block_goes_on() {
        let one = holes(&[(0, 4096)]);
        assert_eq!(piece(&one, 100..200, PLAIN, Some(4096), false), (200, 4096));
    }
}
