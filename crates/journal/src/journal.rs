//! The journal as its users see it.

use crate::recover::{Recovered, numbers, recover, segment_path};
use crate::reserve::Reserve;
use crate::writer::{Completion, Item, Shared, Writer};
use crate::{JournalError, Options, frame, snapshot};
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Callers wait when more than this is queued, so that a slow disk bounds memory.
const QUEUE_MAX_BYTES: usize = 64 << 20;

/// An open journal. Dropping it writes what is queued and ends the writer's thread.
pub struct Journal {
    directory: PathBuf,
    shared: Arc<Shared>,
    next_segment: Mutex<u64>,
    reserve: Arc<Reserve>,
    writer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens (or makes) the journal in `directory` and returns what it holds.
    ///
    /// # Errors
    /// When the directory cannot be read or written, or when durable bytes are damaged.
    pub fn open(directory: &Path, options: Options) -> Result<(Self, Recovered), JournalError> {
        fs::create_dir_all(directory).map_err(|e| JournalError::io("create directory", directory, e))?;
        let (recovered, number) = recover(directory, options.durability)?;
        let shared = Arc::new(Shared::default());
        let reserve = Arc::new(Reserve::open(directory));
        let writer = Writer {
            directory: directory.to_owned(),
            reserve: Arc::clone(&reserve),
            durability: options.durability,
            shared: Arc::clone(&shared),
            segment: number,
            file: Writer::create(directory, number, &reserve)?,
            written: 0,
            durable: 0,
            length: 0,
        };
        let handle = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run())
            .map_err(|e| JournalError::io("start the writer of", directory, e))?;
        let journal = Self {
            directory: directory.to_owned(),
            shared,
            next_segment: Mutex::new(number + 1),
            reserve,
            writer: Some(handle),
        };
        Ok((journal, recovered))
    }

    /// Queues a record; `done` runs on the writer's thread once it is durable, or never will be. Records are written
    /// in the order of these calls, so a caller that appends under its own lock gets its own order back.
    pub fn append_then(&self, payload: Vec<u8>, done: impl FnOnce(Result<(), JournalError>) + Send + 'static) {
        self.queue(payload, Box::new(done));
        self.shared.work.notify_one();
    }

    fn queue(&self, payload: Vec<u8>, done: Completion) {
        if payload.len() > frame::RECORD_MAX_BYTES {
            return done(Err(JournalError::TooLarge(payload.len())));
        }
        let mut queue = self.shared.queue.lock();
        while queue.bytes > QUEUE_MAX_BYTES && queue.poison.is_none() {
            // Who queued what is in the way may not have told the writer yet: it may be this caller.
            self.shared.work.notify_one();
            self.shared.room.wait(&mut queue);
        }
        if let Some(why) = queue.poison.clone() {
            drop(queue);
            return done(Err(JournalError::Poisoned(why)));
        }
        queue.bytes += payload.len() + frame::HEADER_BYTES;
        queue.items.push(Item::Record { payload, done });
    }

    /// A handle that is reported once everything queued before is durable, or never will be. Where all of it is already, nothing
    /// is written or flushed.
    pub fn barrier(&self) -> Pending {
        let (done, pending) = Pending::new(&self.shared);
        self.shared.queue.lock().items.push(Item::Barrier { done });
        pending
    }

    /// Queues a record and returns a handle to wait on, so that a caller can leave its lock first. The writer is woken
    /// by the handle, waited on or dropped: waking it takes longer than all else here, and it would come between the
    /// caller and the end of its lock.
    pub fn append(&self, payload: Vec<u8>) -> Pending {
        let (done, pending) = Pending::new(&self.shared);
        self.queue(payload, done);
        pending
    }

    /// Whether there is room for records beyond what the disk has free. While there is none, nothing should be done that only
    /// takes more.
    pub fn has_room(&self) -> bool {
        self.reserve.is_whole()
    }

    /// Holds that room again, if there is enough. It is given up by [`Self::open`] and when the disk is full.
    pub fn hold_room(&self) {
        if !self.has_room() {
            self.reserve.hold();
        }
    }

    /// Starts a new segment: records appended from now on follow the snapshot to be installed under the number returned.
    /// Call it under the same lock as [`Self::append`], together with taking the state.
    pub fn rotate(&self) -> u64 {
        let mut next = self.next_segment.lock();
        let number = *next;
        *next += 1;
        let mut queue = self.shared.queue.lock();
        queue.items.push(Item::Rotate { number });
        self.shared.work.notify_one();
        number
    }

    /// Writes the state taken at [`Self::rotate`] and drops what it replaces. Waits until the records before are durable: the state
    /// may hold what one says that never will be.
    ///
    /// # Errors
    /// When the snapshot cannot be written, or an earlier write failed; the older one and all records are then still there.
    pub fn install_snapshot(&self, number: u64, state: &[u8]) -> Result<(), JournalError> {
        self.barrier().wait()?;
        snapshot::write(&self.directory, number, state, &self.reserve)?;
        for old in numbers(&self.directory, "snapshot-")?.into_iter().filter(|&old| old < number) {
            let path = snapshot::path(&self.directory, old);
            fs::remove_file(&path).map_err(|e| JournalError::io("remove", &path, e))?;
        }
        for old in numbers(&self.directory, "segment-")?.into_iter().filter(|&old| old < number) {
            let path = segment_path(&self.directory, old);
            fs::remove_file(&path).map_err(|e| JournalError::io("remove", &path, e))?;
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A completion may own the last reference to the journal and so drop it on the writer's own thread.
            if writer.thread().id() != std::thread::current().id() && writer.join().is_err() {
                tracing::error!("the journal's writer panicked");
            }
        }
    }
}

