//! A file whose pool is full, or is to be emptied (`drain.rs`), goes on in another one (COFS: several file systems below one; ENOSPC of one is
//! not that of all).
//!
//! Only the server can do that, and only where nobody else has the backing file open: what the kernel writes or reads by itself would go on
//! with the old one. So while a pool has little left, and another has more, files in it are opened for writing through the server
//! ([`crate::pools::Pools::may_run_full`]).
//!
//! Invariant: at every moment the catalog names a backing file that has all that was written until then. The copy is on disk before a
//! transaction names it, that is on disk before anything is written to the copy, and the old one goes back to its pool a while after it. A crash in
//! between leaves one of the two without a file that names it, in a leaf that is marked: recovery gives it back. Where disks lose power one
//! after the other, the catalog may know of a copy that is not there: recovery finds the old one then, which holds the same.

use super::drain::{self, Drain};
use super::{BESIDE, PoolMember, place_of};
use crate::ending::settle;
use crate::headroom::holes::{bytes_in_blocks, data_in};
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile, set_times};
use crate::turns::{Turn, Turns};
use crate::{Caller, Errno, Outcome, Space, hurry, sys, without_reserve};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_catalog::Backing;
use ullage_kv::Seq;
use ullage_pool::{Fresh, Hint, Lease, probe_lease, reopen};
use ullage_types::{FileId, PoolId};

/// A pool that has less than this beside what was asked for is the one that refused it.
const NEARLY: u64 = 64 << 20;
/// How long a file is waited for by who writes to it; by who empties its pool, who comes again.
const WRITES: Waits = Waits { rest: Duration::from_secs(1), busy: Duration::from_secs(1), reads_only: false };
const DRAINS: Waits = Waits { rest: Duration::from_millis(100), busy: Duration::from_millis(50), reads_only: true };
/// The pause between looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Longer than a tick of any clock that files get their times from: what changes a file later shows in these, but for what their file system
/// cuts off.
const TICK: Duration = Duration::from_millis(20);
/// How long others are waited for that go elsewhere: a copy may take minutes, and where a disk hangs it never ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a file was bound to stays so long after it went: disks may lose power one after the other, and copies of them be made so.
const KEPT: Duration = Duration::from_secs(5);
/// A copy of what was changed meanwhile is made anew, so often.
const COPIES: u32 = 5;
const PIECE: usize = 1 << 20;

/// How long a file is waited for until nobody changes it, and then until nobody is at it.
#[derive(Clone, Copy)]
struct Waits {
    rest: Duration,
    busy: Duration,
    /// It may be open for reading only.
    reads_only: bool,
}

/// What goes to other pools now.
#[derive(Default)]
pub(crate) struct Away {
    /// The files that do.
    files: Turns<FileId>,
    /// The disks that one is copied to, each by its first pool: what is free there is promised once.
    disks: Turns<PoolId>,
    /// What went lately is still where it was.
    kept: Mutex<VecDeque<(Instant, FileId, Gone)>>,
}

/// What a file that may be copied looks like.
struct AtRest {
    file: Arc<File>,
    measure: Measure,
    /// Whatever changes it from now on shows in its times.
    shows: bool,
}

/// Why a file does not go to a pool.
enum Failed {
    /// That pool refuses it: another one may take it.
    There(Errno),
    /// It would go to no other either.
    Anywhere(Errno),
}

impl<E: Into<Errno>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Anywhere(error.into())
    }
}

/// What a file was bound to, since which commit it is not, and how many bytes that has.
#[derive(Debug)]
struct Gone {
    seq: Seq,
    backing: Backing,
    bytes: u64,
}

impl Space {
    /// Whether what is opened for writing in a pool now may have to go on in another one.
    pub(crate) fn is_to_go_elsewhere(&self, caller: Caller, pool: PoolId) -> bool {
        // Who tries the kernel writes nothing that counts.
        self.pools.may_run_full(pool) && !self.lender.is_tried_by(caller)
    }

