//! Emptying a pool: its files go to the others one by one, in the background, while everybody works on.
//!
//! The pool takes no files from then on, and what of it is opened comes to the server, so that it can go while it is open (`away.rs`). What
//! somebody has had open in the kernel since before is waited for. Whoever changes a file that is being copied is not held up: that copy is
//! thrown away.

use super::pool_of;
use crate::node::Node;
use crate::open_file::handle;
use crate::{Errno, Outcome, Space, threads};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_types::{Bytes, FileId, PoolId};

/// Between two rounds over what was in use: the first, and the longest, which comes to be where nothing can be moved.
const PAUSES: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));
/// Between two searches for files, which go through the whole catalog: so many times what one takes, and at least so long.
const IDLE: (u32, Duration) = (20, Duration::from_secs(5));
/// So many files go at a time that take no more than this: together no more than what a pool must have beside what comes to it.
const AT_ONCE: usize = 4;
pub(crate) const SMALL: Bytes = Bytes(1 << 20);
/// So many files that are in use are told by name.
const NAMED: usize = 5;
/// At the end a copy is given so long to notice that.
const PATIENCE: Duration = Duration::from_secs(2);

/// How far the emptying of a pool has come.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Files that went to other pools, and what these take.
    pub moved: (u64, Bytes),
    /// Files that are still there, and what these take; none until they were looked for.
    pub left: Option<(u64, Bytes)>,
    /// Those of them that somebody was at in the last round.
    pub in_use: u64,
    /// The first of those.
    pub in_use_first: Vec<FileId>,
    /// Those that could not be moved then, and why the last of them.
    pub failed: (u64, Option<String>),
    /// No other pool had room for some.
    pub lacks_room: bool,
}

/// A pool that is being emptied.
pub(crate) struct Drain {
    space: Weak<Space>,
    pool: PoolId,
    shared: Mutex<Shared>,
    bell: Condvar,
}

#[derive(Default)]
struct Shared {
    now: Drained,
    stop: bool,
}

impl Drain {
    /// Whether more is to be moved.
    pub(crate) fn goes_on(&self) -> bool {
        !self.shared.lock().stop
    }

    fn stop(&self) {
        self.shared.lock().stop = true;
        self.bell.notify_all();
    }

    /// Whether it goes on after a pause.
    fn pause(&self, length: Duration) -> bool {
        let mut shared = self.shared.lock();
        if !shared.stop {
            self.bell.wait_for(&mut shared, length);
        }
        !shared.stop
    }

