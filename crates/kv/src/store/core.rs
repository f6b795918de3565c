//! What the store and its background thread share.

use super::open::Lock;
use super::options::{Canary, Options};
use super::state::State;
use super::stats::{Counters, POISONED};
use crate::layer::Layer;
use crate::log::Log;
use crate::{Ahead, Batch, Cut, Engine, Error, Room, Seq};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The longest key taken, in bytes: what the engine on disk can hold.
pub(super) const KEY_BYTES_MAX: usize = 65_000;

pub(super) struct Core {
    pub engine: Box<dyn Engine>,
    /// None when nothing is to survive. Locked only by who set `State::flushing`.
    pub log: Option<Mutex<Log>>,
    pub log_capacity_bytes: u64,
    /// See [`crate::Kv::device`].
    pub device: Option<u64>,
    pub state: Mutex<State>,
    /// Memory that the layers took after the last commit, so that whoever begins an operation need not take the lock.
    overlay_bytes: AtomicUsize,
    /// Held while layers are brought into the engine. Taken before `state`, never while holding it.
    pub applying: Mutex<()>,
    /// `durable`, `applied` or `poisoned` changed.
    pub progress: Condvar,
    /// The background thread has something to do.
    pub wake: Condvar,
    /// Who completes what is about to be written.
    pub cut: Mutex<Option<Weak<dyn Cut>>>,
    /// Who makes other things durable before.
    pub ahead: Mutex<Option<Weak<dyn Ahead>>>,
    /// Who follows what becomes durable.
    pub follower: Mutex<Option<Weak<dyn super::Follow>>>,
    /// Who knows whether the engine may write.
    pub room: OnceLock<Arc<dyn Room>>,
    /// It may not, and much waits for it.
    pub tight: AtomicBool,
    pub options: Options,
    pub path: PathBuf,
    pub counters: Counters,
    /// The last to go: who opens the store next finds nobody writing it.
    _lock: Option<Lock>,
}

impl Core {
    pub fn new(
        engine: Box<dyn Engine>,
        log: Option<Log>,
        newest: Seq,
        options: Options,
        path: PathBuf,
        lock: Option<Lock>,
    ) -> Self {
        Self {
            engine,
            device: log.as_ref().and_then(Log::device),
            log_capacity_bytes: log.as_ref().map_or(0, Log::capacity_bytes),
            log: log.map(Mutex::new),
            state: Mutex::new(State::new(newest)),
            overlay_bytes: AtomicUsize::new(0),
            applying: Mutex::new(()),
            progress: Condvar::new(),
            wake: Condvar::new(),
            cut: Mutex::new(None),
            ahead: Mutex::new(None),
            follower: Mutex::new(None),
            room: OnceLock::new(),
            tight: AtomicBool::new(false),
            options,
            path,
            counters: Counters::default(),
            _lock: lock,
        }
    }

    pub fn commit(&self, batch: Batch) -> Result<Seq, Error> {
        let changes = batch.into_changes();
        if let Some(long) = changes.iter().find(|c| c.key.len() > KEY_BYTES_MAX) {
            return Err(Error::Engine(format!("a key of {} bytes is too long", long.key.len())));
        }
        let mut state = self.state.lock();
        state.check()?;
        for change in changes {
            state.pending.absorb(change.key, change.value, change.fresh);
        }
        state.newest.0 += 1;
        self.overlay_bytes.store(state.overlay_bytes(), Ordering::Relaxed);
        if state.pending.bytes() > self.options.pending_bytes {
            self.kick(&mut state);
        }
        Ok(state.newest)
    }

    pub fn make_room(&self) -> Result<(), Error> {
        if self.overlay_bytes.load(Ordering::Relaxed) <= self.options.overlay_bytes {
            return Ok(());
        }
        let mut state = self.state.lock();
        while state.overlay_bytes() > self.options.overlay_bytes && self.options.interval.is_some() {
            state.check()?;
            self.kick(&mut state);
            self.progress.wait(&mut state);
        }
        self.overlay_bytes.store(state.overlay_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the engine has room to write.
    pub fn has_room(&self) -> bool {
        let Some(room) = self.room.get() else { return true };
        let there = room.is_there();
        let waiting = self.state.lock().overlay_bytes();
        self.tight.store(!there && waiting > room.most_waiting(), Ordering::Relaxed);
        there
    }

    /// Brings everything into the engine, or leaves it in the log where the engine has no room. Whether the engine has it all.
    pub fn settle(&self) -> Result<bool, Error> {
        self.flush(Seq(u64::MAX))?;
        let room = self.has_room();
        if room {
            self.apply(true)?;
        }
        Ok(room)
    }

    /// Closes the pending layer, with the records that go with it.
    pub fn seal(&self) -> Arc<Layer> {
        let cut = self.cut.lock().as_ref().and_then(Weak::upgrade);
        let Some(cut) = cut else { return self.state.lock().seal() };
        let mut sealed = None;
        cut.cut(&mut |batch| {
            let mut state = self.state.lock();
            for change in batch.into_changes() {
                state.pending.absorb(change.key, change.value, change.fresh);
            }
            state.newest.0 += 1;
            sealed = Some(state.seal());
        });
        sealed.expect("a cut takes its records")
    }

    /// Makes durable elsewhere what is to be so before the layer that was sealed. Only then: what comes later is in the next one.
    pub fn go_ahead(&self) {
        let ahead = self.ahead.lock().as_ref().and_then(Weak::upgrade);
        if let Some(ahead) = ahead {
            ahead.ahead();
        }
    }

    /// Hands on what is durable and now in the engine, in the order of commits: off the path of whoever waits for a sync.
    pub fn tell(&self, sealed: &Arc<Layer>) {
        let follower = self.follower.lock().as_ref().and_then(Weak::upgrade);
        if let Some(follower) = follower {
            follower.durable(super::Durable(Arc::clone(sealed)));
        }
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(entry) = self.state.lock().find(key) {
            return Ok(entry.value.clone());
        }
        // Whatever leaves the layers after this look is in the engine by then.
        self.engine.get(key)
    }

    pub fn wait_durable(&self, upto: Seq, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.state.lock();
        while state.durable < upto && state.poisoned.is_none() {
            let timed_out = if let Some(deadline) = deadline {
                self.progress.wait_until(&mut state, deadline).timed_out()
            } else {
                self.progress.wait(&mut state);
                false
            };
            if timed_out {
                break;
            }
        }
        state.durable >= upto
    }

    /// Wakes the background thread, once until it has run.
    pub fn kick(&self, state: &mut State) {
        if !state.kicked {
            state.kicked = true;
            self.wake.notify_one();
        }
    }

    /// Refuses all writes from now on; gives back the error for whoever met the failure.
    pub fn poison(&self, error: Error) -> Error {
        self.poison_locked(&mut self.state.lock(), error)
    }

    /// As [`Core::poison`], for whoever holds the lock already.
    pub fn poison_locked(&self, state: &mut State, error: Error) -> Error {
        if state.poisoned.is_none() {
            tracing::error!(path = %self.path.display(), %error, "{POISONED}");
            state.poisoned = Some(error.to_string());
        }
        self.progress.notify_all();
        error
    }

    pub fn canary(&self, canary: Canary) -> bool {
        self.options.canary == Some(canary)
    }
}
