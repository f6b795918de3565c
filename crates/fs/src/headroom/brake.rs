//! The brake: what stops those who opened a file for writing before a limit bounded it.
//!
//! Such a file goes on being written in the kernel, where nobody asks us. But before the first write after any refresh of
//! its attributes (`refresh.rs`), and before every one to a file that is marked (`mark.rs`), the kernel asks whether it has file
//! capabilities, which a write has to take away, and what we answer to their removal is what write(2), splice(2) and
//! sendfile(2) give back. So the file is measured many times a second; near its limit every call asks, in its turn, and is refused where it
//! may take more than is left. Stores into mappings ask nobody.

use super::fence::is_enclosed;
use super::refresh::{Refresher, Refreshers};
use super::taking::AtOnce;
use crate::node::Node;
use crate::open_file::{OpenBacking, OpenFile};
use crate::{Outcome, Space, sys, threads};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_policy::headroom::BETWEEN_LOOKS;

/// Between two looks at the files that are watched: the shortest, and the longest while nobody writes.
const TICK: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(160);
/// How long a look among many waits for who works on the file, so that one whose disk is slow does not keep the others waiting.
const BUSY: Duration = Duration::from_millis(1);
/// And one that somebody waits for.
const LONG: Duration = Duration::from_secs(2);
/// How long rounds are waited for that pass over none: a disk may hang.
const PASSES_OVER: Duration = Duration::from_millis(300);
/// How long is waited for the calls under way that a new limit does not bind: on a starved machine the server gets its turn late.
const ENDS_BY: Duration = Duration::from_secs(10);
/// How long the thread waits for something to watch before it looks whether it is still needed.
const ASLEEP: Duration = Duration::from_millis(500);
/// Of the time that looks take, so much more is paused after them.
const REST: u32 = 9;
/// Who has so much left for each [`TICK`] of a pause is not asked, unless it may be used up in a few more at the rate of the last.
const NEAR: u64 = 64 << 20;
const LOOKS_AHEAD: u64 = 4;

#[derive(Default)]
struct Watched {
    /// Those that came since the last round.
    new: Vec<Arc<Node>>,
    thread: Option<JoinHandle<()>>,
    /// Nothing is watched, and the thread waits until something is.
    asleep: bool,
    /// The next round is not to wait for its time.
    now: bool,
    /// Rounds that were begun, and that are over.
    begun: u64,
    over: u64,
    /// What they had refreshed, and is not done.
    asked: Vec<Arc<Refresher>>,
    /// Files that the last one passed over, since somebody worked on them.
    passed_over: usize,
    stop: bool,
}

/// The files that are watched, and the thread that does it.
#[derive(Default)]
pub(crate) struct Brake {
    watched: Mutex<Watched>,
    bell: Condvar,
    /// Files whose writes are to ask.
    engaged: AtomicUsize,
    /// A round is over.
    told: Condvar,
    pub at_once: AtOnce,
    /// Some file is watched.
    watches: AtomicBool,
    /// Some file was watched since the start.
    used: AtomicBool,
    pub refreshers: Refreshers,
}

