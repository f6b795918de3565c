//! Limited files that may be mapped in the kernel: they have no holes.
//!
//! Handles that only read or only write a limited file share the kernel's mode: what is read does not come here, and what
//! is written does. A handle that does both, opened beside them, can be mapped, and nobody sees what is stored into that
//! mapping. So from then on the file has its blocks before anybody can store into them: its holes are filled before the
//! handle is given out, and what would make one later allocates instead (DESIGN, "Exact limits on a data path we don't
//! see": holes of a file that mmap can fill are charged in advance). Who has it mapped can take blocks away by madvise(2) with
//! MADV_REMOVE, past us: the file stays charged for those.

use super::fence::{fill_holes, is_enclosed};
use super::holes::{Holes, data_in};
use super::lend::LONG_PATIENCE;
use super::{ANY, Range, Work, loads};
use crate::ending::measured;
use crate::hurry;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile, set_times};
use crate::{Errno, Outcome, Space, without_reserve};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::ops;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use ullage_policy::headroom::Counting;
use ullage_pool::{Lease, probe_lease};

/// How long the end of a handle may be on its way from the kernel, in steps of a millisecond.
const STEPS: u32 = 20;

/// How often it is looked whether anybody has a file open.
const YIELDS: u32 = 10;

impl Space {
    /// Whether a handle of a limited file, opened with these flags, is to be mapped in the kernel all the same: since it is
    /// open there, or still mapped, and all mappings of a file must show the same.
    pub(crate) fn comes_to_map(&self, open: &mut OpenFile, flags: i32) -> bool {
        let Some(backing) = &mut open.backing else { return false };
        if !self.may_fill_unseen(backing.pool, flags) || !self.uses_passthrough() {
            return false;
        }
        if backing.solid || open.handles > 0 {
            return backing.solid || backing.registered.is_some();
        }
        let is_held = self.is_held(backing);
        if !is_held {
            self.ends_unseen(open);
        }
        is_held
    }

    /// Whether somebody has a file that no handle is open on: mapped in the kernel. Its registration ends for that.
    pub(crate) fn is_held(&self, backing: &mut OpenBacking) -> bool {
        self.unregister(backing);
        // The kernel's own descriptors of ended handles are put away a moment later.
        let held = || probe_lease(&backing.file, Lease::Write) == Err(rustix::io::Errno::AGAIN);
        (0..YIELDS).all(|_| held().then(std::thread::yield_now).is_some())
    }

