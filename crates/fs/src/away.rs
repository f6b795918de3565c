//! A file whose pool is full goes on in another one (COFS: several file systems below one; ENOSPC of one is not that of all).
//!
//! Only the server can do that, and only where nobody else has the backing file open: what the kernel writes or reads by itself would go on
//! with the old one. So while a pool has little left, and another has more, files in it are opened for writing through the server
//! ([`crate::pools::Pools::may_run_full`]).
//!
//! Invariant: at every moment the catalog names a backing file that has all that was written until then. The copy is on disk before a
//! transaction names it, that is on disk before anything is written to the copy, and the old one goes back to its pool after it. A crash in
//! between leaves one of the two without a file that names it, in a leaf that is marked: recovery gives it back.

use crate::holes::data_in;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile, set_times};
use crate::pools::PoolMember;
use crate::{Errno, Outcome, Space, hurry, settle, without_reserve};
use parking_lot::MutexGuard;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_catalog::Backing;
use ullage_kv::Seq;
use ullage_pool::{Annotation, Fresh, Hint, Lease, probe_lease};
use ullage_types::{PoolId, Timestamp};

/// A pool that has less than this beside what was asked for is the one that refused it.
const NEARLY: u64 = 64 << 20;
/// How long calls of others to the same file are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Longer than a tick of any clock that files get their times from: what changes a file later shows in these.
const TICK: Duration = Duration::from_millis(20);
/// A copy of what was changed meanwhile is made anew, so often.
const COPIES: u32 = 5;
const PIECE: usize = 1 << 20;

/// What a file that may be copied looks like.
struct AtRest {
    file: Arc<File>,
    measure: Measure,
}

/// What a file was bound to, since which commit it is not, and how many bytes that has.
struct Gone {
    seq: Seq,
    backing: Backing,
    bytes: u64,
}

impl Space {
    /// Whether a file that was refused so many bytes may ask again: its pool had not so many, and now it lies in another one.
    pub(crate) fn goes_elsewhere(&self, node: &Arc<Node>, bytes: u64) -> Outcome<bool> {
        if self.pools.members().len() == 1 {
            return Ok(false);
        }
        let lies_in = || node.open.lock().backing.as_ref().map(|backing| backing.pool);
        let Some(from) = lies_in() else { return Ok(false) };
        let had_room = self.pools.above_reserve(from) >= bytes.saturating_add(NEARLY);
        if had_room || self.pools.roomiest_beside(from, bytes).is_none() {
            return Ok(false);
        }
        hurry::may_wait()?;
        let _turn = self.moving_away.lock();
        if lies_in() != Some(from) {
            // Who waited here before was at the same file.
            return Ok(true);
        }
        let moved = self.move_away(node, from, bytes);
        if let Err(error) = &moved {
            tracing::warn!("inode {} stays in a pool that is full: {error:?}", node.inode.id);
        }
        Ok(moved.unwrap_or(false))
    }