    fn run(&self) {
        loop {
            let began = Instant::now();
            let Some(found) = self.space.upgrade().map(|space| space.catalog.lies_in(self.pool)) else { return };
            let idle = (began.elapsed() * IDLE.0).max(IDLE.1);
            let mut files = match found {
                Ok(files) => files,
                Err(error) => {
                    let failed = (1, Some(error.to_string()));
                    self.shared.lock().now = Drained { failed, left: None, ..Drained::default() };
                    if self.pause(idle) {
                        continue;
                    }
                    return;
                }
            };
            self.shared.lock().now.left = Some(sum(&files));
            let mut pause = PAUSES.0;
            while !files.is_empty() {
                let before = files.len();
                match self.round(files) {
                    Some(rest) => files = rest,
                    None => return,
                }
                pause = if files.len() < before { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
                if !files.is_empty() && !self.pause(pause) {
                    return;
                }
            }
            // What was being made there while that began.
            if !self.pause(idle) {
                return;
            }
        }
    }

    /// Goes over files that lie in a pool; gives back those that stay there for now, or nothing at the end. Of small ones several go at a time: each
    /// waits for flushes, which they share.
    fn round(&self, files: Vec<(FileId, Bytes)>) -> Option<Vec<(FileId, Bytes)>> {
        let (small, large): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, bytes)| *bytes <= SMALL);
        let tally = Mutex::new(Tally::default());
        let small = Mutex::new(small.into_iter());
        let next = || small.lock().next();
        let work = || while next().is_some_and(|file| self.one(file, &tally)) {};
        std::thread::scope(|scope| {
            for _ in 1..AT_ONCE {
                // Where there can be no more threads, this one does it all.
                let _ = std::thread::Builder::new().name("drain".into()).spawn_scoped(scope, work);
            }
            work();
        });
        if !large.into_iter().all(|file| self.one(file, &tally)) || !self.goes_on() {
            return None;
        }
        let Tally { stay, in_use, in_use_first, failed, lacks_room } = tally.into_inner();
        let mut shared = self.shared.lock();
        shared.now = Drained { in_use, in_use_first, failed, lacks_room, ..shared.now.clone() };
        Some(stay)
    }

    /// Whether there may be another one.
    fn one(&self, (file, counted): (FileId, Bytes), tally: &Mutex<Tally>) -> bool {
        let Some(space) = self.space.upgrade().filter(|_| self.goes_on()) else { return false };
        let step = space.drain_one(file, self);
        let mut shared = self.shared.lock();
        if shared.stop {
            return false;
        }
        let now = &mut shared.now;
        let mut tally = tally.lock();
        match step {
            Ok(step @ (Step::Moved(_) | Step::Gone)) => {
                if let Step::Moved(bytes) = step {
                    now.moved = (now.moved.0 + 1, now.moved.1 + bytes);
                }
                now.left = now.left.map(|(files, bytes)| (files - 1, bytes.saturating_sub(counted)));
                return true;
            }
            Ok(Step::InUse) => {
                tally.in_use += 1;
                if tally.in_use_first.len() < NAMED {
                    tally.in_use_first.push(file);
                }
            }
            Ok(Step::LacksRoom) => tally.lacks_room = true,
            Err(error) => {
                if now.failed.0 == 0 && tally.failed.0 == 0 {
                    tracing::warn!("inode {file} stays in a pool that is to be emptied: {error:?}");
                }
                tally.failed = (tally.failed.0 + 1, Some(io::Error::from_raw_os_error(error.0).to_string()));
            }
        }
        tally.stay.push((file, counted));
        true
    }
}

/// One of them, and who does it.
struct Running {
    drain: Arc<Drain>,
    thread: JoinHandle<()>,
}

/// All pools of a space that are being emptied.
#[derive(Default)]
pub(crate) struct Drains(Mutex<All>);

#[derive(Default)]
struct All {
    running: Vec<Running>,
    /// Those that were told to leave off: they may still be at a file.
    leaving: Vec<JoinHandle<()>>,
    /// The space ends, and none begins.
    over: bool,
}

