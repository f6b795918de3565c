//! Lending: files below a limit that are written in the kernel all the same, as long as there is plenty of room.
//!
//! A handle that only writes cannot be mapped, so that its file grows by system calls alone, one at a time. What the longest of
//! them takes, and what else may be written until the file is looked at again, is held in the ledger before the handle is
//! given out, and stays held beside what the file is measured to take. When little is left it is asked back: the writes that
//! follow ask one by one (`brake.rs`), and nothing is held but for them.

use super::alone::is_own;
use super::mark::can_be_marked;
use super::{Blocks, waiting};
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::{Caller, Errno, Outcome, Space, sys};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_policy::headroom::{ASK_BACK, Counting, lend};
use ullage_types::{FileId, PoolId};

/// How long is waited for what is asked back: a call under way may take as long as it likes. The longer where nobody waits but who asks.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(5);
/// How long is waited for the end of a write that asked.
const UNDER_WAY: Duration = Duration::from_millis(50);
/// Nothing is lent for so long after it was asked back: who needed it may need more.
const AFTERWARDS: Duration = Duration::from_millis(200);
/// More files are not lent room: one thread looks at all of them within [`ullage_policy::headroom::BETWEEN_LOOKS`].
const MOST: usize = 512;
const PAUSE: Duration = Duration::from_micros(50);
/// How often it is tried whether writes can be made to ask.
const TRIES: usize = 3;

/// Whether writes can be made to ask here, which is tried once.
#[derive(Debug, Default)]
pub(crate) struct Lender {
    ability: AtomicU8,
    /// How many files are lent room.
    files: AtomicUsize,
    /// The process that tries it, and whether it has asked.
    trying: AtomicU32,
    tried: AtomicBool,
    asked_back: Mutex<Option<Instant>>,
    /// How many wait for what is lent.
    gathering: AtomicUsize,
}

/// Somebody waits for what is lent: until this is dropped nothing is lent anew.
#[derive(Debug)]
pub(crate) struct Gathering<'a>(&'a AtomicUsize);

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

const UNKNOWN: u8 = 0;
const ABLE: u8 = 1;
const UNABLE: u8 = 2;
/// It was able, and somebody could not be stopped then.
const FAILED: u8 = 3;

impl Lender {
    /// Whether it is known that writes can be made to ask.
    pub(crate) fn is_able(&self) -> bool {
        self.ability.load(Relaxed) == ABLE
    }

    /// Whether that is still to be tried.
    pub(crate) fn is_unknown(&self) -> bool {
        self.ability.load(Relaxed) == UNKNOWN
    }

    /// That was tried, and this was found.
    pub(crate) fn found(&self, able: bool) {
        self.ability.store(if able { ABLE } else { UNABLE }, Relaxed);
    }

    /// Somebody could not be stopped: nothing is lent until that is possible again.
    pub(crate) fn fail(&self) {
        let _ = self.ability.compare_exchange(ABLE, FAILED, Relaxed, Relaxed);
    }

    /// It is possible again.
    pub(crate) fn recover(&self) {
        let _ = self.ability.compare_exchange(FAILED, ABLE, Relaxed, Relaxed);
    }

    /// Whether this is who tries whether it is refused.
    pub(crate) fn is_tried_by(&self, caller: Caller) -> bool {
        caller.pid != 0 && caller.pid == self.trying.load(Relaxed)
    }

    /// Who tries it asks before a write. Gives back whether he did before.
    pub(crate) fn asks_again(&self) -> bool {
        self.tried.swap(true, Relaxed)
    }

    pub(crate) fn gathers(&self) -> Gathering<'_> {
        self.gathering.fetch_add(1, Relaxed);
        Gathering(&self.gathering)
    }

    fn asks_back(&self) {
        *self.asked_back.lock() = Some(Instant::now());
    }

    fn has_just_asked_back(&self) -> bool {
        let mut asked = self.asked_back.lock();
        *asked = asked.filter(|since| since.elapsed() < AFTERWARDS);
        asked.is_some()
    }
}

impl Space {
    /// Whether limited files can be written in the kernel; none while that was not tried.
    pub fn lends(&self) -> Option<bool> {
        (!self.lender.is_unknown()).then(|| self.lender.is_able())
    }

