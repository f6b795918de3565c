//! Where ext4 finds blocks later than data is written: what still lacks them gets them before it is measured, and what has
//! them can be written again for nothing.

use super::grant::Grant;
use super::holes::{bytes_in_blocks, in_blocks};
use crate::node::Node;
use crate::open_file::{Measure, OpenFile, set_times};
use crate::{Errno, Outcome, Space, hurry, sys};
use parking_lot::MutexGuard;
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::ops::Range;
use std::time::Duration;
use ullage_policy::headroom::Counting;
use ullage_pool::reopen;
use ullage_types::PoolId;

/// The kernel writes out so much of a file in one piece, at least: what its writeback takes of one at a time is four times as much.
const AT_ONCE: u64 = 1 << 20;

impl Space {
    /// Gives what was written its blocks, where the file system below would do so later.
    pub(crate) fn firm(&self, open: &mut OpenFile) {
        if let Some(range) = open.grant.changed().and_then(Grant::firm)
            && let Some(backing) = &open.backing
        {
            let (pool, file) = (backing.pool, backing.file.clone());
            let fenced = backing.fence.is_some();
            if self.gives(open, pool, &file, &range) {
                open.grant.place(range);
            } else if fenced {
                let written = sys::write_out(&file);
                // Who asks for it at fsync(2) is told.
                let _ = open.told(written.map_err(Errno::from));
            }
        }
    }

    /// A backing file as writes left it, and as it is once nothing is left to be counted later: to give it blocks changes its times.
    ///
    /// A file of a few blocks takes no others wherever they come to lie: unless this is the `last` look those are not asked
    /// for, since most small files are removed or grow before the file system below would have looked for them.
    pub(crate) fn measure(&self, open: &mut OpenFile, last: bool) -> Outcome<(Measure, Measure)> {
        let backing = open.backing.as_deref().ok_or(Errno::EBADF)?;
        let written = self.pools.measure(backing)?;
        let pays = last && open.grant.owes();
        if !open.grant.is_loose() && !pays {
            return Ok((written, written));
        }
        let counting = self.pools.counting(backing.pool, backing.baseline.block);
        if !last && counting.needs_no_map(written.blocks * 512) {
            open.grant.stays_loose(counting);
            return Ok((written, written));
        }
        if pays {
            self.pay(open)?;
        }
        self.firm(open);
        let file = &open.backing.as_deref().ok_or(Errno::EBADF)?.file;
        if open.grant.is_under_way() || open.lends() {
            // Of what is being written at this moment, the times of now are right.
            let now = Measure::of(file)?;
            return Ok((now, now));
        }
        // Those see it who look at the pool.
        set_times(file, None, Some(written.mtime))?;
        Ok((written, Measure::of(file)?))
    }

    /// Whether a file's map stays in its inode while it is written out: nobody has it who could have parts of it written, and the kernel
    /// writes so much of what lies together at once. One of its extents is split in three then, for a moment.
    fn is_written_out_at_once(&self, open: &OpenFile, size: u64) -> bool {
        let Some((backing, (_, counting))) = open.backing.as_deref().zip(self.counting_of(open)) else { return false };
        let left = open.handles == 0 && !backing.mappable && size <= AT_ONCE;
        left && ullage_extents::extents(&backing.file, 0..u64::MAX >> 1)
            .is_ok_and(|found| found.len() as u64 + 2 <= counting.in_inode)
    }

    /// Gives all that was written unseen its blocks, and nothing to holes.
    fn pay(&self, open: &mut OpenFile) -> Outcome<()> {
        let Some(backing) = &open.backing else { return Ok(()) };
        let block = backing.baseline.block;
        if backing.fence.is_some() {
            // A quota counts what is asked for beside what is there already: a fence that fits lets nothing be asked for. It is written out.
            return Ok(());
        }
        let size = Measure::of(&backing.file)?.size;
        let runs = super::holes::data_in(&backing.file, 0..size)?;
        if runs.iter().all(|run| self.allocate(backing.pool, &backing.file, run, block)) {
            if self.is_written_out_at_once(open, size) {
                open.grant.pay();
            } else {
                open.grant.pay_ahead();
            }
        } else if let Some(backing) = &mut open.backing {
            // It is written out for that (`late.rs`): xfs gives nothing where less is free than is asked for, though all of it is there.
            backing.pays_later = true;
        }
        Ok(())
    }