    /// Whether a file that was refused so many bytes in a pool, all of them or some where it is not about the `whole`, may ask again: that had
    /// not so many, and now the file lies in another one.
    pub(crate) fn goes_elsewhere(&self, node: &Arc<Node>, from: PoolId, bytes: u64, whole: bool) -> Outcome<bool> {
        if !self.pools.are_several() {
            return Ok(false);
        }
        hurry::may_wait()?;
        if lies_in(node) != Some(from) {
            // Somebody else was refused too, and came first.
            return Ok(true);
        }
        if self.has_room(node, from, bytes, whole)? || !self.has_room_beside(from, bytes)? {
            return Ok(false);
        }
        let moved = self.move_away(node, from, bytes, None);
        if let Err(error) = &moved {
            tracing::warn!("inode {} stays in a pool that is full: {error:?}", node.inode.id);
        }
        Ok(moved.unwrap_or(false))
    }

    /// Whether another pool has so much room, if need be once what was given back there shows.
    fn has_room_beside(&self, from: PoolId, bytes: u64) -> Outcome<bool> {
        let is_there = || self.pools.roomiest_beside(from, bytes).is_some();
        let others = || self.pools.members().map(|member| member.id).filter(|id| *id != from).collect::<Vec<_>>();
        let wanted = bytes.saturating_add(BESIDE + 1);
        Ok(is_there() || self.show_pools(&others(), wanted)? && is_there())
    }

    /// Whether it is not the pool that refuses: it has that much, or a limit has not what is of use. That is what a block may take, where it is
    /// not about the `whole`: the rest is cut off.
    fn has_room(&self, node: &Node, pool: PoolId, bytes: u64, whole: bool) -> Outcome<bool> {
        let limited = self.room_in_limits(&node.inode)?;
        let counting = self.counting_of(&node.open.lock()).map(|(_, counting)| counting);
        let least = counting.filter(|_| !whole).map_or(bytes, |counting| counting.worst(0, 1));
        // It has just answered.
        let free = self.pools.get(pool)?.usage()?.free.0.saturating_sub(self.pools.reserve(pool));
        Ok(limited.is_some_and(|left| left < least) || free >= bytes.saturating_add(NEARLY))
    }

    /// Moves a file to another pool that has so many bytes more for it; whether it did. Where that `drains` its own nobody waits for the file,
    /// and it is left where it is while somebody goes on changing it, or when no more is to be moved.
    pub(crate) fn move_away(
        &self,
        node: &Arc<Node>,
        from: PoolId,
        bytes: u64,
        drains: Option<&Drain>,
    ) -> Outcome<bool> {
        let until = Instant::now() + PATIENCE;
        let waits = if drains.is_some() { DRAINS } else { WRITES };
        let Some(_moves) = await_turn(until, || self.away.files.take(node.inode.id)) else { return Ok(false) };
        let (mut copy, mut refused, mut why) = (1, Vec::new(), None);
        while copy <= COPIES {
            let Some((blocks, shows)) = self.look_at_rest(node, from, waits)? else {
                // It may be gone by now.
                return Ok(lies_in(node) != Some(from));
            };
            let takes = (blocks * 512).saturating_add(bytes);
            let small = drains.is_some() && takes <= drain::SMALL.0;
            let Some((to, _turn)) = self.place_at(from, takes, until, small, &refused) else {
                return why.map_or(Ok(false), Err);
            };
            let alone = copy == COPIES || !shows;
            let rest = if alone { Duration::ZERO } else { waits.rest };
            let Some((open, rest)) = self.await_rest(node, from, Waits { rest, ..waits })? else { return Ok(false) };
            // Where others go on changing it, they wait for the copy.
            let open = (alone || !rest.shows).then_some(open);
            match (drains, &open) {
                (Some(_), Some(_)) => return Ok(false),
                (Some(_), None) => {}
                (None, _) => tracing::info!("inode {} goes to the pool '{}': its own is full", node.inode.id, to.name),
            }
            // Nobody else is promised that room.
            let bound = self.hold_in_pool(to.id, takes).map_err(Failed::There).and_then(|()| {
                let bound = self.copy_and_bind(node, open, from, to, rest, drains);
                self.let_go_in_pool(to.id, takes, takes);
                bound
            });
            let gone = match bound {
                Ok(gone) => gone,
                // It may be without inodes, or its disk read-only, which does not show in what it has free.
                Err(Failed::There(error)) => {
                    if drains.is_none() {
                        tracing::info!("the pool '{}' does not take inode {}: {error:?}", to.name, node.inode.id);
                    }
                    refused.push(to.id);
                    why.get_or_insert(error);
                    continue;
                }
                Err(Failed::Anywhere(error)) => return Err(error),
            };
            if let Some(gone) = gone {
                self.away.kept.lock().push_back((Instant::now(), node.inode.id, gone));
                let told = self.catalog.each_name(&node.inode, &mut |directory, name| self.trees.name(directory, name));
                if let Err(error) = told {
                    // It lies there all the same, and whoever writes to it goes on.
                    tracing::warn!("the plain trees are not told all names of inode {}: {error}", node.inode.id);
                }
                return Ok(true);
            }
            copy += 1;
        }
        Ok(false)
    }