    /// Finds out how limited files can be written, and waits for that so long at most.
    pub fn learn_ways(&self, patience: Duration) {
        if !self.uses_passthrough() || !self.lender.is_unknown() {
            return;
        }
        self.look_after(None);
        let began = Instant::now();
        while self.lender.is_unknown() && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a limit or a reserve bounds anything.
    pub fn has_limited_files(&self) -> bool {
        self.pools.members().any(|member| self.may_bound(member.id))
    }

    /// Finds out whether writes can be made to ask, with `first` whether the thread that would do it runs before others.
    pub(crate) fn try_lending(&self, first: bool) {
        if !self.lender.is_unknown() {
            return;
        }
        // What came out once stands until the end: a moment's failure is no answer.
        let able = first && sys::sees_calls() && (0..TRIES).any(|_| self.refuses());
        self.lender.trying.store(0, Relaxed);
        self.lender.found(able);
        tracing::debug!(able, "limited files are written in the kernel while there is plenty of room");
    }

    fn refuses(&self) -> bool {
        self.can_refuse().unwrap_or_else(|error| {
            tracing::debug!(%error, "it is not known whether writes in the kernel can be refused");
            false
        })
    }

    /// Whether every write in the kernel asks once its file was refreshed, and can be refused: tried with a file without a name.
    fn can_refuse(&self) -> io::Result<bool> {
        self.lender.tried.store(false, Relaxed);
        let mut envoy = self.take_envoy()?;
        self.lender.trying.store(envoy.process() as u32, Relaxed);
        let inode = envoy.unnamed()?;
        let node = self.nodes.find(FileId(inode)).ok_or(io::ErrorKind::NotFound)?;
        self.brake.engage(&mut node.open.lock());
        let outcome = self.refresh_by(&mut *envoy, node.id, 0).and_then(|()| match envoy.write() {
            Err(error) if error.raw_os_error() == Some(libc::EDQUOT) => Ok(true),
            outcome => outcome.map(|()| false),
        });
        self.brake.release(&mut node.open.lock());
        if outcome.is_ok() {
            self.keep_envoy(envoy);
        }
        // Else it ends, and with it what it may have open in the mount.
        outcome
    }

    pub(crate) fn counting_of(&self, open: &OpenFile) -> Option<(PoolId, Counting)> {
        let backing = open.backing.as_deref()?;
        Some((backing.pool, self.pools.counting(backing.pool, backing.baseline.block)))
    }

    /// Whether a handle may write unseen, since room is lent to it: to one of a file, and to none that somebody may execute, so that few wait
    /// for the file's lock in the kernel when it is asked back. What can be mapped needs a fence for that, and so does what takes more than
    /// is written to it.
    pub(crate) fn lends_to(&self, caller: Caller, node: &Arc<Node>, open: &mut OpenFile, maps: bool) -> bool {
        let can_fence = self.can_fence(caller, open);
        let Some(backing) = &open.backing else { return false };
        let mappable = maps || backing.mappable;
        // What a process does that we do not see is not known (it has no number here).
        if caller.pid == 0
            || !can_be_marked(node.inode.lock().record.mode)
            || backing.lends
            || backing.solid
            || mappable && !can_fence
            || backing.unseen
            || self.lender.files.load(Relaxed) >= MOST
        {
            return false;
        }
        if !self.lender.is_able() {
            if self.lender.is_unknown() {
                self.look_after(None);
            }
            return false;
        }
        let fenced = mappable || !self.takes_what_it_needs(node, open);
        if fenced && !can_fence || !self.lend_more(node, open).unwrap_or(false) {
            return false;
        }
        let lent = !fenced || self.enclose(open);
        if !lent {
            open.grant.end_lending();
        }
        if lent {
            self.brake.release(open);
            if let Some(backing) = &mut open.backing {
                backing.lends = true;
                self.lender.files.fetch_add(1, Relaxed);
            }
            if !std::mem::replace(&mut open.watched, true) {
                self.look_after(Some(node));
            }
        }
        lent
    }

    /// Brings what is lent to a file up to what it should be. Gives back whether there was enough room for that.
    pub(crate) fn lend_more(&self, node: &Arc<Node>, open: &mut OpenFile) -> Outcome<bool> {
        let Some((pool, counting)) = self.counting_of(open) else { return Ok(false) };
        let lent = open.grant.lent();
        // Whoever is alone gathers what there is: from him on, until he has what he needs.
        let flow = self.headroom.flow.try_read();
        let taken = || flow.is_none() || self.lender.gathering.load(Relaxed) > 0 || self.lender.has_just_asked_back();
        let room = self.room_of(&node.inode, pool)?;
        if room.is_some_and(|room| room < ASK_BACK) || lent == 0 && taken() {
            return Ok(false);
        }
        let Some(all) = lend(counting, room.map(|room| room.saturating_add(lent))) else { return Ok(lent > 0) };
        let more = all.saturating_sub(lent);
        if more > 0 {
            self.hold_for(node, pool, more)?;
            open.grant.lend(more);
            self.move_fence(open);
        }
        Ok(true)
    }

    /// A file that is written unseen below a limit was measured: of what it grew by, its map may grow later. Where nobody writes any more what
    /// was lent is over. What `keeps` all that was set aside until it is written out holds that of its map too.
    pub(crate) fn owe(&self, open: &mut OpenFile, now: &Measure, keeps: bool) {
        let watched = open.watched;
        let unseen = |backing: &OpenBacking| backing.lends || watched && self.owes_unlent(backing);
        let Some(backing) = open.backing.as_deref().filter(|backing| unseen(backing)) else { return };
        let grown = now.blocks.saturating_sub(backing.baseline.blocks) * 512;
        let some = grown > 0 || open.grant.unplaced() > 0;
        if let Some((_, counting)) = self.counting_of(open).filter(|(_, it)| some && !it.needs_no_map(now.blocks * 512))
        {
            let free = if keeps { 0 } else { open.grant.left(grown) };
            open.grant.owe(grown, free, counting);
        }
        if open.backing.as_deref().is_some_and(|backing| backing.lent_is_gone) {
            self.end_lending(open, false);
        }
    }

    /// Whether what is written to a file since before a limit finds the blocks of its map later, and only those.
    fn owes_unlent(&self, backing: &OpenBacking) -> bool {
        backing.unseen && self.pools.blocks(backing.pool) == Blocks::Later
    }

    /// Nobody writes to a file unseen any more, or somebody does and no limit bounds it. The next measurement gives back what is lent.
    pub(crate) fn end_lending(&self, open: &mut OpenFile, unseen: bool) {
        if let Some(grant) = open.grant.changed() {
            grant.end_lending();
        }
        if let Some(backing) = open.backing.as_deref_mut().filter(|backing| backing.lends) {
            (backing.lends, backing.lent_is_gone, backing.unseen) = (false, false, unseen);
            self.lender.files.fetch_sub(1, Relaxed);
        }
    }

    /// Asks back what is lent to a file while the kernel lets nobody write to it, and is about to take its attributes. It is not lent again
    /// until what is given back is dropped.
    pub(crate) fn ask_back_here(&self, node: &Arc<Node>) -> Outcome<Gathering<'_>> {
        let gathering = self.lender.gathers();
        {
            let mut open = node.open.lock();
            if !open.lends() {
                return Ok(gathering);
            }
            self.brake.engage(&mut open);
        }
        self.ended_unseen(node)?;
        Ok(gathering)
    }

