//! Headroom: what a write may take is held in the ledger before it is made, so that no limit is ever passed; what it did
//! not take is given back when the file is measured (DESIGN, "Exact limits on a data path we don't see").
//!
//! Files that a limit bounds are opened so that every write comes here. Each holds some room in advance, so that a write
//! costs no more than two additions while there is plenty. Who finds no room waits until no write is under way, takes
//! back all that is held in advance, and counts the holes it would fill.

use crate::above::Above;
use crate::aside::Aside;
use crate::fence::{beside, is_enclosed};
use crate::grant::{Keep, Taken};
use crate::holes::{Holes, bytes_in_blocks};
use crate::hurry;
use crate::late::late_mark;
use crate::lend::{LONG_PATIENCE, PATIENCE};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::splits::Splits;
use crate::{Errno, Outcome, Space};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use ullage_catalog::Inode;
use ullage_policy::headroom::{CHUNK, Counting, IN_INODE, ask};
use ullage_types::{FileId, Kind, PoolId};

/// The most that one write asks for near a limit.
const PIECE: u64 = 64 << 20;

/// What an operation on names may cost at most, and of one that brings whole files or trees under a limit nobody knows it.
pub(crate) const SMALL: u64 = 1 << 20;
pub(crate) const ANY: u64 = u64::MAX;

/// State of the headroom of a space.
#[derive(Default)]
pub(crate) struct Headroom {
    /// Held shared while a file is opened in the mode that suits its limits, exclusively while limits, or the place of open
    /// files under them, change.
    pub modes: RwLock<()>,
    /// Held shared by every write, exclusively by who found no room.
    pub flow: RwLock<()>,
    /// Files that hold something.
    holders: Mutex<FxHashMap<FileId, Arc<Node>>>,
    /// What is taken of pools that have a reserve.
    pub above: Above,
    /// Who writes files out for somebody who found no room.
    pub aside: Arc<Aside>,
}

/// What of a file is waited for, the shorter one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    /// It is given blocks.
    Blocks,
    /// It is written out.
    Data,
}

/// When a pool's file system finds blocks for what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// With the write; it counts no others.
    AtOnce,
    /// Later, and counts those of the map of extents too: they are asked for before the file is measured, so that what is
    /// measured is all (ext4).
    Later,
    /// Later, and more of them than were asked for, unless they are asked for before the write, or the file takes one at a time
    /// (`one_block.rs`; xfs).
    Ahead,
    /// Nobody knows: they are asked for before the write.
    Unknown,
}

impl Blocks {
    /// Whether the file system has one journal for all files, as those that give blocks later do.
    pub(crate) fn has_journal(self) -> bool {
        matches!(self, Self::Later | Self::Ahead)
    }

    pub(crate) fn of(fs_type: Option<&str>) -> Self {
        match fs_type {
            Some("tmpfs" | "btrfs") => Self::AtOnce,
            Some("ext4") => Self::Later,
            Some("xfs") => Self::Ahead,
            _ => Self::Unknown,
        }
    }

    /// What it counts for a file with blocks and units of this size, where files have extents or may not.
    pub(crate) fn counting(self, block: u64, unit: u64, extents: bool) -> Counting {
        let in_inode = if extents { IN_INODE } else { 0 };
        Counting { block, unit: unit.max(block), map: self != Self::AtOnce, in_inode }
    }
}

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

    /// How many bytes of it get their block with what a solid file would have as a hole before it: a write that has none of its own would be
    /// refused, and the file stay longer, or charged for what lies behind its end.
    fn first(&self) -> u64 {
        u64::from(self.work == Work::Writes && self.length > 0)
    }
}

/// How long a disk is waited for while others stand still.
const MOMENT: Duration = Duration::from_secs(1);

impl Space {
    /// Whether some limit may bound files of a pool.
    pub(crate) fn may_bound(&self, pool: PoolId) -> bool {
        self.catalog.has_limits() || self.pools.reserve(pool) > 0
    }