    fn move_away(&self, node: &Arc<Node>, from: PoolId, bytes: u64) -> Outcome<bool> {
        for copy in 1..=COPIES {
            let Some((open, rest)) = self.await_rest(node, from)? else { return Ok(false) };
            // Where others go on changing it, they wait for the last copy.
            let mut open = (copy == COPIES).then_some(open);
            let takes = (rest.measure.blocks * 512).saturating_add(bytes);
            let Some(to) = self.pools.roomiest_beside(from, takes) else { return Ok(false) };
            tracing::info!("inode {} goes to the pool '{}': its own is full", node.inode.id, to.name);
            // Nobody else is promised that room.
            self.hold_in_pool(to.id, takes)?;
            let bound = self.copy_to(to, node, &rest).and_then(|fresh| {
                let mut open = open.take().unwrap_or_else(|| node.open.lock());
                let bound = self.bind_anew(node, &mut open, from, rest, to, &fresh);
                drop(open);
                if !matches!(bound, Ok(Some(_))) {
                    give_back(to, fresh);
                }
                bound
            });
            self.let_go_in_pool(to.id, takes, takes);
            if let Some(Gone { seq, backing, bytes }) = bound? {
                self.reaper.push(node.inode.id, seq, backing, bytes);
                self.catalog.each_name(&node.inode, &mut |directory, name| self.trees.name(directory, name))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until nobody else is at a file, and has it locked then. None where somebody may be for long.
    fn await_rest<'a>(&self, node: &'a Arc<Node>, from: PoolId) -> Outcome<Option<(MutexGuard<'a, OpenFile>, AtRest)>> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let mut open = node.open.lock();
            if !can_leave(&open, from) {
                return Ok(None);
            }
            if let Some(rest) = self.at_rest(node, &mut open, 1)?
                && is_past(rest.measure)
            {
                return Ok(Some((open, rest)));
            }
            drop(open);
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// A file that nobody but so many of us have open, and no call is at.
    fn at_rest(&self, node: &Arc<Node>, open: &mut OpenFile, ours: usize) -> Outcome<Option<AtRest>> {
        let grant = &open.grant;
        let busy = grant.is_under_way() || grant.counts_on_blocks();
        let Some(backing) = open.backing.as_ref().filter(|backing| !busy && Arc::strong_count(&backing.file) == ours)
        else {
            return Ok(None);
        };
        // Also who has it mapped since earlier handles, or the kernel for a moment after them.
        if probe_lease(&backing.file, Lease::Write).is_err() {
            return Ok(None);
        }
        self.record_measure(node, open)?;
        let Some(backing) = open.backing.as_ref().filter(|_| open.grant.held == 0 && !open.grant.is_loose()) else {
            return Ok(None);
        };
        Ok(Some(AtRest { file: backing.file.clone(), measure: Measure::of(&backing.file)? }))
    }

    fn copy_to(&self, to: &PoolMember, node: &Node, rest: &AtRest) -> Outcome<Fresh> {
        let record = node.inode.record();
        let hint = Hint { parent: record.parent, pid: 0 };
        let fresh = self.with_files(|| to.pool.create_for(node.inode.id, hint), settle::is_full)?;
        let owner = Annotation { class: record.class, uid: record.uid, gid: record.gid };
        if let Err(error) = to.pool.annotate(&fresh.binding, owner) {
            tracing::debug!("the owner of inode {} is not recorded on its backing file: {error}", node.inode.id);
        }
        match without_reserve(|| copy(&rest.file, &fresh.file, rest.measure)) {
            Ok(()) => Ok(fresh),
            Err(error) => {
                give_back(to, fresh);
                Err(error)
            }
        }
    }

    /// Binds a file to its copy, unless it was changed meanwhile. Gives back what it was bound to.
    fn bind_anew(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        from: PoolId,
        before: AtRest,
        to: &PoolMember,
        fresh: &Fresh,
    ) -> Outcome<Option<Gone>> {
        let data = |measure: Measure| (measure.size, measure.mtime, measure.ctime);
        if !can_leave(open, from) || data(Measure::of(&before.file)?) != data(before.measure) {
            return Ok(None);
        }
        // The second of us is the copy's own.
        let Some(rest) = self.at_rest(node, open, 2)? else { return Ok(None) };
        set_times(&fresh.file, Some(rest.measure.atime), Some(rest.measure.mtime))?;
        let new = Measure::of(&fresh.file)?;
        // Its map may be larger there.
        let grows = if self.catalog.has_limits() { 512 * new.blocks.saturating_sub(rest.measure.blocks) } else { 0 };
        self.catalog.hold(&node.inode, grows)?;
        let backing = open.backing.as_mut().ok_or(Errno::EBADF)?;
        let gone =
            Backing { pool: from, generation: backing.binding.generation, locator: backing.binding.locator.0.clone() };
        let place =
            Backing { pool: to.id, generation: fresh.binding.generation, locator: fresh.binding.locator.0.clone() };
        self.catalog.record_measured(&node.inode, grows, |record| {
            record.backing = Some(place);
            record.blocks = new.blocks;
            Ok(())
        })?;
        let seq = self.catalog.kv().newest();
        backing.pool = to.id;
        backing.binding = fresh.binding.clone();
        backing.file = fresh.file.clone();
        backing.baseline = new;
        backing.recorded = seq;
        backing.synced = None;
        backing.unseen = false;
        backing.late = false;
        backing.pays_later = false;
        backing.is_changed();
        // Before anything is written to it. What fails here has made the space read-only.
        self.catalog.sync()?;
        Ok(Some(Gone { seq, backing: gone, bytes: rest.measure.blocks * 512 }))
    }
}

/// Whether the backing file of an open file is in this pool, and the server alone writes and reads it.
fn can_leave(open: &OpenFile, from: PoolId) -> bool {
    let alone = |backing: &OpenBacking| backing.registered.is_none() && backing.fence.is_none() && !backing.lends;
    let plain = |backing: &OpenBacking| backing.writable && backing.claimed && !backing.times_behind;
    let backing = open.backing.as_ref().filter(|backing| backing.pool == from && !backing.discards);
    backing.is_some_and(|backing| alone(backing) && plain(backing)) && !open.marked
}

/// Whether it shows when something changes the file from now on.
fn is_past(measure: Measure) -> bool {
    let now = crate::now();
    let nanoseconds = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    nanoseconds(now) - nanoseconds(measure.ctime) > TICK.as_nanos() as i128
}

/// Makes `to` a file with the data of `from`, on disk.
fn copy(from: &File, to: &File, measure: Measure) -> Outcome<()> {
    let size = measure.size;
    rustix::fs::ftruncate(to, size)?;
    if size > 0 && measure.blocks * 512 >= size {
        // Without holes: what was allocated and not written has its room here too. Where that cannot be asked for, data takes it.
        match rustix::fs::fallocate(to, FallocateFlags::KEEP_SIZE, 0, size) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut piece = vec![0; PIECE];
    for run in data_in(from, 0..size)? {
        let mut at = run.start;
        while at < run.end.min(size) {
            let length = usize::try_from(run.end.min(size) - at).unwrap_or(PIECE).min(PIECE);
            from.read_exact_at(&mut piece[..length], at)?;
            to.write_all_at(&piece[..length], at)?;
            at += length as u64;
        }
    }
    Ok(to.sync_all()?)
}

/// Gives back a copy that no transaction named.
fn give_back(to: &PoolMember, fresh: Fresh) {
    let Fresh { binding, file, .. } = fresh;
    drop(file);
    to.pool.release(binding);
}
