//! The write-behind store: commits go into memory, from there into the log, from there into the engine.

mod apply;
mod core;
mod flush;
mod follow;
mod format;
mod keeper;
mod open;
mod options;
mod scan;
mod snapshot;
mod state;
mod stats;

pub(crate) use self::snapshot::read_entries;

pub use self::follow::{Durable, Follow, Tail};
pub use self::options::{Canary, EngineKind, Options};
pub use self::stats::{POISONED, Stats};

use self::core::Core;
use crate::kv::Visit;
use crate::{Ahead, Batch, Cut, Error, Kv, Room, Seq};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// A store over an engine; see [`Kv`] for what it promises.
///
/// After any failed write or sync it refuses commits and syncs with [`Error::Poisoned`]; reads go on. Dropping
/// it logs and applies what is left, as [`Store::close`] does, but cannot tell of a failure.
pub struct Store {
    core: Arc<Core>,
    keeper: Option<JoinHandle<()>>,
    closed: bool,
}

impl Store {
    /// Brings everything committed into the engine and makes it durable there.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.core.flush(Seq(u64::MAX))?;
        self.core.apply(true)
    }

    /// Who is asked whether the engine has room to write. Once, at the start.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        assert!(self.core.room.set(room).is_ok(), "one knows of the engine's room");
    }

    /// Brings everything into the engine, or leaves it in the log where the engine has no room. Whether the engine has it all.
    pub fn settle(&self) -> Result<bool, Error> {
        self.core.settle()
    }

    /// Logs and applies everything and ends the background thread. What the engine has no room for stays in the log.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    /// Where the store stands.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        let own = self.keeper.as_ref().is_some_and(|keeper| keeper.thread().id() == std::thread::current().id());
        {
            let mut state = self.core.state.lock();
            state.stopping = true;
            state.left = own;
        }
        if own {
            // It was asking somebody who had the last hold of us, in the middle of its work: it ends that first.
            return Ok(());
        }
        self.core.wake.notify_one();
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            return Err(self.core.poison(Error::Engine("the background thread panicked".to_owned())));
        }
        if self.settle()? {
            self.core.engine.rest();
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A failure was logged when it poisoned the store.
        let _ = self.shut_down();
    }
}

impl Kv for Store {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.core.get(key)
    }

    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        self.core.scan(prefix, from, visit)
    }

    fn make_room(&self) -> Result<(), Error> {
        self.core.make_room()
    }

    fn commit(&self, batch: Batch) -> Result<Seq, Error> {
        self.core.commit(batch)
    }

    fn sync(&self, upto: Seq) -> Result<(), Error> {
        self.core.counters.syncs.fetch_add(1, Relaxed);
        self.core.flush(upto)
    }

    fn write_out(&self, upto: Seq) -> Result<Seq, Error> {
        self.core.counters.syncs.fetch_add(1, Relaxed);
        self.core.write_out(upto)
    }

    fn flushed(&self, written: Seq) -> Result<(), Error> {
        self.core.flushed(written)
    }

    fn device(&self) -> Option<u64> {
        self.core.device
    }

    fn newest(&self) -> Seq {
        self.core.state.lock().newest
    }

    fn durable(&self) -> Seq {
        self.core.state.lock().durable
    }

    fn wait_durable(&self, upto: Seq, timeout: Duration) -> bool {
        self.core.wait_durable(upto, timeout)
    }

    fn is_tight(&self) -> bool {
        self.core.tight.load(Relaxed)
    }

    fn set_cut(&self, cut: Weak<dyn Cut>) {
        *self.core.cut.lock() = Some(cut);
    }

    fn set_ahead(&self, ahead: Weak<dyn Ahead>) {
        *self.core.ahead.lock() = Some(ahead);
    }
}
