//! The catalog's copy in the pools: a snapshot, and tails of what changed since, written by a thread of its own
//! (DESIGN, invariant 6).
//!
//! `POOL/.ullage-mirror` holds `space.toml` and generations, each a snapshot `TIME-NONCE.snapshot` and its tails
//! `TIME-NONCE.1.tail`, `….2.tail` in order. Each file is written under another name, flushed, and renamed, so that one
//! that is there is whole. The newest two generations are kept. A tail costs what changed; a new snapshot is begun when
//! the tails together have outgrown the last one, so that all writing stays within a small multiple of what changes.

mod annotate;
mod files;
mod inbox;

pub(crate) use files::{Generation, generations, read_settings};

use crate::{OpenSpace, Result, SpaceSettings};
use files::Writer;
use inbox::{Inbox, Turn};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_fs::Space;
use ullage_kv::{Follow, Seq, Store, Tail};

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
        let writer = Writer::new(&open.settings);
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
            writer,
            generation: None,
            failed: false,
        };
        let period = Duration::from_secs(seconds);
        let thread = std::thread::Builder::new()
            .name("mirror".into())
            .spawn(move || worker.run(period))
            .map_err(crate::error::io_error("start the mirror of", &open.settings.mountpoint))?;
        Ok(Some(Self { inbox, thread: Mutex::new(Some(thread)) }))
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
}

struct Worker {
    inbox: Arc<Inbox>,
    store: Arc<Store>,
    space: Weak<Space>,
    settings: SpaceSettings,
    writer: Writer,
    generation: Option<Current>,
    failed: bool,
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
        if turn.gap {
            self.generation = None;
        }
        match self.mirror(&turn) {
            Ok(()) => self.failed = false,
            Err(error) => {
                // What was waiting is in no tail: only a new snapshot makes up for it.
                self.generation = None;
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!("the catalog is not mirrored into the pools: {error}; trying again");
                }
            }
        }
    }

    /// Writes what is new: as a tail, or with everything else as a snapshot.
    fn mirror(&mut self, turn: &Turn) -> Result<()> {
        let Turn { waiting, gap, last, .. } = turn;
        let outgrown = |current: &Current| {
            current.tails >= TAILS_MAX || current.tail_bytes > current.snapshot_bytes.max(TAILS_MIN)
        };
        match self.generation.take().filter(|current| !outgrown(current)) {
            Some(mut current) => {
                let mut tail = Tail::default();
                waiting.iter().filter(|changes| changes.last() > current.upto).for_each(|new| tail.absorb(new));
                if !tail.is_empty() {
                    let number = current.tails + 1;
                    let bytes = self.writer.write(&current.generation.tail(number), &mut |out| tail.write_to(out))?;
                    current.tails = number;
                    current.tail_bytes += bytes;
                }
                self.generation = Some(current);
            }
            // At the end nothing new is begun when nothing changed since the start.
            None if *last && waiting.is_empty() && !gap && !self.failed => {}
            None => {
                let generation = self.writer.begin()?;
                self.writer.write_settings(&self.settings)?;
                let mut upto = Seq(0);
                let store = self.store.clone();
                let bytes = self.writer.write_slowly(&generation.snapshot(), !*last && !*gap, &mut |out| {
                    upto = store.snapshot_to(out)?;
                    Ok(())
                })?;
                self.writer.keep_newest(&generation);
                self.generation = Some(Current { generation, upto, snapshot_bytes: bytes, tails: 0, tail_bytes: 0 });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_kv::{Batch, EngineKind, Kv, Options};

    fn commit(store: &Store, count: usize, value_bytes: usize) {
        for n in 0..count {
            let mut batch = Batch::new();
            let key = [&b"i"[..], &(n as u64).to_be_bytes()].concat();
            batch.put(key, vec![1; value_bytes]);
            store.commit(batch).expect("committed");
        }
        store.checkpoint().expect("applied");
    }

    /// While a pool hung, everything that changed was kept in memory for it, until the machine had none left.
    #[test]
    fn what_waits_for_a_pool_that_hangs_is_bounded_and_a_snapshot_makes_up_for_the_gap() {
        let (pool, state) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let place = format!("p={}", pool.path().display()).parse().expect("a pool");
        let settings = SpaceSettings::new(state.path(), vec![place], "most-free".into()).expect("settings");
        let store = Arc::new(Store::open(state.path(), EngineKind::Memory, Options::default()).expect("a store"));
        let inbox = Arc::new(Inbox::default());
        let follower: Weak<dyn Follow> = Arc::downgrade(&(inbox.clone() as Arc<dyn Follow>));
        store.follow(follower);
        let (writer, space) = (Writer::new(&settings), Weak::new());
        let files = settings.pools[0].files();
        let mut worker = Worker {
            inbox: inbox.clone(),
            store: store.clone(),
            space,
            settings,
            writer,
            generation: None,
            failed: false,
        };
        let mut turn = || {
            let turn = inbox.take(Instant::now());
            worker.turn(turn);
            generations(&files).expect("read").1[0].clone()
        };
        commit(&store, 10, 100);
        let first = turn();
        commit(&store, 10, 100);
        assert_eq!(turn(), first, "a tail was enough");
        let mut most = 0;
        for _ in 0..12 {
            commit(&store, 200, 64 << 10);
            most = most.max(inbox.bytes());
        }
        assert!((64 << 20..136 << 20).contains(&most), "{most} bytes waited");
        let after = turn();
        assert_ne!(after, first, "a new snapshot was due");
        commit(&store, 10, 100);
        assert_eq!(turn(), after, "a tail is enough again");
    }
}