impl Brake {
    /// Ends the thread. Nobody is stopped any more.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut watched = self.watched.lock();
            watched.stop = true;
            watched.new.clear();
            watched.thread.take()
        };
        self.bell.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.refreshers.stop();
    }

    /// Has all that is watched looked at once more, from the first file to the last, or waits until then. Gives back what had the kernel ask before
    /// writes, and may not be done.
    pub(crate) fn look_now(&self, until: Instant) -> Vec<Arc<Refresher>> {
        let passes_over = Instant::now() + PASSES_OVER;
        let mut watched = self.watched.lock();
        loop {
            let round = watched.begun + 1;
            watched.now = true;
            self.bell.notify_all();
            while watched.over < round && !watched.asleep && !watched.stop && watched.thread.is_some() {
                if self.told.wait_until(&mut watched, until).timed_out() {
                    return watched.asked.clone();
                }
            }
            if watched.over < round || watched.passed_over == 0 || Instant::now() >= passes_over {
                return watched.asked.clone();
            }
        }
    }

    /// Whether any file is watched.
    pub(crate) fn watches(&self) -> bool {
        self.watches.load(Relaxed)
    }

    /// Whether it was ever needed.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// What is written to a file is to ask.
    pub(crate) fn engage(&self, open: &mut OpenFile) {
        if open.braked.is_none() {
            open.braked = Some(Instant::now());
            self.engaged.fetch_add(1, Relaxed);
        }
    }

    /// Whether any file's writes are to ask.
    pub(crate) fn is_engaged(&self) -> bool {
        self.engaged.load(Relaxed) > 0
    }

    /// It need not any more.
    pub(crate) fn release(&self, open: &mut OpenFile) {
        if open.braked.take().is_some() {
            self.engaged.fetch_sub(1, Relaxed);
        }
    }

    fn set(&self, open: &mut OpenFile, on: bool) {
        if on { self.engage(open) } else { self.release(open) }
    }
}

/// What a look at a file says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Nothing writes to it unseen any more, or no limit bounds it.
    Over,
    /// Somebody works on it.
    Busy,
    /// Nobody wrote.
    Idle,
    /// Somebody did, and there is room.
    Grew,
    /// The kernel is to be made to ask.
    Refresh,
}

impl Look {
    /// Of a file that grew by so much, and that is from now on to ask or not.
    fn of(engages: bool, open: &OpenFile, grew: u64) -> Self {
        match () {
            () if engages || open.grant.has_let_go() || open.braked.is_some() && grew > 0 => Self::Refresh,
            () if grew > 0 => Self::Grew,
            () => Self::Idle,
        }
    }
}

impl Space {
    /// Watches files that are written unseen, and bound by a limit now. Those near it ask from now on, but for calls under way that last.
    pub(crate) fn brake_all(&self, nodes: &[Arc<Node>]) {
        self.watch_unseen(nodes);
        let near: Vec<_> = nodes.iter().filter(|node| self.look_or_say(node, TICK, LONG) == Look::Refresh).collect();
        let refreshers: Vec<_> = near.into_iter().map(|node| self.refresh(node)).collect();
        let until = Instant::now() + ENDS_BY;
        for refresher in refreshers {
            refresher.wait(until);
        }
    }

    /// The same for one whose attributes the kernel is about to be told, while it lets nobody write.
    pub(crate) fn brake(&self, node: &Arc<Node>) {
        self.watch_unseen(std::slice::from_ref(node));
        self.look_or_say(node, TICK, LONG);
    }

    fn watch_unseen(&self, nodes: &[Arc<Node>]) {
        for node in nodes {
            if !std::mem::replace(&mut node.open.lock().watched, true) {
                self.look_after(Some(node));
            }
        }
        self.brake.watched.lock().now = true;
        self.brake.bell.notify_all();
    }

    /// Has a file looked at again and again, which says so itself; without one, has the thread found out what it can.
    pub(crate) fn look_after(&self, node: Option<&Arc<Node>>) {
        let mut watched = self.brake.watched.lock();
        if watched.stop {
            return;
        }
        if node.is_some() {
            self.brake.watches.store(true, Relaxed);
        }
        watched.new.extend(node.cloned());
        // Who was lent room can wait until its time: waking it would cost more than all the rest.
        if std::mem::take(&mut watched.asleep) {
            self.brake.bell.notify_all();
        }
        if let Err(error) = self.begin_looks(&mut watched) {
            tracing::error!("files are not kept within their limits until a thread can be started for that: {error}");
        }
    }

    /// Starts the thread, unless it was started before.
    fn begin_looks(&self, watched: &mut Watched) -> io::Result<()> {
        if watched.thread.is_none() && !watched.stop {
            self.brake.used.store(true, Relaxed);
            let own = self.own();
            watched.thread = Some(threads::start("brake", move || run(&own))?);
        }
        Ok(())
    }

