//! The catalog's copy in the pools: a snapshot, and tails of what changed since, written by a thread of its own
//! (DESIGN, invariant 6).
//!
//! `POOL/.ullage-mirror` holds `space.toml` and generations, each a snapshot `TIME-NONCE.snapshot` and its tails
//! `TIME-NONCE.1.tail`, `….2.tail` in order. Each file is written under another name, flushed, and renamed, so that one
//! that is there is whole. The newest two generations are kept. A tail costs what changed; a new snapshot is begun when
//! the tails together have outgrown the last one, so that all writing stays within a small multiple of what changes.

mod annotate;
mod copies;
mod files;
mod inbox;
mod place;
mod writer;

pub(crate) use files::DIRECTORY as IN_POOL;
pub(crate) use files::{
    Generation, generations, is_only_holder, known_settings, last_tail, newest_tail, read_settings, renew_settings,
};

use crate::turns::Turns;
use crate::{OpenSpace, PoolSettings, Result, SpaceSettings};
use copies::Rest;
use inbox::{Inbox, KEPT_MAX, Turn};
use parking_lot::Mutex;
pub(crate) use place::Left;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_fs::Space;
use ullage_kv::{Durable, Follow, Seq, Store, Tail};
use ullage_types::PoolId;
use writer::Writer;

/// Tails smaller than this together never cause a new snapshot, in bytes.
const TAILS_MIN: u64 = 1 << 20;
/// So many tails always do: each is a file to be read.
const TAILS_MAX: u64 = 512;

