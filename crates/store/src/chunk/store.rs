//! The store as its users see it: one method per operation, each in a file of its own where it is long.

use super::directory::Directory;
use super::error::OpError;
use super::expected::Expected;
use super::file::{self, ReadError};
use super::header::Header;
use super::index::{Access, ChunkInfo, Index};
use super::ledger::{Ledger, Posting};
use super::name::ChunkName;
use super::probe::probe;
use super::record::{Record, note_records};
use super::recover::{Recount, ignore_missing, next_file, recover};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use ullage_journal::codec::Encoder;
use ullage_journal::{Durability, Journal, JournalError, Pending};

/// Changes up to this size travel in the journal; larger ones are written as a new file.
pub const INLINE_MAX_BYTES: usize = 64 << 10;

/// After so much a snapshot is due on a full disk.
const SNAPSHOT_WHEN_FULL_BYTES: u64 = 1 << 20;

/// No new files where fewer can be made.
const INODES_LEAST: u64 = 48;

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether an answered operation survives a power cut or only the end of the process.
    pub durability: Durability,
    /// Journal bytes after which a snapshot is due.
    pub snapshot_after_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::Disk, snapshot_after_bytes: 256 << 20 }
    }
}

/// An operation that happened.
#[derive(Debug)]
pub struct Done<R> {
    /// The chunk as it is now; `None` once it is deleted.
    pub info: Option<ChunkInfo>,
    /// What the ledger gives back.
    pub receipt: R,
}

/// What one lock guards: the order of changes here is the order of their records.
pub(crate) struct State<L> {
    pub(crate) index: Index,
    pub(crate) ledger: L,
}

/// Chunks in a directory. All methods block; a server calls them off its event loop.
pub struct ChunkStore<L: Ledger> {
    pub(crate) directory: Directory,
    pub(crate) options: Options,
    pub(crate) state: Mutex<State<L>>,
    pub(crate) journal: Journal,
    /// One lock per shard of names: held over a whole operation.
    locks: Vec<RwLock<()>>,
    /// Held shared from a record's append to its application, exclusively while a snapshot is cut.
    pub(crate) gate: RwLock<()>,
    next_file: AtomicU64,
    /// Held while one is written.
    snapshots: Mutex<()>,
    journal_bytes: AtomicU64,
    stopped: Mutex<Option<String>>,
    recount: Recount,
    /// What others know by that the directory is taken. The last field: the journal writes until it is dropped.
    _claim: Option<File>,
}

impl<L: Ledger> std::fmt::Debug for ChunkStore<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<L: Ledger> ChunkStore<L> {
    /// Opens (or makes) the store in `root`: replays the journal into the chunks and `ledger`, then recounts.
    ///
    /// # Errors
    /// When the directory cannot be used, or what was durable is damaged.
    pub fn open(root: &Path, ledger: L, options: Options) -> Result<Self, OpError<L::Refusal>> {
        let directory = Directory::create(root).map_err(|e| OpError::io("create", root, e))?;
        let journal_options = ullage_journal::Options { durability: options.durability };
        let (journal, recovered) = Journal::open(&directory.journal(), journal_options)?;
        let mut state = State { index: Index::default(), ledger };
        let next_file = next_file(&recovered);
        let (recount, corrections) = recover(&directory, recovered, &mut state)?;
        probe(&directory).map_err(|e| OpError::io("measure what a file takes of the file system of", root, e))?;
        let store = Self {
            directory,
            options,
            state: Mutex::new(state),
            journal,
            locks: (0..256).map(|_| RwLock::new(())).collect(),
            gate: RwLock::new(()),
            next_file: AtomicU64::new(next_file),
            snapshots: Mutex::new(()),
            journal_bytes: AtomicU64::new(0),
            stopped: Mutex::new(None),
            recount,
            _claim: None,
        };
        for record in corrections {
            store.journal.append(record.encode()).wait()?;
        }
        match store.snapshot() {
            // The journal has everything, and what is there can be read and removed.
            Err(OpError::Journal(error)) if error.is_full() => tracing::warn!(%error, "the snapshot finds no room"),
            done => done?,
        }
        store.hold_room();
        if !store.journal.has_room() {
            tracing::warn!(root = %root.display(), "the disk is full: chunks can be read and removed; make room");
        }
        Ok(store)
    }

