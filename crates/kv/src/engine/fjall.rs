//! The engine on disk: one keyspace of the crate `fjall`.
//!
//! Everything lies in *one* keyspace, what the engine keeps for itself under another first byte than the
//! data: so the number of the last applied commit and the data it speaks of can never be flushed apart.

use super::{checked, journals};
use crate::held::{Held, shown};
use crate::key_range::{first_key, prefix_end};
use crate::kv::Visit;
use crate::{Change, Engine, Error, Seq};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::{Path, PathBuf};

/// First byte of the data's keys.
const DATA: u8 = b'd';
/// Key of the format version.
const FORMAT_KEY: &[u8] = b"m.format";
/// Key of the last applied commit.
pub(super) const APPLIED_KEY: &[u8] = b"m.applied";
/// The format written here: values after a checksum of key and value.
const FORMAT: u32 = 1;
/// The least that fjall takes as the bound of its journals.
const JOURNAL_BYTES: u64 = 64 << 20;

/// How much memory the engine may take.
#[derive(Clone, Copy, Debug)]
pub struct FjallOptions {
    /// Cache of blocks read, in bytes.
    pub cache_bytes: u64,
    /// Size at which a table of recent changes is written out, in bytes.
    pub memtable_bytes: u64,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, memtable_bytes: 16 << 20 }
    }
}

/// An ordered store in a directory of its own.
pub struct FjallEngine {
    database: Database,
    keyspace: Keyspace,
    /// As messages name it.
    path: PathBuf,
    /// Where it is: it opens and makes files in it for as long as it is there. So this goes last.
    held: Held,
}