    /// Whether some limit bounds a file: every write to it must come to the server.
    pub(crate) fn is_bounded(&self, inode: &Inode) -> Outcome<bool> {
        let (uid, parent, pool) = {
            let state = inode.lock();
            let pool = state.record.backing.as_ref().map(|place| place.pool);
            (state.record.uid, state.record.parent, pool)
        };
        if pool.is_some_and(|pool| self.pools.reserve(pool) > 0) {
            return Ok(true);
        }
        Ok(self.catalog.has_limits() && self.catalog.is_bounded(uid, &self.catalog.get(parent)?))
    }

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
                self.ask_back_own(range.node)?;
                let wanted = counting.worst(range.offset, range.length);
                let patience = if range.whole { LONG_PATIENCE } else { PATIENCE };
                let _alone = self.alone_with_room(Some(range.node), wanted, patience);
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
        if blocks == Blocks::Later
            && (open.grant.rely(&bytes) || crate::placing::finds_placed(&mut open, range.file, &bytes))
        {
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

    /// Holds `more` for a file that was just measured, or at least `need`, which is set aside.
    pub(crate) fn take_more(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        pool: PoolId,
        need: u64,
        more: u64,
    ) -> Outcome<()> {
        let held = match self.hold(&node.inode, pool, more) {
            Err(Errno::EDQUOT | Errno::ENOSPC) if more > need => self.hold(&node.inode, pool, need).map(|()| need),
            outcome => outcome.map(|()| more),
        }?;
        open.grant.add(held);
        if held > 0 {
            self.headroom.holders.lock().insert(node.inode.id, node.clone());
        }
        self.move_fence(open);
        assert!(open.grant.spend(need), "what was just held for a write is there");
        Ok(())
    }

    /// Holds this for a file until nobody can have it mapped any more.
    pub(crate) fn keep(&self, node: &Arc<Node>, pool: PoolId, keep: Keep) -> Outcome<()> {
        self.hold(&node.inode, pool, keep.bytes)?;
        node.open.lock().grant.keep(keep);
        if keep.bytes > 0 {
            self.headroom.holders.lock().insert(node.inode.id, node.clone());
        }
        Ok(())
    }

    /// Holds so much for a file, whose grant the caller has.
    pub(crate) fn hold_for(&self, node: &Arc<Node>, pool: PoolId, bytes: u64) -> Outcome<()> {
        self.hold(&node.inode, pool, bytes)?;
        self.headroom.holders.lock().insert(node.inode.id, node.clone());
        Ok(())
    }

    fn hold(&self, inode: &Arc<Inode>, pool: PoolId, bytes: u64) -> Outcome<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.hold_in_pool(pool, bytes)?;
        self.catalog.hold(inode, bytes).map_err(|error| {
            self.let_go_in_pool(pool, bytes, 0);
            error.into()
        })
    }

    /// A file was measured to have grown by so much, and what it held beyond writes under way was let go of in the ledger, but
    /// for what writes that are over may take later where it `keeps` that.
    pub(crate) fn measured(&self, file: FileId, open: &mut OpenFile, grown: u64, released: u64, keeps: bool) {
        if let Some(backing) = &open.backing {
            // What is written again takes other blocks, and those of before are free later.
            let written = grown.max(open.grant.shows(keeps));
            self.let_go_in_pool(backing.pool, released, written);
        }
        if let Some(grant) = open.grant.changed() {
            grant.measured(released, keeps);
        }
        if open.grant.held == 0 && released > 0 {
            self.headroom.holders.lock().remove(&file);
        }
    }

    /// Bytes that a file may still grow by; none without a limit.
    pub(crate) fn room_of(&self, inode: &Arc<Inode>, pool: PoolId) -> Outcome<Option<u64>> {
        let limits = self.room_in_limits(inode)?;
        let above = self.room_in_pool(pool)?;
        Ok(limits.into_iter().chain(above).min())
    }

    /// The same, whatever its pool has.
    pub(crate) fn room_in_limits(&self, inode: &Inode) -> Outcome<Option<u64>> {
        if !self.catalog.has_limits() {
            return Ok(None);
        }
        let (uid, directory) = self.bounded_by(inode)?;
        Ok(self.catalog.room(Some(uid), &directory).0)
    }