    /// Keeps the lock on its directory until the last operation is over: those that block go on when nobody waits for them any more.
    #[must_use]
    pub fn with_claim(self, claim: File) -> Self {
        Self { _claim: Some(claim), ..self }
    }

    /// What the recount at the start found.
    pub fn recount(&self) -> &Recount {
        &self.recount
    }

    /// Reads `length` bytes at `offset`, fewer at the end of the chunk.
    pub fn read(
        &self,
        name: &ChunkName,
        by: &str,
        offset: u64,
        length: u64,
    ) -> Result<(Vec<u8>, ChunkInfo), OpError<L::Refusal>> {
        let _shared = self.lock(name).read();
        self.check_running()?;
        let info = self.find_for(name, by, Access::Read)?;
        let (file, header) = self.open_chunk(name, info.generation)?;
        let bytes = file::read(&file, &header, offset, length).map_err(|e| self.read_error(name, e))?;
        Ok((bytes, info))
    }

    /// What is known of a chunk.
    pub fn stat(&self, name: &ChunkName) -> Option<ChunkInfo> {
        self.state.lock().index.get(name).cloned()
    }

    /// Up to `limit` chunks whose names start with `prefix` and come after `after`, in order.
    pub fn list(&self, prefix: &str, after: &str, limit: usize) -> Vec<(ChunkName, ChunkInfo)> {
        self.state.lock().index.list(prefix, after, limit)
    }

    /// Removes a chunk if it is as expected; its blocks are credited to those who were charged.
    pub fn delete_expected(
        &self,
        name: &ChunkName,
        by: &str,
        expected: Expected,
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        let _exclusive = self.lock(name).write();
        self.check_running()?;
        let old = self.find_for(name, by, Access::Remove)?;
        expected.check(name, Some(&old))?;
        let (_, postings) = ChunkInfo::recharge(&old.charges, &old.owner, 0);
        let gate = self.gate.read();
        let (pending, receipt) = {
            let mut state = self.state.lock();
            let (note, receipt) = state.ledger.book(&postings, payment).map_err(OpError::Refused)?;
            state.index.generation += 1;
            let generation = state.index.generation;
            state.index.remove(name);
            (self.append(Record::Delete { name: name.clone(), generation, note }.encode()), receipt)
        };
        self.complete(pending)?;
        let path = self.directory.chunk(name);
        self.applied("remove", &path, || ignore_missing(fs::remove_file(&path)))?;
        drop(gate);
        Ok(Done { info: None, receipt })
    }

    /// Changes or asks the ledger alone. A note returned is made durable before this returns; an empty one says that what was
    /// found must be.
    pub fn with_ledger<R>(&self, work: impl FnOnce(&mut L) -> (Option<Vec<u8>>, R)) -> Result<R, OpError<L::Refusal>> {
        let (pending, result) = {
            let mut state = self.state.lock();
            let (note, result) = work(&mut state.ledger);
            let append = |note: Vec<u8>| (!note.is_empty()).then(|| self.append_note(note));
            (note.map(append), result)
        };
        match pending {
            Some(Some(pending)) => self.complete(pending)?,
            Some(None) => self.wait_durable()?,
            None => {}
        }
        Ok(result)
    }

    /// Waits until all that the index and the ledger say now is durable.
    ///
    /// # Errors
    /// When the store has stopped: some of it may never be.
    pub fn wait_durable(&self) -> Result<(), OpError<L::Refusal>> {
        self.complete(self.journal.barrier())?;
        self.check_running()
    }

    /// As [`Self::with_ledger`], with what all chunks occupy at that moment, by who was charged.
    pub fn with_ledger_and_charges(
        &self,
        work: impl FnOnce(&mut L, &BTreeMap<Arc<str>, u64>) -> Option<Vec<u8>>,
    ) -> Result<(), OpError<L::Refusal>> {
        let pending = {
            let mut state = self.state.lock();
            let charged = state.index.charged();
            work(&mut state.ledger, &charged).map(|note| self.append_note(note))
        };
        pending.map_or(Ok(()), |pending| self.complete(pending))
    }