impl FjallEngine {
    /// Opens the engine in `path`, creating it where there is none.
    ///
    /// Fails with [`Error::Locked`] while another process has it open and with [`Error::Newer`] when a later
    /// version wrote it.
    pub fn open(path: &Path, options: FjallOptions) -> Result<Self, Error> {
        let failed = |error| failed(&shown(path), error);
        let held = Held::of(path).map_err(|source| failed(fjall::Error::Io(source)))?;
        journals::make_durable(held.path()).map_err(|source| failed(fjall::Error::Io(source)))?;
        // The log above the engine keeps what its journal has not yet synced, so no batch waits for one.
        let database = Database::builder(held.path())
            .cache_size(options.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(failed)?;
        let keyspace = database
            .keyspace("catalog", || {
                KeyspaceCreateOptions::default()
                    .manual_journal_persist(true)
                    .max_memtable_size(options.memtable_bytes)
                    .expect_point_read_hits(false)
            })
            .map_err(failed)?;
        let engine = Self { database, keyspace, path: shown(path), held };
        engine.check_format()?;
        Ok(engine)
    }

    fn check_format(&self) -> Result<(), Error> {
        match self.own_number(FORMAT_KEY)? {
            Some(found) if found > u64::from(FORMAT) => {
                Err(Error::Newer { found: u32::try_from(found).unwrap_or(u32::MAX), known: FORMAT })
            }
            Some(_) => Ok(()),
            None if self.keyspace.is_empty().map_err(|e| failed(&self.path, e))? => {
                let sealed = checked::seal(FORMAT_KEY, &u64::from(FORMAT).to_le_bytes());
                self.keyspace.insert(FORMAT_KEY, sealed).map_err(|e| failed(&self.path, e))?;
                self.persist()
            }
            None => Err(Error::Corrupt(format!("{} has records but no format version", self.path.display()))),
        }
    }

    fn own_number(&self, key: &[u8]) -> Result<Option<u64>, Error> {
        let Some(sealed) = self.keyspace.get(key).map_err(|e| failed(&self.path, e))? else { return Ok(None) };
        let bytes = checked::open(key, &sealed)?
            .try_into()
            .map_err(|_| Error::Corrupt("one of the engine's own records has a wrong length".to_owned()))?;
        Ok(Some(u64::from_le_bytes(bytes)))
    }
}

fn data_key(key: &[u8]) -> Vec<u8> {
    let mut own = Vec::with_capacity(1 + key.len());
    own.push(DATA);
    own.extend_from_slice(key);
    own
}

fn failed(path: &Path, error: fjall::Error) -> Error {
    match error {
        fjall::Error::Locked => Error::Locked(path.to_owned()),
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            // What one of its files names is not there.
            if source.kind() == std::io::ErrorKind::NotFound {
                return Error::Corrupt(format!("{}: a file is missing", path.display()));
            }
            Error::Io { doing: "use", path: path.to_owned(), source }
        }
        fjall::Error::JournalRecovery(_)
        | fjall::Error::InvalidVersion(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::Storage(_)
        | fjall::Error::Unrecoverable => Error::Corrupt(format!("{}: {error}", path.display())),
        other => Error::Engine(other.to_string()),
    }
}

impl Engine for FjallEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let own = data_key(key);
        match self.keyspace.get(&own).map_err(|e| failed(&self.path, e))? {
            Some(sealed) => Ok(Some(checked::open(&own, &sealed)?.to_vec())),
            None => Ok(None),
        }
    }

    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let prefix = data_key(prefix);
        let from = data_key(from);
        let start = first_key(&prefix, &from);
        let Some(end) = prefix_end(&prefix) else { return Ok(()) };
        if start >= end.as_slice() {
            return Ok(());
        }
        // The plain range of a keyspace may show half a batch; a snapshot never does.
        let snapshot = self.database.snapshot();
        for entry in snapshot.range(&self.keyspace, start..end.as_slice()) {
            let (key, sealed) = entry.into_inner().map_err(|e| failed(&self.path, e))?;
            let value = checked::open(&key, &sealed)?;
            if !visit(&key[1..], value) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, changes: &[Change], applied: Seq) -> Result<(), Error> {
        let mut batch = self.database.batch();
        for change in changes {
            let key = data_key(&change.key);
            match &change.value {
                Some(value) => {
                    let sealed = checked::seal(&key, value);
                    batch.insert(&self.keyspace, key, sealed);
                }
                None => batch.remove(&self.keyspace, key),
            }
        }
        batch.insert(&self.keyspace, APPLIED_KEY, checked::seal(APPLIED_KEY, &applied.0.to_le_bytes()));
        batch.commit().map_err(|e| failed(&self.path, e))
    }

    fn persist(&self) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncData).map_err(|e| failed(&self.path, e))
    }

    fn rest(&self) {
        if let Err(error) = journals::note(self.held.path()) {
            tracing::debug!(path = %self.path.display(), %error, "the next start writes the journals once more");
        }
    }

    fn damaged(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut damaged = Vec::new();
        let Some(end) = prefix_end(&[DATA]) else { return Ok(damaged) };
        for entry in self.database.snapshot().range(&self.keyspace, [DATA].as_slice()..end.as_slice()) {
            let (key, sealed) = entry.into_inner().map_err(|e| failed(&self.path, e))?;
            if checked::open(&key, &sealed).is_err() {
                damaged.push(key[1..].to_vec());
            }
        }
        Ok(damaged)
    }

    fn applied(&self) -> Result<Seq, Error> {
        Ok(Seq(self.own_number(APPLIED_KEY)?.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<FjallEngine, Error> {
        FjallEngine::open(path, FjallOptions::default())
    }

    fn put(key: &[u8], value: &[u8]) -> Change {
        Change { key: key.to_vec(), value: Some(value.to_vec()), fresh: false }
    }

    #[test]
    fn a_value_that_is_not_what_was_written_is_never_given_out() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).unwrap();
        engine.apply(&[put(b"a", b"1"), put(b"b", b"2")], Seq(1)).unwrap();
        let other = engine.keyspace.get(data_key(b"b")).unwrap().unwrap();
        engine.keyspace.insert(data_key(b"a"), other).unwrap();
        assert!(matches!(engine.get(b"a"), Err(Error::Corrupt(_))));
        assert!(matches!(engine.scan(b"", b"", &mut |_, _| true), Err(Error::Corrupt(_))));
        assert_eq!(engine.get(b"b").unwrap().as_deref(), Some(b"2".as_slice()));
        assert_eq!(engine.damaged().unwrap(), [b"a".to_vec()]);
        engine.apply(&[Change { key: b"a".to_vec(), value: None, fresh: false }], Seq(2)).unwrap();
        assert_eq!(engine.damaged().unwrap(), [] as [Vec<u8>; 0]);
        assert!(engine.scan(b"", b"", &mut |_, _| true).is_ok());
    }

    /// Regression: tables, and the list of them, were written by the path that the engine was opened with, which after a rename led into another one.
    #[test]
    fn an_engine_whose_directory_was_renamed_stays_in_it() {
        let above = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| above.path().join(name));
        std::fs::create_dir(&old).unwrap();
        let options = FjallOptions { memtable_bytes: 256 << 10, ..FjallOptions::default() };
        let engine = FjallEngine::open(&old.join("engine"), options).unwrap();
        std::fs::rename(&old, &new).unwrap();
        std::fs::create_dir(&old).unwrap();
        drop(open(&old.join("engine")).unwrap());
        let tables = |dir: &Path| {
            let keyspaces = std::fs::read_dir(dir.join("engine/keyspaces")).unwrap();
            let tables = keyspaces.map(|keyspace| keyspace.unwrap().path().join("tables"));
            tables.filter_map(|tables| Some(std::fs::read_dir(tables).ok()?.count())).sum::<usize>()
        };
        let before = tables(&old);
        let began = std::time::Instant::now();
        let mut last = 0u64;
        let fresh = tables(&new);
        while tables(&new) == fresh && began.elapsed().as_secs() < 60 {
            last += 1;
            engine.apply(&[put(&last.to_le_bytes(), &[7; 4096])], Seq(last)).unwrap();
            assert_eq!(tables(&old), before, "after {last} changes");
        }
        drop(engine);
        assert_eq!(open(&new.join("engine")).unwrap().applied().unwrap(), Seq(last));
        assert_eq!(open(&old.join("engine")).unwrap().applied().unwrap(), Seq(0));
    }

    #[test]
    fn a_later_format_is_refused_and_a_second_opening_too() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).unwrap();
        assert!(matches!(open(dir.path()), Err(Error::Locked(_))));
        engine.keyspace.insert(FORMAT_KEY, checked::seal(FORMAT_KEY, &9u64.to_le_bytes())).unwrap();
        engine.persist().unwrap();
        drop(engine);
        assert!(matches!(open(dir.path()), Err(Error::Newer { found: 9, known: 1 })));
    }

    #[test]
    fn a_scan_stays_below_its_prefix_and_never_shows_the_engines_own_records() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).unwrap();
        engine.apply(&[put(b"", b"0"), put(b"\xff", b"1"), put(b"\xff\xff", b"2")], Seq(3)).unwrap();
        let mut seen = Vec::new();
        for prefix in [b"".as_slice(), b"\xff"] {
            let visit: &mut Visit<'_> = &mut |key, _| {
                seen.push(key.to_vec());
                true
            };
            engine.scan(prefix, b"", visit).unwrap();
        }
        assert_eq!(seen, [b"".to_vec(), vec![0xff], vec![0xff, 0xff], vec![0xff], vec![0xff, 0xff]]);
        assert_eq!(engine.applied().unwrap(), Seq(3));
    }
}