/// A record on its way to the disk.
pub struct Pending {
    done: mpsc::Receiver<Result<(), JournalError>>,
    /// Whose writer was not told yet.
    unsaid: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.tell();
    }
}

impl Pending {
    fn new(shared: &Arc<Shared>) -> (Completion, Self) {
        let (sender, done) = mpsc::sync_channel(1);
        let completion = move |result| {
            // A caller that stopped waiting wants no answer.
            let _ = sender.send(result);
        };
        (Box::new(completion), Self { done, unsaid: Some(Arc::clone(shared)) })
    }

    /// Once: to wake the writer for nothing costs as much as to wake it for a record.
    fn tell(&mut self) {
        if let Some(shared) = self.unsaid.take() {
            shared.work.notify_one();
        }
    }

    /// Blocks until the record is durable.
    ///
    /// # Errors
    /// When it never will be.
    pub fn wait(mut self) -> Result<(), JournalError> {
        self.tell();
        self.done.recv().unwrap_or_else(|_| Err(JournalError::Poisoned("the writer is gone".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use std::io::{Seek, SeekFrom, Write};

    fn records(directory: &Path) -> Recovered {
        Journal::open(directory, Options::default()).unwrap().1
    }

    #[test]
    fn what_was_reported_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..3u8 {
            let (journal, recovered) = Journal::open(directory.path(), Options::default()).unwrap();
            assert_eq!(recovered.records.len(), usize::from(round) * 10);
            for i in 0..10u8 {
                journal.append(vec![round, i]).wait().unwrap();
            }
        }
        assert_eq!(records(directory.path()).records[29], vec![2, 9]);
    }

    #[test]
    fn a_snapshot_replaces_what_came_before_and_nothing_after() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        journal.append(b"before".to_vec()).wait().unwrap();
        let number = journal.rotate();
        journal.append(b"after".to_vec()).wait().unwrap();
        journal.install_snapshot(number, b"state").unwrap();
        drop(journal);
        let recovered = records(directory.path());
        assert_eq!(recovered.snapshot.as_deref(), Some(&b"state"[..]));
        assert_eq!(recovered.records, vec![b"after".to_vec()]);
    }

    #[test]
    fn a_crash_between_rotation_and_snapshot_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        journal.append(b"one".to_vec()).wait().unwrap();
        journal.rotate();
        journal.append(b"two".to_vec()).wait().unwrap();
        drop(journal);
        assert_eq!(records(directory.path()).records, vec![b"one".to_vec(), b"two".to_vec()]);
    }

    /// A snapshot of a state whose records had failed dropped the segments that told what had not.
    #[test]
    fn a_poisoned_journal_keeps_its_segments() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        journal.append(b"one".to_vec()).wait().unwrap();
        // The writer makes each segment anew.
        fs::write(segment_path(directory.path(), 1), b"").unwrap();
        let number = journal.rotate();
        assert!(journal.install_snapshot(number, b"state").is_err());
        assert!(matches!(journal.barrier().wait(), Err(JournalError::Poisoned(_))));
        drop(journal);
        let recovered = records(directory.path());
        assert_eq!((recovered.snapshot, recovered.records), (None, vec![b"one".to_vec()]));
    }