    /// Sees to it that a file has no holes, and gets none as long as it may be mapped. Its times stay.
    ///
    /// # Errors
    /// EDQUOT or ENOSPC when its holes do not fit into the limits. A file that nobody has open any more need not be so, and
    /// one that was opened for writing before a limit bounded it is not bound (`docs/SEMANTICS.md`).
    pub(crate) fn make_solid(&self, node: &Arc<Node>) -> Outcome<()> {
        self.await_unbound(node)?;
        match self.fill_all(node) {
            Err(Errno::EDQUOT | Errno::ENOSPC) => {}
            outcome => return outcome,
        }
        // What was written and has not found its place yet counts like what was never written.
        let file = self.stream(node.id)?.file;
        let synced = file.sync_data().map_err(Errno::from);
        if synced.is_err() {
            // Who asks for it at fsync(2) is told, too.
            let _ = node.open.lock().told(synced);
        }
        synced?;
        let size = Measure::of(&file)?.size;
        drop(file);
        let wanted = self.counting_of(&node.open.lock()).map_or(ANY, |(_, counting)| counting.worst(0, size));
        // What is kept for the map beside that is less.
        let wanted = wanted.saturating_mul(2);
        self.show_written(node, wanted, LONG_PATIENCE);
        let outcome = self.fill_all(node);
        let Err(error @ (Errno::EDQUOT | Errno::ENOSPC)) = outcome else { return outcome };
        for _ in 0..STEPS {
            Self::write_out_late(node);
            let mut open = node.open.lock();
            if open.handles == 0 {
                self.record_measured(node, &mut open, true)?;
            }
            if open.handles == 0 && self.is_settled(&mut open) {
                open.is_mapped_by_nobody();
                return Ok(());
            }
            drop(open);
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(error)
    }

    /// Whoever had a file mapped since before a limit bounded it may have gone, and somebody else only read it: then it is bound.
    fn await_unbound(&self, node: &Arc<Node>) -> Outcome<()> {
        for _ in 0..STEPS {
            let mut open = node.open.lock();
            if open.handles > 0 || !open.is_unbound() {
                break;
            }
            let (settled, measured) = self.measure_unused(node, &mut open);
            measured?;
            if settled {
                break;
            }
            // On tmpfs who reads may still fill its holes, and finds none from here on.
            if let Some(backing) =
                open.backing.as_deref_mut().filter(|it| !it.writable && measured::nobody_writes(&it.file))
            {
                backing.unseen = false;
                break;
            }
            drop(open);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Fills all holes that a file has now, while nobody writes. From here on it gets none.
    fn fill_all(&self, node: &Arc<Node>) -> Outcome<()> {
        loop {
            let mut open = node.open.lock();
            let unbound = open.is_unbound();
            let Some(backing) = open.backing.as_deref_mut().filter(|_| !unbound) else {
                return Ok(());
            };
            backing.solid = true;
            // What began to take blocks away before this may not know of it.
            if !open.grant.is_freeing() {
                break;
            }
            drop(open);
            std::thread::yield_now();
        }
        let before = Measure::of(&self.stream(node.id)?.file)?;
        let _taking = self.before_taking_for(&node.inode, before.size.saturating_sub(before.blocks * 512))?;
        // Nor may a write that began before.
        let _alone = self.alone_to_fill(node, 0..before.size)?;
        let size = Measure::of(&self.stream(node.id)?.file)?.size;
        self.fill(node, 0..size)?;
        if let Some(backing) = node.open.lock().backing.as_deref_mut().filter(|backing| backing.solid) {
            backing.filled = true;
        }
        Ok(())
    }

    /// Begins what extends a file to `end`, other than by writing there: what a solid one would have as a hole gets its blocks first, with so
    /// many bytes `more`. The file is made solid before, or after the guard is gone.
    pub(crate) fn flow_without_gap(&self, node: &Arc<Node>, end: u64, more: u64) -> Outcome<RwLockReadGuard<'_, ()>> {
        let flow = hurry::shared(&self.headroom.flow)?;
        let Some(gap) = Self::gap(node, end)? else { return Ok(flow) };
        drop(flow);
        hurry::may_wait()?;
        let _taking = self.before_taking_for(&node.inode, (gap.end - gap.start).saturating_add(more))?;
        let alone = self.alone_to_fill(node, gap.start..gap.end.saturating_add(more))?;
        self.fill_gap(node, end, more)?;
        Ok(RwLockWriteGuard::downgrade(alone))
    }

    /// Waits until nobody else writes; before that, while others go on, for the room that the holes of a range take.
    pub(crate) fn alone_to_fill(&self, node: &Arc<Node>, range: ops::Range<u64>) -> Outcome<RwLockWriteGuard<'_, ()>> {
        let file = self.stream(node.id)?.file;
        let counting = self.counting_of(&node.open.lock()).map(|(_, counting)| counting);
        let wanted = match counting {
            Some(counting) => {
                let bare = bare(&file, &range);
                let keeps = node.open.lock().grant.to_keep(bare, range.start == 0, counting).bytes;
                let holes = Holes::to_write(&file, range, counting)?;
                Holes { charged: Self::charged_up_to(node)?, ..holes }.cost(counting).saturating_add(keeps)
            }
            None => 0,
        };
        if wanted == 0 {
            return Ok(self.headroom.flow.write());
        }
        Ok(self.alone_with_room(Some(node), wanted, LONG_PATIENCE))
    }

    /// Fills what would be a hole below `end`, and so many bytes `more`, while nobody else writes.
    pub(crate) fn fill_gap(&self, node: &Arc<Node>, end: u64, more: u64) -> Outcome<()> {
        Self::gap(node, end)?.map_or(Ok(()), |gap| self.fill(node, gap.start..gap.end.saturating_add(more)))
    }

    /// What of a solid file there is not yet, up to `end`.
    pub(crate) fn gap(node: &Node, end: u64) -> Outcome<Option<ops::Range<u64>>> {
        let open = node.open.lock();
        let Some(backing) = open.backing.as_deref().filter(|backing| backing.solid) else { return Ok(None) };
        let size = Measure::of(&backing.file)?.size;
        Ok((size < end).then_some(size..end))
    }

    /// Whether a file becomes longer by getting this length, as far as it is known without opening it.
    pub(crate) fn grows(node: &Node, length: u64) -> Outcome<bool> {
        let open = node.open.lock();
        open.backing.as_deref().map_or(Ok(true), |backing| Ok(Measure::of(&backing.file)?.size < length))
    }

    /// Gives a range its blocks, and keeps what its map may grow by when they are written. While nobody else writes, and nothing is held that may
    /// be lacking.
    fn fill(&self, node: &Arc<Node>, range: ops::Range<u64>) -> Outcome<()> {
        let (pool, file, block) = {
            let mut open = node.open.lock();
            // Nobody has it open yet, maybe, and it was taken for one that nobody writes to.
            self.back(node, &mut open, true)?;
            let backing = open.backing.as_deref().ok_or(Errno::EBADF)?;
            (backing.pool, backing.file.clone(), backing.baseline.block)
        };
        let counting = self.pools.counting(pool, block);
        let bare = bare(&file, &range);
        if bare == 0 {
            return Ok(());
        }
        let (offset, length) = (range.start, range.end - range.start);
        let all = Range { node, file: &file, offset, length, work: Work::Allocates, whole: true, reaches: 0 };
        let before = Measure::of(&file)?;
        self.write_alone(&all, pool, counting, |at, length| {
            allocate(node, &file, at..at + length, counting, before).map(|()| length)
        })?;
        // Of these blocks the kernel knows nothing, and who has the file open may just have been told of its holes.
        self.show_only(node);
        let keep = {
            let mut open = node.open.lock();
            // All of that was never written.
            open.backing.as_deref_mut().ok_or(Errno::EBADF)?.is_changed();
            open.grant.to_keep(bare, range.start == 0, counting)
        };
        self.keep(node, pool, keep)?;
        // It is charged all that from here on, whatever blocks are taken away unseen.
        self.record_measure(node, &mut node.open.lock())
    }

    /// Of a solid file zeros are written instead of taking blocks away; only where there is something: it may be about to become solid, and
    /// have holes yet. It has changed in any case.
    pub(crate) fn zero(file: &File, range: ops::Range<u64>) -> Outcome<()> {
        let found = data_in(file, range.clone())?;
        for data in &found {
            zeros(file, data.start..data.end.min(range.end))?;
        }
        if found.is_empty() { set_times(file, None, Some(crate::now())) } else { Ok(()) }
    }
}

/// Allocates the holes of a range. Nobody changed the file: its times are as `before`, also to the next measurement.
fn allocate(node: &Node, file: &File, range: ops::Range<u64>, counting: Counting, before: Measure) -> Outcome<()> {
    let block = counting.block;
    let holes = Holes::of(file, range.clone(), block)?;
    // What is stored unseen may not be written elsewhere.
    let shared = Holes::to_write(file, range.clone(), counting)?.shared;
    let mode =
        if shared { FallocateFlags::KEEP_SIZE | FallocateFlags::UNSHARE_RANGE } else { FallocateFlags::KEEP_SIZE };
    let enclosed = is_enclosed(&node.open.lock());
    without_reserve(|| {
        if enclosed && !shared && !holes.guessed {
            return fill_holes(file, range.clone(), block, FallocateFlags::KEEP_SIZE);
        }
        // To be told from holes the next time.
        if loads::is_in_memory(file) {
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start)?;
            loads::load(file, &holes, range.end)?;
            // Nobody stores behind the end.
            return Ok(zero_holes(file, &holes, before.size..range.end)?);
        }
        if holes.guessed {
            return Ok(zero_holes(file, &holes, range.clone())?);
        }
        Ok::<_, Errno>(rustix::fs::fallocate(file, mode, range.start, range.end - range.start)?)
    })?;
    node.open.lock().backing.as_deref_mut().map_or(Ok(()), |backing| backing.keep_times(before))
}