/// The mirror of an open space.
pub(crate) struct Mirror {
    inbox: Arc<Inbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mirror {
    /// Starts mirroring every so many seconds; none when the settings say 0, or there is no pool to write to.
    pub(crate) fn start(open: &OpenSpace) -> Result<Option<Self>> {
        let seconds = open.settings.mirror_seconds;
        let writer = Writer::new(&open.settings, &|pool| {
            let member = open.space.pools().member(PoolId(pool.id));
            member.map_or(Left { bytes: pool.reserve_bytes, inodes: 0 }, Left::by)
        })?;
        if seconds == 0 || writer.is_empty() {
            return Ok(None);
        }
        let inbox = Arc::new(Inbox::default());
        let follower: Weak<dyn Follow> = Arc::downgrade(&(inbox.clone() as Arc<dyn Follow>));
        open.store.follow(follower);
        let worker = Worker {
            inbox: inbox.clone(),
            store: open.store.clone(),
            space: Arc::downgrade(&open.space),
            settings: open.settings.clone(),
            turns: open.turns.clone(),
            writer,
            generation: None,
            failed: false,
            uncounted: false,
        };
        let period = Duration::from_secs(seconds);
        let thread = std::thread::Builder::new()
            .name("mirror".into())
            .spawn(move || worker.run(period))
            .map_err(crate::error::io_error("start the mirror of", &open.settings.mountpoint))?;
        Ok(Some(Self { inbox, thread: Mutex::new(Some(thread)) }))
    }

    /// Mirrors into a pool that was added to the space, too.
    pub(crate) fn join(&self, pool: PoolSettings, left: Left) {
        self.inbox.join(pool, left);
    }

    /// Mirrors what is left and ends. Call when the store has become durable for the last time.
    pub(crate) fn finish(&self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that mirrors the catalog into the pools failed");
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The snapshot that tails are being added to.
struct Current {
    generation: Generation,
    /// The last commit in it.
    upto: Seq,
    snapshot_bytes: u64,
    tails: u64,
    tail_bytes: u64,
    /// A pool has missed a file of it that no other one gives.
    lost: bool,
    /// What no pool had room for yet: the next tail holds it too.
    unwritten: Vec<Durable>,
}

impl Current {
    fn is_over(&self) -> bool {
        self.lost || self.tails >= TAILS_MAX || self.tail_bytes > self.snapshot_bytes.max(TAILS_MIN)
    }
}

struct Worker {
    inbox: Arc<Inbox>,
    store: Arc<Store>,
    space: Weak<Space>,
    settings: SpaceSettings,
    turns: Arc<Turns>,
    writer: Writer,
    generation: Option<Current>,
    failed: bool,
    /// The last turn that changed anything could not be counted.
    uncounted: bool,
}

impl Worker {
    fn run(mut self, period: Duration) {
        let mut due = Instant::now() + period.min(Duration::from_secs(5));
        loop {
            let turn = self.inbox.take(due);
            due = Instant::now() + period;
            let last = turn.last;
            self.turn(turn);
            if last {
                return;
            }
        }
    }

    fn turn(&mut self, mut turn: Turn) {
        let changed = turn.changed_files();
        if let Some(space) = self.space.upgrade() {
            annotate::annotate(&space, changed);
        }
        for (pool, left) in std::mem::take(&mut turn.joined) {
            if let Err(error) = self.writer.join(&pool, left) {
                tracing::warn!(pool = pool.name, "it has no copy of the catalog until the next start: {error}");
            }
            self.settings.pools.push(pool);
        }
        if turn.gap {
            self.generation = None;
        }
        // The end itself is counted.
        let counts = !turn.last && (turn.gap || !turn.waiting.is_empty());
        match self.mirror(turn) {
            Ok(()) => self.failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!("the catalog is not mirrored into the pools as it should be: {error}; trying again");
                }
            }
        }
        // Last: pools that make a state an old one hold a copy of what it has not.
        if counts {
            let counted = self.turns.count();
            let before = std::mem::replace(&mut self.uncounted, counted.is_err());
            if let (false, Err(error)) = (before, counted) {
                tracing::warn!("a copy of the state from before is not told from this one: {error}; trying again");
            }
        }
    }

    /// Writes what is new: with everything else as a snapshot where one is due, else as a tail.
    fn mirror(&mut self, turn: Turn) -> Result<()> {
        let due = self.generation.as_ref().is_none_or(Current::is_over);
        // At the end nothing new is begun when nothing changed since the start.
        let idle = turn.last && turn.waiting.is_empty() && !turn.gap && !self.failed;
        let renewed = self.renew_draining();
        let begun = if due && !idle { self.begin(&turn) } else { Ok(()) };
        let written = self.write_tail(turn.waiting);
        // After what all have to wait for.
        self.catch_up(turn.last || turn.gap);
        renewed.and(begun).and(written)
    }

    /// Has pools that have missed a file of the generation get it.
    fn catch_up(&mut self, hurries: bool) {
        let Some(current) = &mut self.generation else { return };
        let rest = |pause| self.inbox.rest(pause);
        let rest: Option<&Rest<'_>> = if hurries { None } else { Some(&rest) };
        current.lost = !self.writer.catch_up(&self.settings, &current.generation, current.tails, rest);
    }

    /// Has the copies of the settings say which pools are being emptied now. Not from where that changes: one thread writes there.
    fn renew_draining(&mut self) -> Result<()> {
        let Some(space) = self.space.upgrade() else { return Ok(()) };
        let mut settings = self.settings.clone();
        // One that is not there is not emptied, whatever is to become of it.
        for pool in settings.pools.iter_mut().filter(|pool| !pool.absent) {
            pool.draining = space.pools().is_draining(PoolId(pool.id));
        }
        if settings != self.settings {
            self.writer.write_settings(&settings)?;
            self.settings = settings;
        }
        Ok(())
    }

    /// Begins a new generation.
    fn begin(&mut self, turn: &Turn) -> Result<()> {
        let mut dirs = self.writer.with_room()?;
        let generation = self.writer.begin()?;
        let settled = self.writer.write_settings(&self.settings)?;
        // A rebuild goes by the settings beside the newest snapshot.
        dirs.retain(|dir| settled.contains(dir));
        let mut upto = Seq(0);
        let rest = |pause| self.inbox.rest(pause);
        let rest: Option<&Rest<'_>> = if turn.last || turn.gap { None } else { Some(&rest) };
        let snapshot_bytes = self.writer.write_snapshot(&dirs, &generation.snapshot(), rest, &mut |out| {
            upto = self.store.snapshot_to(out)?;
            Ok(())
        })?;
        self.writer.keep_newest(&generation);
        self.generation = Some(Current {
            generation,
            upto,
            snapshot_bytes,
            tails: 0,
            tail_bytes: 0,
            lost: false,
            unwritten: Vec::new(),
        });
        Ok(())
    }

    /// Adds a tail to the generation, if there is one and anything is not in it.
    fn write_tail(&mut self, waiting: Vec<Durable>) -> Result<()> {
        let Some(current) = &mut self.generation else { return Ok(()) };
        current.unwritten.extend(waiting.into_iter().filter(|changes| changes.last() > current.upto));
        let mut tail = Tail::default();
        current.unwritten.iter().for_each(|new| tail.absorb(new));
        if tail.is_empty() {
            return Ok(());
        }
        let number = current.tails + 1;
        match self.writer.write(&current.generation.tail(number), &mut |out| tail.write_to(out)) {
            Ok((bytes, _)) => {
                current.unwritten.clear();
                current.tails = number;
                current.tail_bytes += bytes;
                Ok(())
            }
            Err(error) => {
                // What is not kept is in no tail: only a new snapshot makes up for it.
                if current.unwritten.iter().map(Durable::bytes).sum::<usize>() > KEPT_MAX {
                    self.generation = None;
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