    #[test]
    fn who_waits_for_what_others_wrote_has_nothing_written() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        let record = journal.append(b"one".to_vec());
        journal.barrier().wait().unwrap();
        assert!(matches!(record.done.try_recv(), Ok(Ok(()))), "reported before");
        let before = fs::metadata(segment_path(directory.path(), 0)).unwrap().modified().unwrap();
        journal.barrier().wait().unwrap();
        assert_eq!(fs::metadata(segment_path(directory.path(), 0)).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn a_torn_tail_is_cut_at_every_length() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, 0, 0, 0, b"whole");
        let whole = bytes.len();
        frame::encode(&mut bytes, 0, whole as u64, 0, b"torn");
        for length in whole..bytes.len() {
            let place = directory.path().join(length.to_string());
            fs::create_dir(&place).unwrap();
            fs::write(segment_path(&place, 0), &bytes[..length]).unwrap();
            let recovered = records(&place);
            assert_eq!(recovered.records, vec![b"whole".to_vec()], "cut at {length}");
            let torn = bytes[whole..length].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            assert_eq!(recovered.torn_bytes, torn as u64);
            assert_eq!(records(&place).torn_bytes, 0, "the tail was cut off");
        }
    }

    /// The segment was taken for torn, and what came after it replayed over the gap.
    #[test]
    fn only_the_last_segment_may_be_torn() {
        let directory = tempfile::tempdir().unwrap();
        for record in ["one", "two"] {
            let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
            journal.append(record.into()).wait().unwrap();
        }
        let path = segment_path(directory.path(), 0);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[frame::HEADER_BYTES] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let opened = Journal::open(directory.path(), Options::default());
        assert!(matches!(opened, Err(JournalError::Damaged { offset: 0, .. })), "{opened:?}");
        // As a power cut may leave it: its length was set, and not flushed.
        fs::write(&path, [&whole[..], &[0; 4096]].concat()).unwrap();
        assert_eq!(records(directory.path()).records, vec![b"one".to_vec(), b"two".to_vec()]);
        // Without flushes any segment may have lost its end.
        fs::write(&path, &damaged).unwrap();
        let (_, recovered) = Journal::open(directory.path(), Options { durability: Durability::Process }).unwrap();
        assert_eq!(recovered.records, vec![b"two".to_vec()]);
    }

    #[test]
    fn a_missing_segment_is_refused() {
        for missing in [0, 1] {
            let directory = tempfile::tempdir().unwrap();
            for record in ["one", "two", "three"] {
                let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
                journal.append(record.into()).wait().unwrap();
            }
            let path = segment_path(directory.path(), missing);
            fs::remove_file(&path).unwrap();
            let opened = Journal::open(directory.path(), Options::default());
            assert!(matches!(&opened, Err(JournalError::Missing(which)) if *which == path), "{opened:?}");
        }
    }

    #[test]
    fn damage_to_what_was_durable_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        for i in 0..4u8 {
            journal.append(vec![i; 10]).wait().unwrap();
        }
        drop(journal);
        let path = segment_path(directory.path(), 0);
        let mut file = File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(frame::HEADER_BYTES as u64 + 3)).unwrap();
        file.write_all(b"X").unwrap();
        assert!(matches!(
            Journal::open(directory.path(), Options::default()),
            Err(JournalError::Damaged { offset: 0, .. })
        ));
    }

    use std::fs::File;

    #[test]
    fn zeros_ahead_of_the_records_are_no_damage_and_end_with_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = segment_path(directory.path(), 0);
        let (journal, _) = Journal::open(directory.path(), Options { durability: Durability::Disk }).unwrap();
        journal.append(b"first".to_vec()).wait().unwrap();
        let with_zeros = fs::read(&path).unwrap();
        assert!(with_zeros.len() > 1 << 20, "room is made ahead");
        journal.append(vec![7; 2 << 20]).wait().unwrap();
        drop(journal);
        let records_alone = 2 * frame::HEADER_BYTES as u64 + 5 + (2 << 20);
        assert_eq!(fs::metadata(&path).unwrap().len(), records_alone);
        // As a crash leaves it.
        fs::write(&path, &with_zeros).unwrap();
        let recovered = records(directory.path());
        assert_eq!((recovered.records, recovered.torn_bytes), (vec![b"first".to_vec()], 0));
    }

    #[test]
    fn a_record_that_nobody_waits_for_is_written_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        drop(journal.append(b"dropped".to_vec()));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let path = segment_path(directory.path(), 0);
        while !fs::read(&path).unwrap().windows(7).any(|bytes| bytes == b"dropped") {
            assert!(std::time::Instant::now() < until, "the record never came to the disk");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn who_queues_more_than_there_is_room_for_before_it_waits_is_not_stuck() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Process };
        let (journal, _) = Journal::open(directory.path(), options).unwrap();
        let (told, tells) = mpsc::channel();
        std::thread::spawn(move || {
            let pending: Vec<_> = (0..6).map(|_| journal.append(vec![7; 16 << 20])).collect();
            told.send(pending.into_iter().all(|pending| pending.wait().is_ok())).unwrap();
        });
        assert_eq!(tells.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn many_threads_share_flushes_and_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        std::thread::scope(|scope| {
            for t in 0..8u8 {
                let journal = &journal;
                scope.spawn(move || {
                    for i in 0..50u8 {
                        journal.append(vec![t, i]).wait().unwrap();
                    }
                });
            }
        });
        drop(journal);
        let mut found = records(directory.path()).records;
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 400);
    }
}