/// How much of a range has no blocks, or was not written since it got them: to write there makes the map of the file grow.
fn bare(file: &File, range: &ops::Range<u64>) -> u64 {
    let length = range.end - range.start;
    length - ullage_extents::written_bytes(file, range.clone()).map_or(0, |written| written.min(length))
}

/// Writes zeros into the holes of a range.
pub(super) fn zero_holes(file: &File, holes: &Holes, range: ops::Range<u64>) -> std::io::Result<()> {
    holes.ranges.iter().try_for_each(|hole| zeros(file, hole.start.max(range.start)..hole.end.min(range.end)))
}

pub(crate) fn zeros(file: &File, range: ops::Range<u64>) -> std::io::Result<()> {
    static ZEROS: [u8; 65536] = [0; 65536];
    let mut at = range.start;
    while at < range.end {
        at += file.write_at(&ZEROS[..(range.end - at).min(ZEROS.len() as u64) as usize], at)? as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::headroom::lend::tests::lending_file;
    use crate::open_file::{Measure, set_times};
    use crate::{Caller, Filesystem};
    use std::fs::File;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use ullage_types::{NodeId, PoolId, Timestamp};

    /// All writes waited with him, up to five seconds.
    #[test]
    fn others_go_on_while_somebody_who_fills_a_file_waits_for_what_is_lent() {
        let dir = tempfile::tempdir().unwrap();
        let (space, lent) = lending_file(dir.path(), 0);
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, _) = space.create(caller, NodeId(1), b"sparse", 0o600, 0, libc::O_RDWR as u32).unwrap();
        let sparse = space.node(entry.node).unwrap();
        {
            let file = File::create_new(dir.path().join("sparse")).unwrap();
            file.set_len(1 << 20).unwrap();
            let mut open = sparse.open.lock();
            let backing = open.backing.as_deref_mut().unwrap();
            (backing.file, backing.discards) = (Arc::new(file), false);
        }
        assert!(space.lend_more(&lent, &mut lent.open.lock()).unwrap());
        let room = space.room_of(&lent.inode, PoolId(0)).unwrap().unwrap();
        space.hold_for(&sparse, PoolId(0), room - (16 << 20)).unwrap();
        std::thread::scope(|scope| {
            let filling = scope.spawn(|| space.make_solid(&sparse));
            let until = Instant::now() + Duration::from_secs(20);
            while lent.open.lock().braked.is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Past what is waited for while others do not go on.
            std::thread::sleep(Duration::from_millis(500));
            let free = space.headroom.flow.try_read().is_some();
            let waits = !filling.is_finished();
            lent.open.lock().grant.end_lending();
            filling.join().unwrap().unwrap();
            assert!(free && waits, "{free}, {waits}");
        });
        space.brake.stop();
    }

    /// Regression: filling its holes moved a file's time of change, and on ext4 that of its data below.
    #[test]
    fn filling_the_holes_of_a_file_moves_none_of_its_times() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 4096);
        let file = node.open.lock().backing.as_deref().unwrap().file.clone();
        file.set_len(1 << 20).unwrap();
        let written = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        set_times(&file, None, Some(written)).unwrap();
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        let before = node.inode.record();
        space.make_solid(&node).unwrap();
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        let now = node.inode.record();
        assert!(now.blocks >= 2048 && before.blocks < 2048, "{before:?} {now:?}");
        assert_eq!((now.mtime, now.ctime), (written, before.ctime));
        assert_eq!(Measure::of(&file).unwrap().mtime, written);
        space.brake.stop();
    }
}
