//! The journal as its users see it.

use crate::recover::{Recovered, numbers, recover, segment_path};
use crate::reserve::Reserve;
use crate::writer::{Completion, Item, Rotation, Shared, Writer};
use crate::{JournalError, Options, frame, private_directory, snapshot};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

#[cfg(test)]
mod tests;

/// Callers wait when more than this is queued, so that a slow disk bounds memory.
const QUEUE_MAX_BYTES: usize = 64 << 20;

/// An open journal. Dropping it writes what is queued and ends the writer's thread.
pub struct Journal {
    directory: PathBuf,
    shared: Arc<Shared>,
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
        private_directory(directory).map_err(|e| JournalError::io("create directory", directory, e))?;
        snapshot::remove_unfinished(directory)?;
        // What is recovered is written once more, which takes room where nothing is written in place.
        let reserve = Arc::new(Reserve::open(directory));
        let (recovered, number) = recover(directory, options.durability)?;
        let shared = Arc::new(Shared::default());
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
        let journal = Self { directory: directory.to_owned(), shared, reserve, writer: Some(handle) };
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

    /// Does `work`, and once more with that room given up if the disk is full: for what has to be done since a record says so.
    ///
    /// # Errors
    /// As `work`.
    pub fn with_room<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        self.reserve.or_with_it(work)
    }

    /// Starts a new segment: records appended from now on follow the snapshot to be installed with what is returned.
    /// Call it under the same lock as [`Self::append`], together with taking the state.
    pub fn rotate(&self) -> Rotation {
        let begun = Rotation::default();
        let mut queue = self.shared.queue.lock();
        queue.items.push(Item::Rotate { begun: begun.clone() });
        self.shared.work.notify_one();
        begun
    }

    /// Writes the state taken at [`Self::rotate`] and drops what it replaces. Waits until the records before are durable: the state
    /// may hold what one says that never will be.
    ///
    /// # Errors
    /// When the segment or the snapshot cannot be written, or an earlier write failed; the older one and all records are then still there.
    pub fn install_snapshot(&self, begun: &Rotation, state: &[u8]) -> Result<(), JournalError> {
        self.barrier().wait()?;
        let number = begun.0.get().cloned().unwrap_or_else(|| Err(JournalError::Poisoned("no segment".into())))?;
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
