//! The brake: what stops those who opened a file for writing before a limit bounded it.
//!
//! Such a file goes on being written in the kernel, where nobody asks us. But before the first write after any refresh of
//! its attributes the kernel asks whether it has file capabilities, which a write has to take away, and what we answer to
//! their removal is what write(2), splice(2) and sendfile(2) give back. So the file is measured many times a second; near
//! its limit every call is made to ask (`refresh.rs`), and refused where it may take more than is left. Stores into
//! mappings ask nobody.

use crate::grant::Taken;
use crate::node::Node;
use crate::refresh::Refreshers;
use crate::waiting::{self, Doing};
use crate::{Caller, Errno, Outcome, Space, sys};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the kernel asks for before it writes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Between two looks at the files that are watched: the shortest, and the longest while nobody writes.
const TICK: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(160);
/// Of the time that looks take, so much more is paused after them.
const REST: u32 = 9;
/// Who has so much left for each [`TICK`] of a pause is not asked, unless it may be used up in a few more at the rate of the last.
const NEAR: u64 = 64 << 20;
const LOOKS_AHEAD: u64 = 4;

#[derive(Default)]
struct Watched {
    nodes: Vec<Arc<Node>>,
    thread: Option<JoinHandle<()>>,
    /// Some were added since the last round began.
    added: bool,
    stop: bool,
}

/// The files that are watched, and the thread that does it while there are any.
#[derive(Default)]
pub(crate) struct Brake {
    watched: Mutex<Watched>,
    bell: Condvar,
    /// Files whose writes are to ask.
    engaged: AtomicUsize,
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
            watched.nodes.clear();
            watched.thread.take()
        };
        self.bell.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Whether it was ever needed.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    fn engage(&self, braked: &mut bool, on: bool) {
        match (std::mem::replace(braked, on), on) {
            (false, true) => _ = self.engaged.fetch_add(1, Relaxed),
            (true, false) => _ = self.engaged.fetch_sub(1, Relaxed),
            _ => {}
        }
    }
}

/// What a look at a file says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Nothing writes to it unseen any more, or no limit bounds it.
    Over,
    /// Nobody wrote.
    Idle,
    /// Somebody did, and there is room.
    Grew,
    /// The kernel is to be made to ask.
    Refresh,
}

impl Space {
    /// Watches files that are written unseen, and bound by a limit now. Those near it ask from now on, but for calls under way that last.
    pub(crate) fn brake_all(&self, nodes: &[Arc<Node>]) {
        self.watch_unseen(nodes);
        let near: Vec<_> = nodes.iter().filter(|node| self.look_or_say(node, TICK) == Look::Refresh).collect();
        let refreshers: Vec<_> = near.into_iter().map(|node| self.refresh(node)).collect();
        for refresher in refreshers {
            refresher.wait();
        }
    }

    /// The same for one whose attributes the kernel is about to be told, while it lets nobody write.
    pub(crate) fn brake(&self, node: &Arc<Node>) {
        self.look_or_say(node, TICK);
        self.watch_unseen(std::slice::from_ref(node));
    }

    fn watch_unseen(&self, nodes: &[Arc<Node>]) {
        let mut watched = self.brake.watched.lock();
        if watched.stop || nodes.is_empty() {
            return;
        }
        self.brake.used.store(true, Relaxed);
        for node in nodes {
            if !watched.nodes.iter().any(|known| Arc::ptr_eq(known, node)) {
                watched.nodes.push(node.clone());
            }
        }
        watched.added = true;
        self.brake.bell.notify_all();
        if watched.thread.is_none() {
            let own = self.own();
            let thread = std::thread::Builder::new().name("brake".into()).spawn(move || run(&own));
            watched.thread = Some(thread.expect("a thread can be started"));
        }
    }

    /// Measures a watched file, and engages the brake where little is left for it until the next look.
    fn look(&self, node: &Arc<Node>, pause: Duration) -> Outcome<Look> {
        let bounded = self.is_bounded(&node.inode)?;
        let mut open = node.open.lock();
        let unseen = open.writers > 0 && open.backing.as_ref().is_some_and(|backing| backing.unseen);
        if !unseen || !bounded {
            self.brake.engage(&mut open.braked, false);
            drop(open);
            self.ended_unseen(node)?;
            return Ok(Look::Over);
        }
        let blocks = |open: &crate::open_file::OpenFile| open.backing.as_ref().map(|it| it.baseline.blocks);
        let before = blocks(&open);
        self.record_measure(node, &mut open)?;
        let Some(backing) = &open.backing else { return Ok(Look::Over) };
        let pool = backing.pool;
        let grew = blocks(&open).zip(before).map_or(0, |(now, before)| now.saturating_sub(before) * 512);
        let least = NEAR * pause.as_nanos().div_ceil(TICK.as_nanos()) as u64;
        let near = least.max(grew.saturating_mul(LOOKS_AHEAD));
        let near = self.room_of(&node.inode, pool)?.is_some_and(|room| room < near);
        let engages = near && !open.braked;
        self.brake.engage(&mut open.braked, near);
        Ok(match () {
            () if engages || open.let_go.is_some() || near && grew > 0 => Look::Refresh,
            () if grew > 0 => Look::Grew,
            () => Look::Idle,
        })
    }