    /// Gives back what files were bound to that went a while ago; at the `end` all of it.
    pub(crate) fn give_back_kept(&self, end: bool) {
        let mut kept = self.away.kept.lock();
        let due = kept.iter().take_while(|(since, ..)| end || since.elapsed() >= KEPT).count();
        for (_, file, Gone { seq, backing, bytes }) in kept.drain(..due) {
            self.reaper.push(file, seq, backing, bytes);
        }
    }

    /// How many blocks a file has that comes to rest, and whether what changes it later shows.
    fn look_at_rest(&self, node: &Arc<Node>, from: PoolId, waits: Waits) -> Outcome<Option<(u64, bool)>> {
        Ok(self.await_rest(node, from, waits)?.map(|(_, rest)| (rest.measure.blocks, rest.shows)))
    }

    /// The pool with most room for so many bytes, among those that have not `refused` and to whose disk nothing is copied just now. What is
    /// `small` goes beside others.
    fn place_at(
        &self,
        from: PoolId,
        bytes: u64,
        until: Instant,
        small: bool,
        refused: &[PoolId],
    ) -> Option<(&PoolMember, Option<Turn<'_, PoolId>>)> {
        let take = || {
            let mut roomy = self.pools.roomy_beside(from, bytes);
            roomy.retain(|to| !refused.contains(&to.id));
            let free = |to: &&_| small.then_some(None).or_else(|| self.away.disks.take(self.pools.disk(to)).map(Some));
            let free = roomy.iter().find_map(|to| Some((*to, free(to)?)));
            // Where none has room, none is waited for.
            (roomy.is_empty() || free.is_some()).then_some(free)
        };
        await_turn(until, take).flatten()
    }

    /// None where the file was changed meanwhile.
    fn copy_and_bind(
        &self,
        node: &Arc<Node>,
        open: Option<MutexGuard<'_, OpenFile>>,
        from: PoolId,
        to: &PoolMember,
        rest: AtRest,
        drains: Option<&Drain>,
    ) -> Result<Option<Gone>, Failed> {
        let record = node.inode.record();
        let hint = Hint { parent: record.parent, pid: 0 };
        let draft = self.with_files(|| to.pool.draft(node.inode.id, hint), settle::is_full).map_err(there)?;
        let mut named = false;
        // What was removed meanwhile, and nobody else has open, goes nowhere.
        let goes = || node.inode.lock().record.nlink > 0 || node.open.try_lock().is_none_or(|open| open.handles > 1);
        let goes_on = || drains.is_none_or(|drain| drain.goes_on() && goes());
        let from_file = unseen(&rest.file);
        let copied = without_reserve(|| copy(&from_file, &draft.file, rest.measure, &goes_on));
        // Nobody else has it open then.
        drop(from_file);
        let bound = copied.and_then(|()| {
            let mut open = open.unwrap_or_else(|| node.open.lock());
            // A copy may be on its way to the disk for longer than the end of a space waits, and the plain trees are told nothing after that.
            if drains.is_some_and(|drain| !drain.goes_on()) {
                return Err(Failed::Anywhere(Errno(libc::ECANCELED)));
            }
            self.bind_anew(node, &mut open, from, rest, to, &draft, drains.is_some(), &mut named)
        });
        // A draft leaves nothing. What has its name stays, even where nobody knows whether the catalog names it: the next start does.
        if !named {
            to.pool.drop_draft(draft);
        }
        bound
    }