    /// Gives what was written unseen, to a file that nobody can write to any more, the blocks that the file system below would find for it
    /// later, when nobody measures the file: those of its map count too. A file of a few blocks has none, and is not looked at. Its times
    /// stay, also to the next measurement.
    pub(crate) fn place_late(&self, open: &mut OpenFile) {
        let Some(backing) = open.backing.as_deref_mut().filter(|backing| backing.written && !backing.discards) else {
            return;
        };
        let block = backing.baseline.block;
        let counting = self.pools.counting(backing.pool, block);
        if !counting.map || counting.needs_no_map(backing.baseline.blocks * 512) {
            return;
        }
        let extents = ullage_extents::extents(&backing.file, 0..u64::MAX >> 1).unwrap_or_default();
        let delayed: Vec<_> =
            extents.iter().filter(|extent| extent.is_delayed()).map(ullage_extents::Extent::range).collect();
        if delayed.is_empty() {
            return;
        }
        let placed = || -> Outcome<Measure> {
            let before = Measure::of(&backing.file)?;
            // Who proved that nobody can write to it has it open for reading.
            let writer = File::from(reopen(&backing.file, OFlags::WRONLY)?);
            if !delayed.iter().all(|run| self.allocate(backing.pool, &writer, run, block)) {
                sys::write_out(&writer)?;
            }
            set_times(&writer, None, Some(before.mtime))?;
            Ok(before)
        };
        match placed().and_then(|before| Ok((before, Measure::of(&backing.file)?))) {
            Ok((before, now)) if before.ctime == backing.baseline.ctime => backing.baseline.ctime = now.ctime,
            Ok(_) => {}
            Err(error) => tracing::debug!(?error, "blocks of a closed file are found later"),
        }
    }

    /// A node's file, locked, while no write counts on blocks that it has: what takes some away may begin, and ends with
    /// [`crate::headroom::grant::Grant::freed`].
    pub(crate) fn lock_to_free(node: &Node) -> MutexGuard<'_, OpenFile> {
        Self::lock_unless(node, |open| open.grant.free())
    }

    /// The same for what takes blocks away while it holds the lock.
    pub(crate) fn lock_to_cut(node: &Node) -> MutexGuard<'_, OpenFile> {
        Self::lock_unless(node, |open| {
            open.grant.changed().is_some_and(|grant| {
                grant.unplace();
                grant.counts_on_blocks()
            })
        })
    }

    /// The same for what may write to it unseen from now on, while nothing is filled with zeros that was never written. LATER where the calling
    /// thread may not wait.
    pub(crate) fn lock_to_write(node: &Node) -> Outcome<MutexGuard<'_, OpenFile>> {
        loop {
            let open = node.open.lock();
            if !open.grant.is_filling() {
                return Ok(open);
            }
            drop(open);
            hurry::may_wait()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock_unless(node: &Node, waits: impl Fn(&mut OpenFile) -> bool) -> MutexGuard<'_, OpenFile> {
        let mut tried = 0;
        loop {
            let mut open = node.open.lock();
            if !waits(&mut open) {
                return open;
            }
            drop(open);
            // A write is over soon, but for one that fills what was never written.
            if tried < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
            tried += 1;
        }
    }

    /// Gives a range that was written its blocks, as [`Space::allocate`] does, and keeps what its map may take until it is on the disk.
    pub(crate) fn gives(&self, open: &mut OpenFile, pool: PoolId, file: &File, range: &Range<u64>) -> bool {
        let Some((_, counting)) = self.counting_of(open) else { return false };
        let given = self.allocate(pool, file, range, counting.block);
        if given {
            Self::was_given(open, file, bytes_in_blocks(range, counting.block), counting);
        }
        given
    }

    /// So many bytes of a file were given their blocks, and are written now.
    pub(crate) fn was_given(open: &mut OpenFile, file: &File, bytes: u64, counting: Counting) {
        let (Some(backing), Ok(now)) = (&open.backing, Measure::of(file)) else { return };
        let grown = now.blocks.saturating_sub(backing.baseline.blocks) * 512;
        open.grant.give(bytes, now.blocks * 512, grown, counting);
    }

    /// Gives a range its blocks, where the file system can, and says whether it did. A failure shows in the write itself.
    pub(crate) fn allocate(&self, pool: PoolId, file: &File, range: &Range<u64>, block: u64) -> bool {
        let Range { start, end } = in_blocks(range, block);
        let allocated = self.pools.without_reserve(pool, file, || {
            Ok::<_, std::io::Error>(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start, end - start)?)
        });
        if let Err(error) = &allocated {
            tracing::debug!("blocks are not allocated ahead: {error}");
        }
        allocated.is_ok()
    }
}

/// Asks the file system whether a range was written and has its blocks; if so a write to it is under way.
pub(crate) fn finds_placed(open: &mut OpenFile, file: &File, range: &Range<u64>) -> bool {
    let inside = open.backing.as_deref().is_some_and(|backing| range.end <= backing.baseline.size);
    if !inside || open.grant.goes_on(range) || !open.grant.looks() {
        return false;
    }
    if let Some(run) = ullage_extents::written_run(file, range.start) {
        open.grant.place(run);
        if open.grant.rely(range) {
            return true;
        }
    }
    open.grant.looked_in_vain();
    false
}