    /// Asks back what is lent to a file for a call to it that we are answering: the kernel lets nobody write to it until then, and who
    /// comes next asks. Not where others wait for their turn already: they, and who comes between them, do not. It is not lent again until
    /// what is given back is dropped: whoever looks at the file finds that there is plenty.
    pub(crate) fn ask_back_own(&self, node: &Arc<Node>) -> Outcome<Gathering<'_>> {
        let gathering = self.lender.gathers();
        {
            let mut open = node.open.lock();
            if open.grant.lent() == 0 {
                return Ok(gathering);
            }
            self.brake.engage(&mut open);
        }
        if self.refresh_behind(node) && !waiting::is_waited_for(self.file_of(node)) {
            self.ended_unseen(node)?;
        }
        Ok(gathering)
    }

    /// Asks back, for somebody who wanted so many bytes, what is lent to these files, which may keep them from him, and what was set
    /// aside for a write to them that asked. What was asked back long before is not waited for again: a call under way may take its time. Nor
    /// is the file that he is at: it comes back when he was answered, and is left alone where its limits have that much left.
    pub(crate) fn ask_back_for(&self, holders: &[Arc<Node>], own: Option<&Arc<Node>>, wanted: u64, patience: Duration) {
        let lends = |node: &Arc<Node>| {
            let open = node.open.lock();
            let in_vain = open.braked.is_some_and(|since| since.elapsed() > patience);
            open.backing.is_some() && (open.grant.lent() > 0 && !in_vain || open.grant.has_let_go())
        };
        let (mut own, lent): (Vec<_>, Vec<_>) =
            holders.iter().filter(|node| lends(node)).cloned().partition(|node| is_own(own, node));
        own.retain(|node| self.may_lack(node, wanted));
        if !own.is_empty() {
            self.ask_back(&own, Duration::ZERO);
        }
        if !lent.is_empty() {
            self.ask_back(&lent, patience);
        }
    }

    /// Asks back what is lent to these files, and waits until nothing is, for a while; for a write that asked no longer than most take.
    pub(crate) fn ask_back(&self, nodes: &[Arc<Node>], patience: Duration) {
        self.lender.asks_back();
        for node in nodes {
            self.brake.engage(&mut node.open.lock());
            self.refresh_first(node);
        }
        let began = Instant::now();
        let is_waited_for = |node: &Arc<Node>| {
            let open = node.open.lock();
            let patience = match () {
                () if open.grant.lent() > 0 => patience,
                () if open.grant.has_let_go() => patience.min(UNDER_WAY),
                () => return false,
            };
            began.elapsed() < patience
        };
        while nodes.iter().any(is_waited_for) {
            std::thread::sleep(PAUSE);
        }
        self.lender.asks_back();
    }

    /// Before a file that room is lent to can be mapped: all that is written to it asks from now on, as long as it is open.
    ///
    /// # Errors
    /// EBUSY while a write that began before does not end.
    pub(crate) fn ask_from_now_on(&self, node: &Arc<Node>) -> Outcome<()> {
        {
            let mut open = node.open.lock();
            match &mut open.backing {
                Some(backing) if backing.lends => backing.solid = true,
                _ => return Ok(()),
            }
        }
        self.ask_back(std::slice::from_ref(node), LONG_PATIENCE);
        if node.open.lock().grant.lent() > 0 { Err(Errno::EBUSY) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Pools, SpaceOptions};
    use ullage_catalog::{Catalog, CatalogNumbers, Limit, Subject};
    use ullage_kv::{EngineKind, Options, Store};
    use ullage_policy::choose::Spread;
    use ullage_pool::{NullPool, Numbers};
    use ullage_types::{Bytes, Generation, NodeId};

    struct NumbersOf(Arc<CatalogNumbers>);

    impl Numbers for NumbersOf {
        fn next(&self) -> (FileId, Generation) {
            self.0.pair()
        }
    }

    /// A space with a limit, and a file that may be lent room.
    pub(crate) fn lending(dir: &std::path::Path) -> (Arc<Space>, Arc<Node>) {
        let store = Arc::new(Store::open(dir, EngineKind::Memory, Options::default()).unwrap());
        let catalog = Catalog::open(store, 0, 0, crate::now()).unwrap();
        let pool = Arc::new(NullPool::new(Arc::new(NumbersOf(catalog.numbers()))).unwrap());
        let member = crate::PoolMember { id: PoolId(0), name: "null".into(), pool, reserve: Bytes(0), tree: None };
        let pools = Arc::new(Pools::new(vec![member], "first-fit".parse::<Spread>().unwrap(), None));
        let space = Space::new(catalog, pools, SpaceOptions::default());
        let limit = Limit { bytes: Some(8 << 30), inodes: None };
        space.set_limit(Subject::Directory(space.catalog.root().id), limit).unwrap();
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, _) = space.do_create(caller, NodeId(1), b"file", 0o600, 0, libc::O_WRONLY as u32).unwrap();
        let node = space.node(entry.node).unwrap();
        (space, node)
    }

    /// The same with a backing file on a disk, which is measured, and so much in it.
    pub(crate) fn lending_file(dir: &std::path::Path, bytes: usize) -> (Arc<Space>, Arc<Node>) {
        let (space, node) = lending(dir);
        let path = dir.join("backing");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        {
            let mut open = node.open.lock();
            let backing = open.backing.as_deref_mut().unwrap();
            backing.file = Arc::new(std::fs::File::options().write(true).open(&path).unwrap());
            backing.discards = false;
        }
        (space, node)
    }

    /// That took longer than [`AFTERWARDS`] on a busy machine: what had been asked back was lent again, and who had asked was refused.
    #[test]
    fn nothing_is_lent_anew_while_somebody_gathers_all_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let lends = || space.lend_more(&node, &mut node.open.lock()).unwrap();

        let alone = space.headroom.flow.write();
        assert!(!lends());
        drop(alone);
        assert!(lends());
        // More of what is lent already he asks back.
        let _alone = space.headroom.flow.write();
        assert!(lends());
    }

    /// Between the two a look at the file lent it again what its own allocation then lacked.
    #[test]
    fn what_a_call_asks_back_of_its_own_file_is_not_lent_again_before_it_is_alone() {
        for ask_back in [Space::ask_back_own, Space::ask_back_here] {
            let dir = tempfile::tempdir().unwrap();
            let (space, node) = lending(dir.path());
            let lends = || space.lend_more(&node, &mut node.open.lock()).unwrap();
            for _ in 0..2 {
                assert!(lends());
                let gathering = ask_back(&space, &node).unwrap();
                node.open.lock().grant.end_lending();
                space.record_measure(&node, &mut node.open.lock()).unwrap();
                assert!(!lends());
                drop(gathering);
            }
            space.brake.stop();
        }
    }

    /// He was refused at once, where a moment later there was room.
    #[test]
    fn who_finds_no_room_waits_for_what_is_being_asked_back_already() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        assert!(space.lend_more(&node, &mut node.open.lock()).unwrap());
        let holders = std::slice::from_ref(&node);
        space.brake.engage(&mut node.open.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                node.open.lock().grant.end_lending();
            });
            space.ask_back_for(holders, None, 8 << 30, Duration::from_secs(60));
            assert_eq!(node.open.lock().grant.lent(), 0);
        });
        std::thread::sleep(AFTERWARDS * 2);
        // One who does not end is waited for once.
        assert!(space.lend_more(&node, &mut node.open.lock()).unwrap());
        space.ask_back_for(holders, None, 8 << 30, Duration::from_millis(150));
        let began = Instant::now();
        space.ask_back_for(holders, None, 8 << 30, Duration::from_millis(150));
        assert!(began.elapsed() < Duration::from_millis(50));
    }

    /// All writes waited with him for one file, and those to that file too, for which it could not come back.
    #[test]
    fn others_go_on_while_somebody_waits_for_what_is_lent() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        assert!(space.lend_more(&node, &mut node.open.lock()).unwrap());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(space.alone_with_room(None, 8 << 30, Duration::from_secs(60))));
            while node.open.lock().braked.is_none() {
                std::thread::sleep(PAUSE);
            }
            std::thread::sleep(PAUSE * 100);
            assert!(space.headroom.flow.try_read().is_some() && !waiting.is_finished());
            node.open.lock().grant.end_lending();
            waiting.join().unwrap();
        });
        assert!(space.headroom.flow.try_read().is_some());
    }

    /// The kernel keeps the file's lock until he was answered: he waited until he gave up, and longer than who had set the limit.
    #[test]
    fn nobody_waits_for_what_is_lent_to_the_file_that_he_is_at() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        assert!(space.lend_more(&node, &mut node.open.lock()).unwrap());
        let began = Instant::now();
        space.ask_back_for(std::slice::from_ref(&node), Some(&node), 8 << 30, Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(node.open.lock().braked.is_some(), "who comes next asks");
    }
}