    /// Waits until nobody else is at a file, and has it locked then; for so long until whatever changes it later shows as well. None where
    /// somebody always is, or it cannot go, as where it has gone.
    fn await_rest<'a>(
        &self,
        node: &'a Arc<Node>,
        from: PoolId,
        waits: Waits,
    ) -> Outcome<Option<(MutexGuard<'a, OpenFile>, AtRest)>> {
        let patience = if waits.rest.is_zero() { waits.rest } else { waits.rest + self.pools.granularity(from) };
        let began = Instant::now();
        while began.elapsed() < patience + waits.busy {
            Self::write_out_late(node);
            self.let_go_of_given(node)?;
            let mut open = node.open.lock();
            if !can_leave(&open, from, waits.reads_only) {
                break;
            }
            let rest = self.at_rest(node, &mut open, 1)?;
            if let Some(rest) = rest.filter(|rest| rest.shows || began.elapsed() >= patience) {
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
        let Some(backing) = open.backing.as_deref().filter(|backing| !busy && Arc::strong_count(&backing.file) == ours)
        else {
            return Ok(None);
        };
        // Also who has it mapped since earlier handles, or the kernel for a moment after them.
        if probe_lease(&backing.file, Lease::Write).is_err() {
            return Ok(None);
        }
        // What it still lacks blocks for would be waited for until it is settled.
        self.record_measured(node, open, true)?;
        let Some(backing) = open.backing.as_deref().filter(|_| open.grant.held == 0 && !open.grant.is_loose()) else {
            return Ok(None);
        };
        let now = crate::now();
        let measure = Measure::of(&backing.file)?;
        let shows = measure.shows_changes(now, self.pools.granularity(backing.pool) + TICK);
        Ok(Some(AtRest { file: backing.file.clone(), measure, shows }))
    }

    /// Binds a file to its copy, unless it was changed meanwhile. Gives back what it was bound to, and says when the copy has a name.
    #[allow(clippy::too_many_arguments)]
    fn bind_anew(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        from: PoolId,
        before: AtRest,
        to: &PoolMember,
        fresh: &Fresh,
        drains: bool,
        named: &mut bool,
    ) -> Result<Option<Gone>, Failed> {
        let data = |measure: Measure| (measure.size, measure.mtime, measure.ctime);
        if !can_leave(open, from, drains) || data(Measure::of(&before.file)?) != data(before.measure) {
            return Ok(None);
        }
        // The second of us is the copy's own.
        let Some(rest) = self.at_rest(node, open, 2)? else { return Ok(None) };
        if let Err(error) = sys::was_kept(&before.file) {
            // What is left of it goes, and whoever syncs it learns of that.
            tracing::warn!(%error, "something that was written to inode {} could not be kept where it lay", node.inode.id);
            self.lost.note(node.inode.id, fresh.binding.generation, error.into());
        }
        let behind = open.backing.as_deref().is_some_and(|backing| backing.times_behind);
        let record = behind.then(|| node.inode.record());
        let Measure { atime, mtime, .. } = rest.measure;
        let (atime, mtime) = record.map_or((atime, mtime), |record| (record.atime, record.mtime));
        set_times(&fresh.file, Some(atime), Some(mtime)).map_err(there)?;
        let new = Measure::of(&fresh.file).map_err(there)?;
        // Its map may be larger there.
        let grows = if self.catalog.has_limits() { 512 * new.blocks.saturating_sub(rest.measure.blocks) } else { 0 };
        self.catalog.hold(&node.inode, grows)?;
        if let Err(error) = to.pool.keep(fresh) {
            self.catalog.record_measured(&node.inode, grows, |_| Ok(()))?;
            return Err(there(error));
        }
        *named = true;
        let backing = open.backing.as_deref_mut().ok_or(Errno::EBADF)?;
        let (gone, place) = (place_of(from, &backing.binding), place_of(to.id, &fresh.binding));
        let shown = node.inode.lock().record.blocks;
        self.catalog.record_measured(&node.inode, grows, |record| {
            record.backing = Some(place);
            record.blocks = new.blocks;
            Ok(())
        })?;
        let seq = self.catalog.kv().newest();
        let copy = OpenBacking::new(to.id, fresh.binding.clone(), fresh.file.clone(), new, true);
        let OpenBacking { written, mappable, solid, changed, .. } = *backing;
        *backing = OpenBacking { written, mappable, solid, changed, recorded: seq, ..copy };
        // A look at the one that is gone says nothing.
        backing.is_changed();
        if shown != new.blocks {
            // No later look finds that the record says anything else.
            self.show_only(node);
        }
        // Before anything is written to it. What fails here has made the space read-only.
        self.catalog.sync()?;
        Ok(Some(Gone { seq, backing: gone, bytes: rest.measure.blocks * 512 }))
    }
}

/// Takes what others may have, for so long.
fn await_turn<T>(until: Instant, take: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        let taken = take();
        if taken.is_some() || Instant::now() >= until {
            return taken;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What fails where a file is to go.
fn there(error: impl Into<Errno>) -> Failed {
    Failed::There(error.into())
}

/// The pool of a file that is open.
fn lies_in(node: &Node) -> Option<PoolId> {
    node.open.lock().backing.as_deref().map(|backing| backing.pool)
}

/// Whether the backing file of an open file is in this pool, and the server alone writes and reads it. Where that may be open for reading only,
/// its leaf need not be marked: a crash may leave the file there, in a pool that takes no changes.
fn can_leave(open: &OpenFile, from: PoolId, reads_only: bool) -> bool {
    let alone = |backing: &OpenBacking| backing.registered.is_none() && backing.fence.is_none() && !backing.lends;
    let claimed = |backing: &OpenBacking| backing.writable && backing.claimed || reads_only;
    let has_times = |backing: &OpenBacking| !backing.times_behind || reads_only && open.writers == 0;
    let plain = |backing: &OpenBacking| claimed(backing) && has_times(backing);
    let backing = open.backing.as_deref().filter(|backing| backing.pool == from && !backing.discards);
    backing.is_some_and(|backing| alone(backing) && plain(backing)) && !open.marked
}

/// What was allocated and not written of a file. ENOSPC where that cannot be told from holes: who allocated counts on it.
fn allocated(file: &File, measure: Measure) -> Outcome<Vec<Range<u64>>> {
    if let Ok(extents) = ullage_extents::extents(file, 0..u64::MAX >> 1) {
        return Ok(extents.iter().filter(|extent| extent.is_bare()).map(ullage_extents::Extent::range).collect());
    }
    let Measure { size, blocks, block, .. } = measure;
    let data: u64 = data_in(file, 0..size)?.iter().map(|range| bytes_in_blocks(range, block)).sum();
    let all = size.div_ceil(block) * block;
    match blocks * 512 {
        taken if taken <= data => Ok(Vec::new()),
        taken if taken >= all => Ok(std::iter::once(0..taken).collect()),
        _ => Err(Errno::ENOSPC),
    }
}

/// Opens a file once more to read it without its time of access moving: no user does. As it is where only its owner may.
fn unseen(file: &Arc<File>) -> Arc<File> {
    reopen(file, OFlags::RDONLY | OFlags::NOATIME).map_or_else(|_| file.clone(), |own| Arc::new(own.into()))
}

/// Makes `to` a file with the data of `from`, on disk, and with the room that was allocated for more, as long as it `goes_on`.
fn copy(from: &File, to: &File, measure: Measure, goes_on: &dyn Fn() -> bool) -> Result<(), Failed> {
    let size = measure.size;
    rustix::fs::ftruncate(to, size).map_err(there)?;
    for range in allocated(from, measure)? {
        match rustix::fs::fallocate(to, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
            Ok(()) => {}
            // Nobody counted on it there either.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => break,
            Err(errno) => return Err(there(errno)),
        }
    }
    let mut piece = vec![0; PIECE];
    for run in data_in(from, 0..size)? {
        let mut at = run.start;
        while at < run.end.min(size) {
            let length = usize::try_from(run.end.min(size) - at).unwrap_or(PIECE).min(PIECE);
            if !goes_on() {
                return Err(Failed::Anywhere(Errno(libc::ECANCELED)));
            }
            from.read_exact_at(&mut piece[..length], at)?;
            to.write_all_at(&piece[..length], at).map_err(there)?;
            at += length as u64;
        }
    }
    to.sync_all().map_err(there)
}
#[cfg(test)]
#[path = "away_tests.rs"]
pub(crate) mod tests;