impl Drains {
    /// Ends them, for good; whether they are at nothing any more. A disk that hangs is not waited for.
    pub(crate) fn stop(&self) -> bool {
        let mut threads = {
            let mut all = self.0.lock();
            all.over = true;
            let running = std::mem::take(&mut all.running);
            for Running { drain, .. } in &running {
                drain.stop();
            }
            let mut threads = std::mem::take(&mut all.leaving);
            threads.extend(running.into_iter().map(|running| running.thread));
            threads
        };
        let until = Instant::now() + PATIENCE;
        loop {
            threads.retain(|thread| !thread.is_finished());
            if threads.is_empty() || Instant::now() >= until {
                return threads.is_empty();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What became of a file.
enum Step {
    Moved(Bytes),
    InUse,
    /// It is not there any more.
    Gone,
    LacksRoom,
}

impl Space {
    /// Empties a pool in the background, until [`Space::stop_draining`]: what comes back to it by a crash goes too.
    ///
    /// # Errors
    /// Where no thread can be started, or the space ends. The pool takes files as before then.
    pub fn drain(&self, pool: PoolId) -> io::Result<()> {
        let mut all = self.drains.0.lock();
        if all.over {
            return Err(io::Error::other("the space is about to end"));
        }
        if all.running.iter().any(|other| other.drain.pool == pool) {
            return Ok(());
        }
        let drain = Drain { space: self.own(), pool, shared: Mutex::default(), bell: Condvar::default() };
        let drain = Arc::new(drain);
        let own = drain.clone();
        self.pools.set_draining(pool, true);
        match threads::start("drain", move || own.run()) {
            Ok(thread) => all.running.push(Running { drain, thread }),
            Err(error) => {
                self.pools.set_draining(pool, false);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has a pool take files again. What has left it stays where it is.
    pub fn stop_draining(&self, pool: PoolId) {
        self.pools.set_draining(pool, false);
        let mut all = self.drains.0.lock();
        all.leaving.retain(|thread| !thread.is_finished());
        if let Some(at) = all.running.iter().position(|running| running.drain.pool == pool) {
            let Running { drain, thread } = all.running.swap_remove(at);
            drain.stop();
            all.leaving.push(thread);
        }
    }

    /// How far the emptying of a pool has come, where it is being emptied.
    pub fn drained(&self, pool: PoolId) -> Option<Drained> {
        let all = self.drains.0.lock();
        all.running
            .iter()
            .find(|running| running.drain.pool == pool)
            .map(|running| running.drain.shared.lock().now.clone())
    }

    /// Moves one file.
    fn drain_one(&self, file: FileId, drain: &Drain) -> Outcome<Step> {
        let inode = match self.catalog.get(file) {
            Ok(inode) => inode,
            Err(ullage_catalog::Error::NotFound) => return Ok(Step::Gone),
            Err(error) => return Err(error.into()),
        };
        // As if the kernel had looked it up: what is removed meanwhile goes when that is over.
        let node = self.nodes.enter(inode);
        let step = self.drain_held(&node, drain);
        self.forget_node(node.id, 1);
        step
    }

    fn drain_held(&self, node: &Arc<Node>, drain: &Drain) -> Outcome<Step> {
        let from = drain.pool;
        if node.inode.lock().is_removed() || pool_of(&node.inode) != Some(from) {
            return Ok(Step::Gone);
        }
        if !self.open_to_move(node)? {
            return Ok(Step::InUse);
        }
        let bytes = Bytes(node.inode.lock().record.blocks * 512);
        let moved = self.move_away(node, from, 0, Some(drain));
        let removed = node.inode.lock().record.nlink == 0;
        self.do_release(node.id, handle(self.next_serial(), false, false))?;
        match moved {
            Ok(true) => Ok(Step::Moved(bytes)),
            // It goes now, or with who has it open.
            _ if removed => Ok(Step::InUse),
            Ok(false) if self.pools.roomiest_beside(from, bytes.0).is_none() => Ok(Step::LacksRoom),
            Ok(false) => Ok(Step::InUse),
            Err(error) => Err(error),
        }
    }

    /// Opens a file as a reader of the server's does; not where the kernel has it open or mapped. Times that it was given and has not yet are
    /// the copy's: given to it now, they would have it changed a moment ago.
    fn open_to_move(&self, node: &Arc<Node>) -> Outcome<bool> {
        let mut open = node.open.lock();
        let in_kernel = open.backing.as_deref().is_some_and(|backing| backing.registered.is_some());
        if open.handles > 0 && in_kernel {
            return Ok(false);
        }
        match self.back_as_it_is(node, &mut open, true) {
            // A disk that has failed is often left so, and all that is on it can be read.
            Err(Errno::EROFS) => self.back_as_it_is(node, &mut open, false)?,
            backed => backed?,
        }
        let handles = open.handles;
        let backing = open.backing.as_deref_mut().ok_or(Errno::EBADF)?;
        if handles == 0 && self.is_held(backing) {
            self.settler.push(node, &mut open);
            return Ok(false);
        }
        open.handles += 1;
        Ok(true)
    }
}

fn sum(files: &[(FileId, Bytes)]) -> (u64, Bytes) {
    (files.len() as u64, files.iter().map(|(_, bytes)| *bytes).sum())
}

/// What is found in a round.
#[derive(Default)]
struct Tally {
    stay: Vec<(FileId, Bytes)>,
    in_use: u64,
    in_use_first: Vec<FileId>,
    failed: (u64, Option<String>),
    lacks_room: bool,
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
