//! The pools of a space, and which of them a new file goes to.

pub(crate) mod answering;
pub(crate) mod away;
pub(crate) mod drain;
pub(crate) mod prepared;
pub(crate) mod reserve;
pub(crate) mod vacancy;

use self::answering::{Answering, Call};
use self::reserve::Distance;
use self::vacancy::Vacancy;
use crate::headroom::Blocks;
use crate::open_file::{Measure, OpenBacking};
use crate::{Errno, Outcome, WaitsFor, hurry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use ullage_catalog::{Backing, Inode};
use ullage_policy::choose::{Room, Spread};
use ullage_policy::headroom::Counting;
use ullage_pool::{Binding, Error, Fresh, Hint, Pool, Tree, Usage, Wait};
use ullage_types::{Bytes, PoolId};

/// With less than this left a pool may run full under a file that is open: what is written in the kernel, where nobody could move it, may be so
/// much in a few seconds.
const SHORT: u64 = 4 << 30;
/// What a file system needs beside the data that comes to it.
const BESIDE: u64 = 4 << 20;

/// A pool and what the space's configuration says of it.
#[derive(Clone)]
pub struct PoolMember {
    /// Its number, stored with every file in it.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// The driver.
    pub pool: Arc<dyn Pool>,
    /// Room that new files and writes leave free.
    pub reserve: Bytes,
    /// Its plain tree, in the `mirror` layout.
    pub tree: Option<Arc<Tree>>,
}

impl PoolMember {
    /// Whether what is free to one is free to the other.
    pub fn shares_disk(&self, other: &Self) -> bool {
        self.id == other.id || self.pool.disk().is_some() && self.pool.disk() == other.pool.disk()
    }
}

/// What is to be known of the file system below a pool.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Copy)]
struct Below {
    /// When it finds blocks.
    blocks: Blocks,
    /// How much of them at once.
    unit: u64,
    /// Whether its files have extents.
    extents: bool,
    /// It has them in use later than it says that files have them.
    shows_late: bool,
    /// A hole gets its block when it is read through a mapping.
    fills_when_read: bool,
    /// To how much it cuts the times of files.
    granularity: Duration,
    /// What it has free, and what an open file looks like, it may ask others for, who may not answer.
    is_remote: bool,
}

impl Below {
    fn of(pool: &dyn Pool) -> Self {
        let below = pool.describe();
        let fs_type = below.fs_type.as_deref();
        let shows_late = !matches!(fs_type, Some("tmpfs" | "ext4" | "xfs"));
        let fills_when_read = fs_type == Some("tmpfs");
        let (blocks, granularity) = (Blocks::of(fs_type), pool.granularity());
        let is_remote = fs_type.is_some_and(|name| !matches!(name, "tmpfs" | "ext4" | "xfs" | "btrfs"));
        Self { blocks, unit: below.unit, extents: below.extents, shows_late, fills_when_read, granularity, is_remote }
    }

    const UNKNOWN: Self = Self {
        blocks: Blocks::Unknown,
        unit: 0,
        extents: false,
        shows_late: false,
        fills_when_read: false,
        granularity: Duration::from_secs(2),
        is_remote: true,
    };
}

/// A pool, and what is known of it.
struct Slot {
    member: PoolMember,
    below: Below,
    distance: Distance,
    answering: Answering,
    vacancy: Vacancy,
    /// The log says that it takes no new files.
    failing: AtomicBool,
    /// It takes no files, and those that it has go to the others (`drain.rs`).
    draining: AtomicBool,
    /// Bytes of files that were given back to it, and that it may not show as free yet.
    unfreed: AtomicU64,
}

impl Slot {
    /// Whether files may be made there, or come there.
    fn takes_files(&self) -> bool {
        !self.draining.load(Relaxed) && self.member.pool.is_there()
    }

    /// Asks its file system what it has; nothing where that has failed.
    fn asks(&self) -> impl FnOnce() -> Usage + Send + use<> {
        let pool = self.member.pool.clone();
        move || pool.usage().unwrap_or_default()
    }

    /// What is free above its reserve, or was lately; none where it does not answer.
    fn above_reserve(&self) -> Option<u64> {
        let usage = self.vacancy.lately(self.asks())?;
        Some(usage.free.saturating_sub(self.member.reserve).0)
    }

    /// What it has, which one that asks others has said lately; none where those do not answer.
    fn usage(&self) -> Option<Usage> {
        if self.below.is_remote { self.vacancy.lately(self.asks()) } else { Some(self.asks()()) }
    }

    /// Whether a file may be made there; none where it does not answer.
    fn room(&self) -> Option<Room> {
        self.usage().map(|usage| self.room_of(usage))
    }

    fn room_of(&self, usage: Usage) -> Room {
        let Usage { free, inodes_total, inodes_free, .. } = usage;
        Room { free, reserve: self.member.reserve, inodes_total, inodes_free }
    }

    /// LATER where the calling thread may not wait, and a call may have to.
    fn answers_at_once(&self, call: Call) -> Outcome<()> {
        self.answering.at_once(call).or_else(|_| hurry::may_wait_for(WaitsFor::Pool(self.member.id)))
    }

    /// A new backing file; none where that may have to be waited for, and the calling thread may not.
    fn create(&self, hint: Hint) -> Result<Option<Fresh>, Error> {
        let (pool, answering) = (&self.member.pool, &self.answering);
        if !pool.discards() && self.answers_at_once(Call::Writes).is_err() {
            return Ok(pool.take_ready(hint));
        }
        // Most have been made before, which says nothing of now.
        let ready = pool.take_ready(hint);
        ready.map_or_else(|| answering.make(Call::Writes, || pool.create(hint)), Ok).map(Some)
    }
}

/// Every pool of a space. One may be added at any time, and none goes while that is up.
pub struct Pools {
    slots: boxcar::Vec<Slot>,
    /// Some ask others. Where none do nobody looks which.
    any_remote: AtomicBool,
    /// The disk that the catalog lies on.
    catalog: Option<u64>,
    spread: Spread,
    turn: AtomicU64,
}

impl Pools {
    /// Pools in the order of the configuration, and the disk that the catalog lies on.
    pub fn new(members: Vec<PoolMember>, spread: Spread, catalog: Option<u64>) -> Self {
        assert!(!members.is_empty(), "a space has at least one pool");
        let pools = Self {
            slots: boxcar::Vec::new(),
            any_remote: AtomicBool::new(false),
            catalog,
            spread,
            turn: AtomicU64::new(0),
        };
        for member in members {
            pools.push(member);
        }
        pools
    }

    /// One more pool, which takes files from now on.
    pub(crate) fn push(&self, member: PoolMember) {
        assert!(self.member(member.id).is_none(), "a number is given to one pool");
        let vacancy = Vacancy::default();
        // It has just answered, and may never do so again.
        vacancy.said(member.pool.usage().unwrap_or_default());
        let below = Below::of(&*member.pool);
        self.any_remote.fetch_or(below.is_remote, Relaxed);
        self.slots.push(Slot {
            below,
            distance: Distance::default(),
            answering: Answering::new(below.is_remote),
            vacancy,
            failing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            unfreed: AtomicU64::new(0),
            member,
        });
        let is_one_of_several = self.slots().count() > 1;
        for Slot { member, answering, .. } in self.slots() {
            let apart = member.pool.disk().is_some_and(|disk| Some(disk) != self.catalog);
            answering.set_others_go_on(is_one_of_several || apart);
        }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().map(|(_, slot)| slot)
    }

    fn slot(&self, id: PoolId) -> Option<&Slot> {
        self.slots().find(|slot| slot.member.id == id)
    }

    /// Whether a pool is to be emptied.
    pub fn is_draining(&self, id: PoolId) -> bool {
        self.slot(id).is_some_and(|slot| slot.draining.load(Relaxed))
    }

    /// Says whether a pool is to be emptied. From then on it takes no files, or does again.
    pub(crate) fn set_draining(&self, id: PoolId, drains: bool) {
        if let Some(slot) = self.slot(id) {
            slot.draining.store(drains, Relaxed);
        }
    }

    /// All of them.
    pub fn members(&self) -> impl Iterator<Item = &PoolMember> {
        self.slots().map(|slot| &slot.member)
    }

    /// Whether files can go from one to another.
    pub(crate) fn are_several(&self) -> bool {
        self.slots().nth(1).is_some()
    }

    /// The file systems below, each once: its first pool, and what it always has free, which is the least reserve of its pools. None where all
    /// of them are to be emptied, and take nothing.
    pub fn disks(&self) -> impl Iterator<Item = (&PoolMember, Option<Bytes>)> {
        self.members().filter(|member| self.disk(member) == member.id).map(|member| {
            let beside = self.slots().filter(|slot| member.shares_disk(&slot.member));
            let taking = beside.filter(|slot| slot.takes_files());
            (member, taking.map(|slot| slot.member.reserve).min())
        })
    }

    /// What a pool's file system has, or had when it last said so. Waits for none.
    pub fn usage(&self, id: PoolId) -> Usage {
        let slot = self.slot(id);
        slot.map(|slot| if slot.below.is_remote { slot.vacancy.last(slot.asks()) } else { slot.asks()() })
            .unwrap_or_default()
    }

    /// What is free in a pool; none where that is not known. Waits for none.
    pub(crate) fn free(&self, id: PoolId) -> Option<u64> {
        // One that failed to say it has nothing in all.
        let usage = self.slot(id)?.usage().filter(|usage| usage.total.0 > 0)?;
        Some(usage.free.0)
    }

    /// The same for who counts on it: of one that does not answer, what was when it last said so.
    pub(crate) fn free_or_last(&self, id: PoolId) -> Outcome<u64> {
        match self.slot(id).filter(|slot| slot.below.is_remote) {
            Some(slot) => {
                let usage = slot.vacancy.last(slot.asks());
                if usage.total.0 > 0 { Ok(usage.free.0) } else { Err(Errno::EIO) }
            }
            None => Ok(self.get(id)?.usage()?.free.0),
        }
    }

    /// What all pools on the disk of one have now. Waits for it, and others know then.
    pub(crate) fn ask_usage_beside(&self, id: PoolId) -> Outcome<()> {
        self.beside(id).try_for_each(|slot| self.ask_usage(slot.member.id).map(drop))
    }

    /// What a pool has now. Waits for it, and others know then.
    pub(crate) fn ask_usage(&self, id: PoolId) -> Outcome<Usage> {
        let usage = self.get(id)?.usage()?;
        if let Some(slot) = self.slot(id) {
            slot.vacancy.said(usage);
        }
        Ok(usage)
    }

    /// The pool with this number. EIO when the configuration no longer has it.
    pub fn get(&self, id: PoolId) -> Outcome<&Arc<dyn Pool>> {
        match self.member(id) {
            Some(member) => Ok(&member.pool),
            None => {
                tracing::error!("a file lies in pool {id}, which the space no longer has");
                Err(Errno::EIO)
            }
        }
    }

    /// Whether any pool takes back files that nobody has any more.
    pub(crate) fn are_freeing(&self) -> bool {
        self.members().any(|member| member.pool.is_freeing())
    }

    /// Bytes that writes leave free in a pool.
    pub(crate) fn reserve(&self, id: PoolId) -> u64 {
        self.member(id).map_or(0, |member| member.reserve.0)
    }

    /// When a pool's file system finds blocks for what is written.
    pub(crate) fn blocks(&self, id: PoolId) -> Blocks {
        self.below(id).blocks
    }

    fn below(&self, id: PoolId) -> Below {
        self.slot(id).map_or(Below::UNKNOWN, |slot| slot.below)
    }

    /// Whether a pool's file system has blocks in use later than it says that files have them.
    pub(crate) fn shows_late(&self, id: PoolId) -> bool {
        self.below(id).shows_late
    }

    /// So many bytes of a file, removed or not, were given back to a pool.
    pub(crate) fn gave_back(&self, id: PoolId, bytes: u64) {
        if bytes > 0
            && let Some(slot) = self.slot(id).filter(|slot| slot.below.shows_late)
        {
            slot.unfreed.fetch_add(bytes, Relaxed);
        }
    }

    /// What was given back on a pool's disk, and may not be free there before it is written out.
    pub(crate) fn unfreed(&self, id: PoolId) -> u64 {
        self.beside(id).map(|slot| slot.unfreed.load(Relaxed)).fold(0, u64::saturating_add)
    }

    /// That disk was written out after all that was given back before this look, pool by pool.
    pub(crate) fn frees(&self, id: PoolId) -> impl FnOnce() {
        // What the pool itself has not done yet shows later still.
        let is_done = |slot: &&Slot| !slot.member.pool.is_freeing();
        let before: Vec<_> = self.beside(id).filter(is_done).map(|slot| (slot, slot.unfreed.load(Relaxed))).collect();
        move || {
            for (slot, bytes) in before.into_iter().filter(|(slot, _)| is_done(slot)) {
                slot.unfreed.fetch_sub(bytes, Relaxed);
            }
        }
    }

    fn beside(&self, id: PoolId) -> impl Iterator<Item = &Slot> {
        let own = self.slot(id);
        self.slots().filter(move |slot| own.is_some_and(|own| own.member.shares_disk(&slot.member)))
    }

    /// Whether holes of a pool's files get blocks when they are read through a mapping.
    pub(crate) fn fills_when_read(&self, id: PoolId) -> bool {
        self.below(id).fills_when_read
    }

    /// To how much a pool's file system cuts the times of files.
    pub(crate) fn granularity(&self, id: PoolId) -> Duration {
        self.below(id).granularity
    }

    /// What a pool's file system counts among the blocks, of this size, of a file.
    pub(crate) fn counting(&self, id: PoolId, block: u64) -> Counting {
        let Below { blocks, unit, extents, .. } = self.below(id);
        blocks.counting(block, unit, extents)
    }

    /// Runs what writes data to a file of a pool with no claim on what is reserved below it.
    pub(crate) fn without_reserve<T, E: From<std::io::Error>>(
        &self,
        id: PoolId,
        file: &std::fs::File,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match self.slot(id) {
            Some(slot) => slot.distance.keep(file, work),
            None => crate::without_reserve(work),
        }
    }

    /// LATER where the calling thread may not wait, and a call to a pool's file system may have to.
    pub(crate) fn answers_at_once(&self, id: PoolId, call: Call) -> Outcome<()> {
        match self.slot(id).filter(|slot| !slot.member.pool.discards()) {
            Some(slot) => slot.answers_at_once(call),
            None => Ok(()),
        }
    }

    /// Whether some pools have to ask others what an open file looks like.
    pub(crate) fn are_any_remote(&self) -> bool {
        self.any_remote.load(Relaxed)
    }

    /// A pool that is one of those.
    fn remote(&self, id: PoolId) -> Option<&Slot> {
        if self.are_any_remote() { self.slot(id).filter(|slot| slot.below.is_remote) } else { None }
    }

    /// Whether a pool has to ask others what an open file looks like.
    pub(crate) fn is_remote(&self, id: PoolId) -> bool {
        self.remote(id).is_some()
    }

    /// Whether a pool says at once what an open file looks like: a local one always does.
    pub(crate) fn shows_at_once(&self, id: PoolId) -> bool {
        self.remote(id).is_none_or(|slot| slot.answering.answers(Call::Reads))
    }

    /// What an open file looks like now.
    pub(crate) fn measure(&self, backing: &OpenBacking) -> Outcome<Measure> {
        let measure = || Measure::of(&backing.file);
        Ok(self.remote(backing.pool).map_or_else(measure, |slot| slot.answering.make(Call::Reads, measure))?)
    }

    /// What the calling thread may wait for to open a file in a pool.
    pub(crate) fn wait(&self, id: PoolId) -> Wait {
        self.slot(id).map_or(Wait::Disk, |slot| slot.answering.wait())
    }

    /// Makes a call to a pool's file system.
    pub(crate) fn call<T>(&self, id: PoolId, call: Call, what: impl FnOnce() -> T) -> T {
        match self.slot(id) {
            Some(slot) => slot.answering.make(call, what),
            None => what(),
        }
    }

    /// So little is left in a pool that what is written to a file may find no room, or it is to be emptied, while another has some: what comes to
    /// the server then can go on there (`away.rs`). Waits for no pool.
    pub(crate) fn may_run_full(&self, id: PoolId) -> bool {
        self.are_several()
            && (self.is_draining(id) || self.slot(id).and_then(Slot::above_reserve).is_some_and(|room| room < SHORT))
            && self.roomiest_beside(id, 0).is_some()
    }

    /// The pool on another disk that has most room, where that is more than so many bytes, among those that answer. Whose own is to be emptied
    /// may go to one on the same.
    pub(crate) fn roomiest_beside(&self, id: PoolId, bytes: u64) -> Option<&PoolMember> {
        self.roomy_beside(id, bytes).first().copied()
    }

    /// All that have more than so much, that with most first.
    pub(crate) fn roomy_beside(&self, id: PoolId, bytes: u64) -> Vec<&PoolMember> {
        let Some(own) = self.member(id) else { return Vec::new() };
        let drains = self.is_draining(id);
        let works = |slot: &&Slot| {
            let member = &slot.member;
            let helps = if drains { member.id != id } else { !member.shares_disk(own) };
            let takes = !slot.failing.load(Relaxed) && slot.takes_files();
            takes && !member.pool.discards() && helps
        };
        let others = self.slots().filter(works);
        let mut rooms: Vec<_> = others.filter_map(|slot| Some((slot.above_reserve()?, &slot.member))).collect();
        rooms.retain(|(room, _)| *room > bytes.saturating_add(BESIDE));
        rooms.sort_by_key(|(room, _)| std::cmp::Reverse(*room));
        rooms.into_iter().map(|(_, member)| member).collect()
    }

    /// The disk that a pool is on, by the first pool there.
    pub(crate) fn disk(&self, of: &PoolMember) -> PoolId {
        self.members().find(|member| member.shares_disk(of)).map_or(of.id, |member| member.id)
    }

    /// The pool with this number, and what is said of it.
    pub fn member(&self, id: PoolId) -> Option<&PoolMember> {
        self.slot(id).map(|slot| &slot.member)
    }

    /// A new backing file in the pool that the spread names; in another one where that is full, or its disk has failed. None
    /// where that may have to be waited for, and the calling thread may not.
    pub fn create(&self, hint: Hint) -> Result<Option<(PoolId, Fresh)>, Error> {
        self.create_among(hint, |_| true)
    }

    /// The same in a pool whose data moves in the kernel, where there is one.
    pub(crate) fn create_in_kernel(&self, hint: Hint) -> Result<Option<(PoolId, Fresh)>, Error> {
        self.create_among(hint, |pool| pool.moves_in_kernel())
    }

    /// The same in one that `suits`, where any does.
    fn create_among(&self, hint: Hint, suits: impl Fn(&dyn Pool) -> bool) -> Result<Option<(PoolId, Fresh)>, Error> {
        if let Some(only) = self.slots().next().filter(|_| !self.are_several()) {
            return Ok(only.create(hint)?.map(|fresh| (only.member.id, fresh)));
        }
        let slots: Vec<&Slot> = self.slots().collect();
        let said: Vec<Option<Room>> = slots.iter().map(|slot| slot.room()).collect();
        let mut rooms: Vec<Room> = said.iter().map(|room| room.unwrap_or_default()).collect();
        let turn = self.turn.fetch_add(1, Relaxed);
        let suits = |slot: &Slot| slot.takes_files() && suits(&*slot.member.pool);
        let all = !slots.iter().any(|slot| suits(slot));
        let mut refused: Vec<bool> = slots.iter().map(|slot| !slot.takes_files() || !all && !suits(slot)).collect();
        let mut silent: Vec<usize> =
            (0..slots.len()).filter(|&index| said[index].is_none() && !refused[index]).collect();
        let mut first = None;
        loop {
            let Some(index) = self.spread.pool(&rooms, turn, &|index| refused[index]) else {
                // One that does not answer is waited for where no other takes the file.
                if silent.is_empty() {
                    break;
                }
                if hurry::may_wait().is_err() {
                    self.turn.fetch_sub(1, Relaxed);
                    return Ok(None);
                }
                for index in silent.drain(..) {
                    rooms[index] = slots[index].room_of(slots[index].asks()());
                }
                continue;
            };
            let Slot { member, failing, .. } = slots[index];
            match slots[index].create(hint) {
                Ok(None) => {
                    // Who asks again has the same turn.
                    self.turn.fetch_sub(1, Relaxed);
                    return Ok(None);
                }
                Ok(Some(fresh)) => {
                    if failing.load(Relaxed) {
                        failing.store(false, Relaxed);
                    }
                    return Ok(Some((member.id, fresh)));
                }
                Err(error) => {
                    if has_failed(&error) {
                        if !failing.swap(true, Relaxed) {
                            tracing::error!(
                                "the pool '{}' takes no new files, which go to the others: {error}; look at its disk",
                                member.name
                            );
                        }
                    } else if !error.is_full() {
                        return Err(error);
                    }
                    first.get_or_insert(error);
                    refused[index] = true;
                }
            }
        }
        Err(first.unwrap_or_else(full))
    }
}

/// The pool that the data of a file lies in. What has no data lies in none.
pub(crate) type Whence = Option<PoolId>;

/// Where the data of a file is, if it has any.
pub(crate) fn pool_of(file: &Inode) -> Whence {
    file.lock().record.backing.as_ref().map(|place| place.pool)
}

/// A binding in a pool, as the catalog has it.
pub(crate) fn place_of(pool: PoolId, binding: &Binding) -> Backing {
    Backing { pool, generation: binding.generation, locator: binding.locator.0.clone() }
}

/// Every pool is down to its reserve.
fn full() -> Error {
    let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
    Error::Io { doing: "make a file in any of", path: "the space's pools".into(), source }
}

/// Whether it is the disk below a pool that does not work, or who serves what lies there.
fn has_failed(error: &Error) -> bool {
    use libc::{EBADMSG, ECONNABORTED, EIO, ENODEV, ENOTCONN, ENXIO, EROFS, ESTALE, ETIMEDOUT, EUCLEAN};
    let disk = matches!(error.raw_os_error(), Some(EIO | EROFS | EUCLEAN | EBADMSG | ENODEV | ENXIO));
    disk || matches!(error.raw_os_error(), Some(ESTALE | ENOTCONN | ECONNABORTED | ETIMEDOUT))
}