    /// The same where something waits for it, since it could not be started then.
    pub(crate) fn begin_missed_looks(&self) {
        let mut watched = self.brake.watched.lock();
        if watched.thread.is_none() && !watched.new.is_empty() {
            let _ = self.begin_looks(&mut watched);
        }
    }

    /// Before a limit bounds files that are written unseen: somebody is there to look at them.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn can_look(&self) -> io::Result<()> {
        let is_unseen = |open: &OpenFile| open.backing.as_deref().is_some_and(|backing| backing.unseen);
        let may_be_unseen = |node: &Arc<Node>| node.open.try_lock().is_none_or(|open| is_unseen(&open));
        if self.uses_passthrough() && self.nodes.all().iter().any(may_be_unseen) {
            self.begin_looks(&mut self.brake.watched.lock())?;
        }
        Ok(())
    }

    /// Measures a watched file, and engages the brake where little is left for it until the next look.
    fn look(&self, node: &Arc<Node>, pause: Duration, busy: Duration) -> Outcome<Look> {
        let unseen = |open: &OpenFile| {
            (open.writers > 0 || open.is_fenced()) && open.backing.as_deref().is_some_and(|backing| backing.unseen)
        };
        let Some(mut open) = node.open.try_lock_for(busy) else { return Ok(Look::Busy) };
        // Asked with the lock held: who opens the file, or has been told of a limit, counts on being looked after as long as this is not over.
        let waits = unseen(&open);
        if !waits || !self.is_bounded(&node.inode)? {
            self.brake.release(&mut open);
            self.end_lending(&mut open, true);
            if waits {
                self.lift_fence(&mut open);
            }
            open.watched = false;
            drop(open);
            self.ended_unseen(node)?;
            return Ok(Look::Over);
        }
        let blocks = |open: &crate::open_file::OpenFile| open.backing.as_deref().map(|it| it.baseline.blocks);
        let before = blocks(&open);
        self.record_measure(node, &mut open)?;
        let Some(backing) = &open.backing else { return Ok(Look::Over) };
        let pool = backing.pool;
        let grew = blocks(&open).zip(before).map_or(0, |(now, before)| now.saturating_sub(before) * 512);
        if open.lends() {
            return self.look_lent(node, &mut open, grew);
        }
        let least = self.brake.at_once.now() + NEAR * pause.as_nanos().div_ceil(TICK.as_nanos()) as u64;
        let near = least.max(grew.saturating_mul(LOOKS_AHEAD));
        let near = self.room_of(&node.inode, pool)?.is_some_and(|room| room < near);
        let engages = near && open.braked.is_none();
        self.brake.set(&mut open, near);
        Ok(Look::of(engages, &open, grew))
    }

    /// The same for a file that room is lent to: it asks when that is to be given back, until there is plenty again.
    fn look_lent(&self, node: &Arc<Node>, open: &mut OpenFile, grew: u64) -> Outcome<Look> {
        let fenced = open.is_fenced();
        // A limit was lifted, and another one set before anybody looked.
        let bare = fenced && !is_enclosed(open) && !self.enclose(open);
        let ends = |backing: &OpenBacking| backing.solid || backing.mappable && !fenced || backing.outgrows();
        let ends = bare || open.backing.as_deref().is_some_and(ends);
        // What is asked back is lent again only when it has come back.
        let waits = open.braked.is_some() && open.grant.lent() > 0;
        let lent = !ends && !waits && self.lender.is_able() && self.lend_more(node, open).unwrap_or(false);
        let engages = !lent && (open.braked.is_none() || waits);
        self.brake.set(open, !lent);
        if fenced && !lent && !engages {
            self.hold_for_holes(node, open)?;
        }
        Ok(Look::of(engages, open, grew))
    }

    /// The same where that may fail: a file that cannot be measured asks before each write until it can.
    fn look_or_say(&self, node: &Arc<Node>, pause: Duration, busy: Duration) -> Look {
        self.look(node, pause, busy).unwrap_or_else(|error| {
            let mut open = node.open.lock();
            if !open.watched {
                node.not_measured(error);
                return Look::Over;
            }
            if open.braked.is_some() {
                return Look::Idle;
            }
            node.not_measured(error);
            self.brake.engage(&mut open);
            Look::Refresh
        })
    }
}

