//! The two traits: what the catalog sees, and what an engine below it offers.

use crate::{Batch, Change, Error};
use std::sync::Weak;
use std::time::Duration;

/// The place of a committed batch in the order of all commits; starts at 1 and never repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Called with each key and value; gives back whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// What the catalog stores its records in.
///
/// A commit is atomic and visible to every later `get` and `scan` at once; it is durable only once
/// [`Kv::sync`] has returned for its sequence number (or a later one). After a crash exactly a prefix of the
/// commits is there: never a commit without all that came before it.
pub trait Kv: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits, in key order, the keys that begin with `prefix` and are not less than `from`
    /// (`from` may be empty), until `visit` gives back false.
    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error>;

    /// Waits while more is committed than the store can hold in memory, until some of it is written. To be called
    /// before a commit, where nothing is held that [`Cut::cut`] needs.
    fn make_room(&self) -> Result<(), Error>;

    /// Applies all changes of a batch or none. Costs no I/O and never waits.
    fn commit(&self, batch: Batch) -> Result<Seq, Error>;

    /// Returns when every commit up to `upto` survives a power cut. Callers at the same time share one flush.
    fn sync(&self, upto: Seq) -> Result<(), Error>;

    /// Returns when every commit up to `upto` is in the log, though maybe not through the cache of the device that
    /// [`Kv::device`] names; gives back the newest commit that is. For whoever is about to flush that device
    /// anyway, and says so by [`Kv::flushed`].
    fn write_out(&self, upto: Seq) -> Result<Seq, Error> {
        self.sync(upto)?;
        Ok(upto)
    }

    /// The log's device was flushed, by a flush begun after [`Kv::write_out`] gave back `written`. Where such a flush fails, it may be
    /// for another reason than the log's: [`Kv::sync`] tells.
    fn flushed(&self, written: Seq) -> Result<(), Error> {
        let _ = written;
        Ok(())
    }

    /// The `st_dev` of the device whose cache is all that [`Kv::write_out`] leaves to be flushed, where fsync(2) of any
    /// file there flushes it.
    fn device(&self) -> Option<u64> {
        None
    }

    /// The newest commit.
    fn newest(&self) -> Seq;

    /// The newest commit known to survive a power cut.
    fn durable(&self) -> Seq;

    /// Whether the engine has no room, and much waits for it: what makes things is to be refused, what removes them is not.
    fn is_tight(&self) -> bool {
        false
    }

    /// Waits until `durable() >= upto` without asking for a flush; false when the time ran out or the store failed.
    fn wait_durable(&self, upto: Seq, timeout: Duration) -> bool;

    /// Asks `cut` for its records each time the commits so far are about to be written, and writes them with
    /// those. A `sync` must therefore not be called by whoever holds up [`Cut::cut`].
    fn set_cut(&self, cut: Weak<dyn Cut>);

    /// Asks `ahead` each time after that, before anything is written.
    fn set_ahead(&self, ahead: Weak<dyn Ahead>) {
        let _ = ahead;
    }
}

/// Makes durable elsewhere what is to be so before the commits that speak of it.
pub trait Ahead: Send + Sync {
    /// All commits so far are about to be written, and none that comes from now on: whoever waits for them waits for this, too. No lock is held.
    fn ahead(&self);
}

/// Room for the engine on its disk, where others may fill that.
pub trait Room: Send + Sync {
    /// Whether the engine may write. Asked before it does, once an interval; where there is none, what is logged stays in
    /// memory and in the log until there is, or until the log is full.
    fn is_there(&self) -> bool;

    /// How much may wait for the engine before the store is tight ([`Kv::is_tight`]), in bytes of memory.
    fn most_waiting(&self) -> usize;
}

/// Completes what is about to be made durable: records that are derived from many commits and would be too
/// dear to write with each (the ledger's totals).
pub trait Cut: Send + Sync {
    /// Calls `take` once with the records that go with all commits so far, and lets no commit happen until
    /// `take` has returned.
    fn cut(&self, take: &mut dyn FnMut(Batch));
}

/// An ordered store below the write-behind layer.
pub trait Engine: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// As [`Kv::scan`].
    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error>;

    /// Applies the changes and records `applied`, all or nothing even across a crash. Need not be durable.
    fn apply(&self, changes: &[Change], applied: Seq) -> Result<(), Error>;

    /// Makes everything applied so far durable.
    fn persist(&self) -> Result<(), Error>;

    /// All that was applied is durable, and nothing more will be: may be noted for the next opening.
    fn rest(&self) {}

    /// The keys of all values that are not what was written.
    fn damaged(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(Vec::new())
    }

    /// What the last surviving `apply` recorded.
    fn applied(&self) -> Result<Seq, Error>;
}
