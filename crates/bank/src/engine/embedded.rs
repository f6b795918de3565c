//! The default: a journal in a directory. One process, guarded by a lock file.

use super::{Done, Engine, EngineError, parts};
use crate::rows::{Rows, apply, decode_rows, decode_writes, encode_rows, encode_writes};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ullage_journal::{Durability, Journal, JournalError, Options, private_directory};
use ullage_voucher::Write;

/// Journal bytes after which a snapshot is due, those of earlier processes included.
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

/// How long another process may still hold the lock: together one second.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Rows in a journal.
#[derive(Debug)]
pub struct Embedded {
    journal: Arc<Journal>,
    appended: AtomicU64,
    snapshotting: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    _lock: File,
}

impl Embedded {
    /// Opens (or makes) the rows in `directory`.
    ///
    /// # Errors
    /// When another process has it open, it cannot be used, or is damaged.
    pub fn open(directory: &Path, durability: Durability) -> Result<(Self, Rows), EngineError> {
        let io = |what, source| JournalError::Io { what, path: directory.to_owned(), source: Arc::new(source) };
        private_directory(directory).map_err(|e| io("create", e))?;
        let lock = File::create(directory.join("lock")).map_err(|e| io("create the lock of", e))?;
        // One that is just ending may hold it for a moment.
        for attempt in 0.. {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(io("lock (another bank has it open)", std::io::ErrorKind::WouldBlock.into()).into());
                }
                Err(TryLockError::Error(error)) => return Err(io("lock", error).into()),
            }
        }
        let (journal, recovered) = Journal::open(directory, Options { durability })?;
        let mut rows = match &recovered.snapshot {
            Some(snapshot) => decode_rows(snapshot)?,
            None => Rows::new(),
        };
        // Else a bank that is started again before so much was written would keep all that it ever wrote.
        let logged: usize = recovered.records.iter().map(Vec::len).sum();
        parts::whole(recovered.records, |record| {
            apply(&mut rows, &decode_writes(record)?);
            Ok(())
        })?;
        journal.hold_room();
        let engine = Self {
            journal: Arc::new(journal),
            appended: AtomicU64::new(logged as u64),
            snapshotting: Arc::default(),
            failed: Arc::default(),
            _lock: lock,
        };
        Ok((engine, rows))
    }
}

impl Embedded {
    /// What happens once a record is durable, or never will be.
    fn seen(&self, done: Option<Done>) -> impl FnOnce(Result<(), JournalError>) + Send + 'static {
        let failed = Arc::clone(&self.failed);
        move |result| {
            if let Err(error) = &result {
                // The bank has changed in memory what is nowhere else: nothing can be answered any more.
                failed.store(true, Ordering::SeqCst);
                tracing::error!(%error, "the accounts cannot be written");
            }
            if let Some(done) = done {
                done(result.map_err(EngineError::from));
            }
        }
    }
}

impl Engine for Embedded {
    fn append(&self, writes: &[Write], done: Done) {
        if !self.is_leading() {
            return done(Err(EngineError::Failed));
        }
        let record = encode_writes(writes);
        self.appended.fetch_add(record.len() as u64, Ordering::Relaxed);
        let mut done = Some(done);
        for (record, is_last) in parts::split(record) {
            let done = if is_last { done.take() } else { None };
            self.journal.append_then(record, self.seen(done));
        }
    }

    fn snapshot_due(&self) -> bool {
        self.appended.load(Ordering::Relaxed) > SNAPSHOT_AFTER_BYTES && !self.snapshotting.load(Ordering::Relaxed)
    }

    fn snapshot(&self, rows: &Rows) {
        self.appended.store(0, Ordering::Relaxed);
        self.snapshotting.store(true, Ordering::Relaxed);
        let begun = self.journal.rotate();
        let (state, journal, running) = (encode_rows(rows), self.journal.clone(), self.snapshotting.clone());
        std::thread::spawn(move || {
            if let Err(error) = journal.install_snapshot(&begun, &state) {
                tracing::error!(%error, "the snapshot fails; the journal grows until one succeeds");
            }
            journal.hold_room();
            running.store(false, Ordering::Relaxed);
        });
    }

    fn is_leading(&self) -> bool {
        !self.failed.load(Ordering::SeqCst)
    }

    /// Nobody else can open the directory.
    fn give_up(&self) {}

    fn has_left(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(engine: &Embedded, key: &[u8], value: Option<&[u8]>) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let write = Write { key: key.into(), value: value.map(Into::into) };
        engine.append(&[write], Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }

    #[test]
    fn rows_come_back_with_and_without_a_snapshot() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, mut rows) = Embedded::open(directory.path(), Durability::Process).unwrap();
        put(&engine, b"a", Some(b"1"));
        put(&engine, b"b", Some(b"2"));
        rows.insert(b"a".to_vec(), b"1".to_vec());
        rows.insert(b"b".to_vec(), b"2".to_vec());
        engine.snapshot(&rows);
        put(&engine, b"a", None);
        while engine.snapshotting.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(engine);
        let (_, rows) = Embedded::open(directory.path(), Durability::Process).unwrap();
        assert_eq!(rows, Rows::from([(b"b".to_vec(), b"2".to_vec())]));
    }

    /// Regression: each start began to count anew, so the journal of a bank that was started often enough grew without end.
    #[test]
    fn what_was_written_before_a_restart_counts_for_the_next_snapshot() {
        let directory = tempfile::tempdir().unwrap();
        let value = vec![7; 12 << 20];
        let due = (0..6).map(|_| {
            let (engine, rows) = Embedded::open(directory.path(), Durability::Process).unwrap();
            put(&engine, b"a", Some(&value));
            let due = engine.snapshot_due();
            if due {
                engine.snapshot(&rows);
                while engine.snapshotting.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                assert!(!engine.snapshot_due());
            }
            due
        });
        assert_eq!(due.collect::<Vec<_>>(), [false, false, false, false, false, true]);
        let (engine, rows) = Embedded::open(directory.path(), Durability::Process).unwrap();
        assert!(!engine.snapshot_due() && rows == Rows::from([(b"a".to_vec(), value)]));
    }

    #[test]
    fn two_banks_never_share_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let _first = Embedded::open(directory.path(), Durability::Process).unwrap();
        assert!(Embedded::open(directory.path(), Durability::Process).is_err());
    }

    /// A step above 64 MiB, as when an epoch with two million grants is settled, failed, and the bank went on without it.
    #[test]
    fn a_step_larger_than_a_record_comes_back_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, _) = Embedded::open(directory.path(), Durability::Process).unwrap();
        let large = vec![7; 80 << 20];
        put(&engine, b"large", Some(&large));
        put(&engine, b"small", Some(b"1"));
        drop(engine);
        let (_, rows) = Embedded::open(directory.path(), Durability::Process).unwrap();
        assert!(rows == Rows::from([(b"large".to_vec(), large), (b"small".to_vec(), b"1".to_vec())]));
    }

    #[test]
    fn after_a_failed_write_the_engine_is_at_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, _) = Embedded::open(directory.path(), Durability::Process).unwrap();
        assert!(engine.is_leading());
        engine.journal.append_then(vec![0; 65 << 20], engine.seen(None));
        assert!(!engine.is_leading());
        let (sender, receiver) = std::sync::mpsc::channel();
        engine.append(&[], Box::new(move |result| sender.send(result).unwrap()));
        assert!(matches!(receiver.recv().unwrap(), Err(EngineError::Failed)));
    }
}