    fn look_or_say(&self, node: &Arc<Node>, pause: Duration) -> Look {
        self.look(node, pause).unwrap_or_else(|error| {
            tracing::error!("inode {} could not be measured: {error:?}", node.inode.id);
            self.brake.engage(&mut node.open.lock().braked, false);
            Look::Over
        })
    }

    /// Whether the kernel is to be told that a file has capabilities, so that it asks to remove them.
    pub(crate) fn asks_first(&self, node: &Node, name: &[u8], size: u32) -> bool {
        size == 0 && name == CAPABILITY && self.brake.engaged.load(Relaxed) > 0 && node.open.lock().braked
    }

    /// Lets what makes the kernel remove capabilities go on. Gives back whether the brake made it ask.
    ///
    /// # Errors
    /// EDQUOT or ENOSPC when it is a write that may take more than there is room for.
    pub(crate) fn passes_brake(&self, caller: Caller, node: &Arc<Node>) -> Outcome<bool> {
        if self.brake.engaged.load(Relaxed) == 0 || !node.open.lock().braked {
            return Ok(false);
        }
        let Doing::Writing(length) = waiting::doing(caller.pid) else { return Ok(true) };
        let outcome = {
            let _flow = self.headroom.flow.read();
            self.let_write(node, length)
        };
        match outcome {
            Err(Errno::EDQUOT | Errno::ENOSPC) => {
                let _alone = self.headroom.flow.write();
                self.return_held();
                self.let_write(node, length)?;
            }
            outcome => outcome?,
        }
        self.refresh_behind(node);
        Ok(true)
    }

    /// Sets aside what a write unseen may take, a block where its length is not known, until it is known to be over.
    fn let_write(&self, node: &Arc<Node>, length: Option<u64>) -> Outcome<()> {
        self.ended_unseen(node)?;
        let (pool, counting) = {
            let open = node.open.lock();
            let Some(backing) = &open.backing else { return Ok(()) };
            (backing.pool, self.pools.blocks(backing.pool).counting(backing.baseline.block))
        };
        // Nobody tells where: at worst it begins with the last byte of a block.
        let need = length.map_or(counting.block, |length| counting.worst(counting.block - 1, length));
        self.take_just(node, pool, need)?;
        node.open.lock().let_go = Some(need);
        Ok(())
    }

    /// No write unseen is under way: who was let go on has written what he will.
    pub(crate) fn ended_unseen(&self, node: &Arc<Node>) -> Outcome<()> {
        let mut open = node.open.lock();
        if let Some(need) = open.let_go.take() {
            open.grant.ended(Taken::Held(need));
        }
        self.record_measure(node, &mut open)
    }
}

fn run(weak: &Weak<Space>) {
    // It must get its turn while others take all there is.
    sys::go_first();
    let mut pause = TICK;
    loop {
        let Some(space) = weak.upgrade() else { return };
        let nodes = {
            let mut watched = space.brake.watched.lock();
            if watched.nodes.is_empty() {
                watched.thread = None;
                return;
            }
            watched.added = false;
            watched.nodes.clone()
        };
        let (began, mut idle, mut over) = (Instant::now(), true, Vec::new());
        for node in nodes {
            // The next pause may be twice as long.
            let look = space.look_or_say(&node, pause * 2);
            idle &= matches!(look, Look::Idle | Look::Over);
            match look {
                Look::Idle | Look::Grew => {}
                Look::Refresh => _ = space.refresh(&node),
                Look::Over => over.push(node),
            }
        }
        pause = if idle { LONGEST.min(pause * 2) } else { TICK }.max(began.elapsed() * REST);
        let mut watched = space.brake.watched.lock();
        watched.nodes.retain(|node| !over.iter().any(|gone| Arc::ptr_eq(gone, node)));
        if !watched.stop && !watched.added {
            space.brake.bell.wait_for(&mut watched, pause);
        }
        if watched.added {
            pause = TICK;
        }
    }
}