    /// Sum of what all chunks occupy, by who was charged.
    pub fn charged(&self) -> BTreeMap<Arc<str>, u64> {
        self.state.lock().index.charged()
    }

    /// What all chunks occupy together.
    pub fn charged_bytes(&self) -> u64 {
        self.state.lock().index.charged_bytes()
    }

    /// Where the store is.
    pub fn root(&self) -> &Path {
        self.directory.root()
    }

    /// Whether enough was logged for a snapshot to be due. While the journal has no room in advance, the segments that a snapshot
    /// drops may be the room that is missing.
    pub fn snapshot_due(&self) -> bool {
        let most = self.options.snapshot_after_bytes;
        let after = if self.journal.has_room() { most } else { most.min(SNAPSHOT_WHEN_FULL_BYTES) };
        self.journal_bytes.load(Ordering::Relaxed) > after && self.check_running().is_ok()
    }

    /// Flushes all chunks, writes the state and drops the journal before it. Operations stop only while the state is
    /// copied, not while it is flushed. A store that has stopped keeps its journal, which has what a restart must redo: so does one whose
    /// chunks cannot be flushed. That is told only once: so one snapshot is written at a time.
    pub fn snapshot(&self) -> Result<(), OpError<L::Refusal>> {
        let _alone = self.snapshots.lock();
        let (begun, bytes) = {
            let _exclusive = self.gate.write();
            self.check_running()?;
            let state = self.state.lock();
            let mut out = Encoder::new();
            state.index.encode(&mut out);
            let ledger = state.ledger.save();
            // Its length has four bytes.
            u32::try_from(ledger.len()).map_err(|_| JournalError::TooLarge(ledger.len()))?;
            out.bytes(&ledger);
            self.journal_bytes.store(0, Ordering::Relaxed);
            (self.journal.rotate(), out.finish())
        };
        if self.options.durability == Durability::Disk {
            let flushed = self.directory.flush_all();
            flushed.map_err(|error| self.unapplied("flush", self.directory.root(), &error))?;
            // So does one that has stopped meanwhile.
            self.check_running()?;
        }
        Ok(self.journal.install_snapshot(&begun, &bytes)?)
    }

    /// Takes back the room that is held for the journal, where it was given up and there is room again.
    pub fn hold_room(&self) {
        self.journal.hold_room();
    }

    /// Refuses what takes room while the journal has none in advance: to remove a chunk it takes a record.
    pub(crate) fn check_room(&self) -> Result<(), OpError<L::Refusal>> {
        if self.journal.has_room() { Ok(()) } else { Err(OpError::NoSpace) }
    }

    /// Refuses what makes a file while few can be made: a start makes some before anything can be removed.
    pub(crate) fn check_inodes(&self) -> Result<(), OpError<L::Refusal>> {
        let root = self.directory.root();
        let left = self.directory.inodes_left().map_err(|error| OpError::io("look at", root, error))?;
        if left < INODES_LEAST { Err(OpError::NoSpace) } else { Ok(()) }
    }

    pub(crate) fn lock(&self, name: &ChunkName) -> &RwLock<()> {
        &self.locks[usize::from(name.shard())]
    }

    pub(crate) fn find(&self, name: &ChunkName) -> Result<ChunkInfo, OpError<L::Refusal>> {
        self.stat(name).ok_or_else(|| OpError::NotFound(name.clone()))
    }

    /// The same, where its mode lets `by` do that. Asked below the chunk's lock: what was found before a request came whole may be another's.
    pub(crate) fn find_for(
        &self,
        name: &ChunkName,
        by: &str,
        access: Access,
    ) -> Result<ChunkInfo, OpError<L::Refusal>> {
        let found = self.find(name)?;
        if found.permits(by, access) { Ok(found) } else { Err(OpError::Forbidden(name.clone())) }
    }

    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn open_chunk(&self, name: &ChunkName, generation: u64) -> Result<(File, Header), OpError<L::Refusal>> {
        let path = self.directory.chunk(name);
        let file = File::options().read(true).write(true).open(&path).map_err(|error| match error.kind() {
            // Somebody took it away: damage as any other, of a chunk that can be replaced and removed.
            ErrorKind::NotFound => OpError::Damaged { name: name.clone(), offset: 0 },
            _ => OpError::io("open", &path, error),
        })?;
        let header = file::read_header(&file).map_err(|e| self.read_error(name, e))?;
        // A file under another's name, or of another change than the last, is damage too, whatever its checksum says.
        if header.name != *name || header.generation != generation {
            return Err(OpError::Damaged { name: name.clone(), offset: 0 });
        }
        Ok((file, header))
    }