    /// The user and the directory whose limits bound a file.
    pub(crate) fn bounded_by(&self, inode: &Inode) -> Outcome<(u32, Arc<Inode>)> {
        let (uid, parent) = {
            let state = inode.lock();
            (state.record.uid, state.record.parent)
        };
        Ok((uid, self.catalog.get(parent)?))
    }

    /// Waits until no write is under way and gives back all that is only held, for somebody who `wanted` so many bytes, by a call to his `own`
    /// file. Before that, while others go on, what was just removed is waited for, and what is lent: who is at a file that it is lent to may
    /// wait for the same.
    pub(crate) fn alone_with_room(
        &self,
        own: Option<&Arc<Node>>,
        wanted: u64,
        patience: Duration,
    ) -> RwLockWriteGuard<'_, ()> {
        self.await_leaving();
        if own.is_some() {
            self.show_written(wanted);
        }
        self.lender.gathering.fetch_add(1, Relaxed);
        let holders = self.holders();
        self.ask_back_for(&holders, own, wanted, patience);
        // Disks are waited for while others go on: what comes to be written until he is alone is little.
        let their = holders.into_iter().filter(|node| !is_own(own, node));
        let waiting = their.filter_map(|node| Some((self.takes_disk(&node, wanted)?, node))).collect();
        self.give_back_aside(waiting, wanted, if own.is_some() { LONG_PATIENCE } else { MOMENT });
        let alone = self.headroom.flow.write();
        self.lender.gathering.fetch_sub(1, Relaxed);
        self.return_held(own, wanted, PATIENCE);
        if own.is_some() {
            // What was given back just now counts as written, and may have been shown for long.
            self.show_written(wanted);
        }
        alone
    }

    pub(crate) fn holders(&self) -> Vec<Arc<Node>> {
        self.headroom.holders.lock().values().cloned().collect()
    }

    /// Measures every file that holds something, and gives back what no write needs; for somebody who `wanted` so many bytes, by a call to
    /// his `own` file. What is lent to others whose limits have that much left is not what he lacks; it is waited for no longer than `patience`.
    pub(crate) fn return_held(&self, own: Option<&Arc<Node>>, wanted: u64, patience: Duration) {
        let holders = self.holders();
        self.ask_back_for(&holders, own, wanted, patience);
        let mut waiting = Vec::new();
        for node in holders {
            if is_own(own, &node) {
                // He may be about to open it.
                Self::write_out_late(&node);
                self.give_back_held(&node, wanted, |open, pays| self.record_measured(&node, open, pays));
            } else if let Some(takes) = self.takes_disk(&node, wanted) {
                waiting.push((takes, node));
            } else {
                self.give_back_held(&node, wanted, |open, pays| self.measure_closely(&node, open, pays).1);
            }
        }
        self.give_back_aside(waiting, wanted, MOMENT);
    }

    /// Gives back what is held for files that have to be written out for that, or given blocks. A disk that hangs is not waited for without end.
    fn give_back_aside(&self, mut files: Vec<(Takes, Arc<Node>)>, wanted: u64, patience: Duration) {
        let Some(space) = self.own().upgrade().filter(|_| !files.is_empty()) else { return };
        files.sort_by_key(|(takes, _)| *takes);
        let nodes = files.into_iter().map(|(_, node)| node).collect();
        let left =
            self.headroom.aside.run(&space, nodes, patience, move |space, node| space.give_back_their(node, wanted));
        if !left.is_empty() {
            tracing::debug!(files = left.len(), "a disk takes its time, and what is held for files on it stays so");
        }
    }

    fn give_back_their(&self, node: &Arc<Node>, wanted: u64) {
        if self.given_is_lacked(node, wanted) != Some(false) {
            self.write_out_bare(node);
        }
        self.give_back_held(node, wanted, |open, pays| self.measure_closely(node, open, pays).1);
    }

    fn give_back_held(&self, node: &Arc<Node>, wanted: u64, measure: impl Fn(&mut OpenFile, bool) -> Outcome<()>) {
        let measured = {
            let mut open = node.open.lock();
            let pays = open.grant.owes();
            measure(&mut open, pays)
        };
        // To measure it may have given it some.
        let given =
            || if self.given_is_lacked(node, wanted) == Some(true) { self.let_go_of_given(node) } else { Ok(()) };
        if let Err(error) = measured.and_then(|()| given()) {
            node.not_measured(error);
        }
    }

    /// What to give back what is held for a file may take of its disk.
    fn takes_disk(&self, node: &Arc<Node>, wanted: u64) -> Option<Takes> {
        // Who has the file now may write it out.
        let Some(open) = node.open.try_lock() else { return Some(Takes::Data) };
        let (owes, late) = (open.grant.owes(), late_mark(&open).is_some());
        drop(open);
        if late || self.given_is_lacked(node, wanted).unwrap_or_else(|| self.bare(node).is_some()) {
            return Some(Takes::Data);
        }
        owes.then_some(Takes::Blocks)
    }

    /// Whether what is held for what a file was given, if anything is, may be what somebody lacks who wanted so many bytes. It comes free when
    /// the file was written out, which others are not to wait for without need.
    fn given_is_lacked(&self, node: &Arc<Node>, wanted: u64) -> Option<bool> {
        let pool = {
            let open = node.open.lock();
            open.backing.as_deref().filter(|_| open.grant.given_waits().is_some())?.pool
        };
        let enough = if wanted == ANY { PIECE } else { wanted.saturating_add(CHUNK) };
        Some(matches!(self.room_of(&node.inode, pool), Ok(Some(room)) if room < enough))
    }

    /// Runs an operation that asks the limits for `wanted` bytes at most; when they refuse it, once more after all that is only held, or was
    /// just removed, was given back.
    pub(crate) fn asked<T, E>(&self, wanted: u64, work: impl Fn() -> Result<T, E>) -> Outcome<T>
    where
        Errno: From<E>,
    {
        let work = || work().map_err(Errno::from);
        match work() {
            Err(Errno::EDQUOT | Errno::ENOSPC)
                if self.has_just_removed() || !self.headroom.holders.lock().is_empty() =>
            {
                hurry::may_wait()?;
                let _alone = self.alone_with_room(None, wanted, PATIENCE);
                work()
            }
            outcome => outcome,
        }
    }

    /// Whether something may write to a file without being seen here: it was opened before a limit bounded it.
    pub(crate) fn is_unseen(&self, node: &Arc<Node>) -> bool {
        self.may_be_written_unseen(&mut node.open.lock())
    }

    /// The same for who has locked it.
    pub(crate) fn may_be_written_unseen(&self, open: &mut OpenFile) -> bool {
        let (handles, writers) = (open.handles, open.writers);
        if !open.backing.as_deref().is_some_and(|backing| backing.unseen) {
            return false;
        }
        // Without handles, a mapping may be left.
        writers > 0 || handles > 0 || !self.is_settled(open)
    }

    pub(crate) fn lies_below(&self, node: &Arc<Node>, directory: &Arc<Inode>) -> bool {
        if node.inode.kind != Kind::Regular {
            return false;
        }
        let parent = node.inode.lock().record.parent;
        self.catalog.get(parent).is_ok_and(|parent| self.catalog.is_below(&parent, directory))
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
    let blocks = (first.end - first.start) / counting.block;
    // Where nothing fits a block is asked for all the same, so that the limit says which one it is.
    let fits = counting.fitting(blocks, holes.extents, room.unwrap_or(u64::MAX)).max(1) * counting.block;
    let cost = counting.span(first.start, fits) + counting.map_growth(fits / counting.block, holes.extents);
    ((first.start + fits).min(range.end), cost)
}

fn is_own(own: Option<&Arc<Node>>, node: &Arc<Node>) -> bool {
    own.is_some_and(|own| Arc::ptr_eq(own, node))
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
        let (space, node) = crate::lend::tests::lending(dir.path());
        let keep = node.open.lock().grant.to_keep(1 << 20, true, PLAIN);
        space.keep(&node, PoolId(0), keep).unwrap();
        assert!(space.holders().is_empty());
        let mapped = Counting { map: true, ..PLAIN };
        let keep = node.open.lock().grant.to_keep(1 << 20, true, mapped);
        space.keep(&node, PoolId(0), keep).unwrap();
        assert_eq!(space.holders().len(), 1);
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