fn run(weak: &Weak<Space>) {
    // It must get its turn while others take all there is.
    let first = sys::go_first();
    if let Some(space) = weak.upgrade() {
        space.start_refreshers();
        space.try_lending(first);
    }
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut pause = TICK;
    loop {
        let Some(space) = weak.upgrade() else { return };
        {
            let mut watched = space.brake.watched.lock();
            if watched.stop {
                return;
            }
            if nodes.is_empty() && watched.new.is_empty() {
                watched.asleep = true;
                space.brake.watches.store(false, Relaxed);
                space.brake.told.notify_all();
                space.brake.bell.wait_for(&mut watched, ASLEEP);
                watched.asleep = false;
            }
            if std::mem::take(&mut watched.now) {
                pause = TICK;
            }
            nodes.append(&mut watched.new);
            watched.begun += 1;
            space.brake.at_once.looks_begin();
        }
        let mut asked = Vec::new();
        let (began, mut idle, mut lends, mut passed_over) = (Instant::now(), true, false, 0);
        let longest = pause * 2;
        nodes.retain(|node| {
            let look = space.look_or_say(node, longest, BUSY);
            passed_over += usize::from(look == Look::Busy);
            let (in_vain, lent) =
                node.open.try_lock_for(BUSY).map_or((false, true), |mut open| (open.asks_in_vain(), open.lends()));
            if look == Look::Refresh || in_vain {
                asked.push(space.refresh(node));
            }
            idle &= matches!(look, Look::Idle | Look::Over);
            lends |= lent;
            look != Look::Over
        });
        // No longer than what is left for each was looked at for.
        pause = if idle { LONGEST } else { TICK }.max(began.elapsed() * REST).min(longest);
        if lends {
            pause = pause.min(BETWEEN_LOOKS);
        }
        let mut watched = space.brake.watched.lock();
        watched.over = watched.begun;
        watched.passed_over = passed_over;
        watched.asked.retain(|refresher| !refresher.is_done());
        watched.asked.extend(asked);
        space.brake.told.notify_all();
        if !watched.stop && !watched.now {
            space.brake.bell.wait_for(&mut watched, pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Filesystem;
    use crate::headroom::lend::tests::lending;
    use crate::threads::tests::NONE_LEFT;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};
    use ullage_types::{FileId, NodeId, PoolId};

    /// What is held for a file goes with it, but that somebody was let go on was remembered: the thread that looks after such files
    /// ended that write once more than it had begun, and itself.
    #[test]
    fn a_file_that_is_removed_while_a_write_to_it_goes_on_unseen_is_looked_at_once_more() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        space.take_just(&node, PoolId(0), 4096).unwrap();
        node.open.lock().grant.let_go(4096);
        space.unlink(NodeId(1), b"file").unwrap();
        let writes = crate::open_file::handle(0, true, false);
        space.release(node.id, writes);
        space.forget_node(node.id, 1);
        assert!(!node.open.lock().grant.is_under_way(), "it is gone");
        space.ended_unseen(&node).unwrap();
        assert!(!node.open.lock().grant.is_under_way());
    }

    /// It ended the process, and whoever opened a limited file for writing could bring that about.
    #[test]
    fn who_opens_a_file_while_no_thread_can_be_started_gets_it_and_it_is_looked_at_as_soon_as_one_can() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let is_looked_at = || space.brake.watched.lock().thread.is_some();
        NONE_LEFT.set(true);
        space.look_after(None);
        space.look_after(Some(&node));
        space.start_refreshers();
        assert!(!is_looked_at() && space.refresh(&node).is_done(), "nobody waits for who was never started");
        NONE_LEFT.set(false);
        let until = Instant::now() + Duration::from_secs(20);
        while !is_looked_at() {
            assert!(Instant::now() < until, "it is never looked at");
            std::thread::sleep(Duration::from_millis(10));
        }
        space.brake.stop();
    }

    /// Closed before that thread came by, it kept what was set aside for the write.
    #[test]
    fn nothing_stays_set_aside_for_a_write_unseen_once_nobody_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        space.take_just(&node, PoolId(0), 4096).unwrap();
        let mut open = node.open.lock();
        open.grant.let_go(4096);
        assert!(open.grant.is_under_way());
        space.ends_unseen(&mut open);
        assert!(!open.grant.is_under_way());
        assert_eq!(open.grant.excess(), open.grant.held, "the next measurement lets go of it");
    }

    /// Somebody worked on a file for a moment, and what another took meanwhile was more than was left for that one.
    #[test]
    fn who_takes_much_at_once_waits_for_who_works_on_a_file_that_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        space.watch_unseen(std::slice::from_ref(&node));
        let (holds, done) = (std::sync::Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let works = node.open.lock();
                holds.wait();
                std::thread::sleep(Duration::from_millis(50));
                done.store(true, Relaxed);
                drop(works);
            });
            holds.wait();
            let taking = space.before_taking(8 << 30).unwrap();
            assert!(done.load(Relaxed), "it was passed over");
            assert!(taking.is_some() && node.open.lock().braked.is_some(), "it asks from now on");
        });
        // One that stands still is not waited for without end.
        let works = node.open.lock();
        let began = Instant::now();
        drop(space.before_taking(8 << 30).unwrap());
        assert!(began.elapsed() < Duration::from_secs(20));
        drop(works);
        space.brake.stop();
    }

    /// Room was lent to who opened it, or a limit was set, between the answer and what was made of it: written in the kernel, it was looked
    /// at no more.
    #[test]
    fn a_look_finds_out_whether_a_file_is_bounded_while_nobody_can_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        let asks = node.inode.lock();
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| space.look(&node, super::TICK, super::LONG).unwrap());
            let until = Instant::now() + Duration::from_secs(20);
            let mut in_turn = 0;
            while in_turn < 20 {
                assert!(Instant::now() < until, "it asks without the file's lock");
                in_turn = if node.open.is_locked() { in_turn + 1 } else { 0 };
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(asks);
            assert!(looks.join().unwrap() != super::Look::Over);
        });
    }

    /// Its disk had failed once, or its directory was removed when it had just left that: it was written as if there were no limit.
    #[test]
    fn a_file_that_cannot_be_measured_asks_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        node.open.lock().backing.as_deref_mut().unwrap().unseen = true;
        node.open.lock().watched = true;
        let look = || space.look_or_say(&node, super::TICK, super::LONG);
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        assert!(look() == super::Look::Refresh, "the kernel is made to ask");
        assert!(look() == super::Look::Idle && node.open.lock().watched && node.open.lock().braked.is_some());
        node.inode.lock().record.parent = parent;
        look();
        assert!(node.open.lock().watched && node.open.lock().braked.is_none());
    }

    /// It waited for the lock of one whose disk was slow, and the others passed their limits meanwhile.
    #[test]
    fn a_file_that_somebody_works_on_keeps_no_other_from_being_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (space, slow) = lending(dir.path());
        let caller = crate::Caller { uid: 0, gid: 0, pid: 1 };
        let (entry, _) = space.do_create(caller, NodeId(1), b"other", 0o600, 0, libc::O_WRONLY as u32).unwrap();
        let other = space.node(entry.node).unwrap();
        let works = slow.open.lock();
        space.look_after(Some(&slow));
        for _ in 0..20 {
            other.open.lock().watched = true;
            space.look_after(Some(&other));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while other.open.lock().watched {
                assert!(std::time::Instant::now() < until, "the other one is not looked at");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        drop(works);
        space.brake.stop();
    }
}