    pub(crate) fn read_error(&self, name: &ChunkName, error: ReadError) -> OpError<L::Refusal> {
        match error {
            ReadError::Damaged(offset) => OpError::Damaged { name: name.clone(), offset },
            ReadError::Io(error) => OpError::io("read", &self.directory.chunk(name), error),
        }
    }

    /// Books what a chunk has become, and appends its record: the note is all that is still missing from `change`.
    pub(crate) fn book(
        &self,
        name: &ChunkName,
        info: &ChunkInfo,
        mut change: Encoder,
        postings: &[Posting],
        payment: &L::Payment,
    ) -> Result<(Pending, L::Receipt), L::Refusal> {
        let (name, info) = (name.clone(), info.clone());
        let mut state = self.state.lock();
        let (note, receipt) = state.ledger.book(postings, payment)?;
        state.index.insert(name, info);
        change.bytes(&note);
        Ok((self.append(change.finish()), receipt))
    }

    /// Appends a record under the state's lock, so that records stand in the order of the changes.
    pub(crate) fn append(&self, bytes: Vec<u8>) -> Pending {
        self.journal_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.journal.append(bytes)
    }

    /// The same of what the ledger alone changes, in as many records as it takes. They become durable in their order: the last says of all.
    fn append_note(&self, note: Vec<u8>) -> Pending {
        let mut records = note_records(note);
        let last = records.pop().unwrap_or(Record::Note(Vec::new()));
        for record in records {
            drop(self.append(record.encode()));
        }
        self.append(last.encode())
    }

    /// Waits until a record is durable. If it never is, memory is ahead of the disk: nothing more may be answered.
    pub(crate) fn complete(&self, pending: Pending) -> Result<(), OpError<L::Refusal>> {
        pending.wait().inspect_err(|error| self.stop(error.to_string()))?;
        Ok(())
    }

    /// A committed change must be applied, in the room that is held where there is no other; if it cannot be, the store stops and a
    /// restart redoes it.
    pub(crate) fn applied<T>(
        &self,
        what: &str,
        path: &Path,
        change: impl Fn() -> std::io::Result<T>,
    ) -> Result<T, OpError<L::Refusal>> {
        self.journal.with_room(change).map_err(|error| self.unapplied(what, path, &error))
    }

    fn unapplied(&self, what: &str, path: &Path, error: &std::io::Error) -> OpError<L::Refusal> {
        let why = format!("{what} {}: {error}", path.display());
        self.stop(why.clone());
        OpError::Stopped(why)
    }

    fn stop(&self, why: String) {
        tracing::error!(%why, "the store stops");
        self.stopped.lock().get_or_insert(why);
    }

    pub(crate) fn check_running(&self) -> Result<(), OpError<L::Refusal>> {
        self.stopped.lock().clone().map_or(Ok(()), |why| Err(OpError::Stopped(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::StoreSettings;
    use crate::server::accounts::Accounts;
    use std::io::Error;
    use ullage_voucher::{KeyId, Keyring, Node};

    /// Regression: a change that was committed and found no room stopped the store, though the room that is held for such was there.
    #[test]
    fn a_committed_change_is_applied_in_the_room_that_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Arc::new(Keyring::with_root(KeyId(1), [1; 32]));
        let settings = StoreSettings::new(directory.path().to_owned(), Node(1), keys, [2; 32]);
        let options = Options { durability: Durability::Process, ..Options::default() };
        let store = ChunkStore::open(directory.path(), Accounts::new(&settings), options).unwrap();
        let held = directory.path().join("journal/reserve");
        assert!(held.exists());
        let change = || if held.exists() { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(()) };
        store.applied("change", directory.path(), change).unwrap();
        store.check_running().unwrap();
        assert!(matches!(store.check_room(), Err(OpError::NoSpace)));
    }
}
