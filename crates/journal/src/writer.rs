//! The one thread that writes: takes everything queued, writes it once, flushes once, then reports.

use crate::recover::segment_path;
use crate::reserve::Reserve;
use crate::{Durability, JournalError, frame, snapshot};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Zeros written ahead of the records, so that most flushes find the file's size and extents as they are on disk already:
/// a flush that has to write those as well waits for the file system's own journal.
const AHEAD_BYTES: usize = 1 << 20;

/// Called on the writer's thread once the record is durable, or never will be.
pub(crate) type Completion = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

pub(crate) enum Item {
    Record {
        payload: Vec<u8>,
        done: Completion,
    },
    Rotate {
        begun: Rotation,
    },
    /// Nothing to write: reported with what was queued before it.
    Barrier {
        done: Completion,
    },
}

/// A segment that was asked for, and which it is once that has been tried.
#[derive(Debug, Clone, Default)]
pub struct Rotation(pub(crate) Arc<OnceLock<Result<u64, JournalError>>>);

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) items: Vec<Item>,
    pub(crate) bytes: usize,
    pub(crate) stop: bool,
    pub(crate) poison: Option<String>,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    /// Something was queued, or the end was asked for.
    pub(crate) work: Condvar,
    /// The queue was taken.
    pub(crate) room: Condvar,
}

pub(crate) struct Writer {
    pub(crate) directory: PathBuf,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) durability: Durability,
    pub(crate) shared: Arc<Shared>,
    pub(crate) segment: u64,
    pub(crate) file: File,
    pub(crate) written: u64,
    /// Of these, what was flushed: nothing where nothing is.
    pub(crate) durable: u64,
    /// Bytes of the segment's file, zeros ahead of the records included.
    pub(crate) length: u64,
}

impl Writer {
    /// Opens segment `number` for appending; it must not exist.
    pub(crate) fn create(directory: &Path, number: u64, reserve: &Reserve) -> Result<File, JournalError> {
        Self::create_with(directory, number, |create| reserve.or_with_it(create))
    }

    fn create_with(
        directory: &Path,
        number: u64,
        room: impl FnOnce(&dyn Fn() -> io::Result<File>) -> io::Result<File>,
    ) -> Result<File, JournalError> {
        let path = segment_path(directory, number);
        let create = || File::options().write(true).create_new(true).open(&path);
        let file = room(&create).map_err(|e| JournalError::io("create", &path, e))?;
        snapshot::sync_directory(directory)?;
        Ok(file)
    }

    pub(crate) fn run(mut self) {
        loop {
            let items = {
                let mut queue = self.shared.queue.lock();
                while queue.items.is_empty() && !queue.stop {
                    self.shared.work.wait(&mut queue);
                }
                if queue.items.is_empty() {
                    break;
                }
                queue.bytes = 0;
                self.shared.room.notify_all();
                std::mem::take(&mut queue.items)
            };
            self.commit(items);
        }
        self.end_segment();
    }

    /// Gives back the room ahead. Whoever reads the segment does without it, so a failure does no harm.
    fn end_segment(&self) {
        if self.length > self.written && self.refused().is_ok() {
            let _ = self.file.set_len(self.written);
        }
    }

    fn commit(&mut self, items: Vec<Item>) {
        let mut buffer = Vec::new();
        let mut waiting = Vec::new();
        let mut result = self.refused();
        for item in items {
            match item {
                Item::Record { payload, done } => {
                    let offset = self.written + buffer.len() as u64;
                    frame::encode(&mut buffer, self.segment, offset, self.durable, &payload);
                    waiting.push(done);
                }
                Item::Barrier { done } => waiting.push(done),
                Item::Rotate { begun } => {
                    result = result.and_then(|()| self.flush(&mut buffer)).and_then(|()| self.rotate(&begun));
                }
            }
        }
        result = result.and_then(|()| self.flush(&mut buffer));
        if let Err(error) = &result {
            let mut queue = self.shared.queue.lock();
            if queue.poison.is_none() {
                tracing::error!(%error, "the journal fails and accepts nothing more");
                queue.poison = Some(error.to_string());
            }
        }
        for done in waiting {
            done(result.clone());
        }
    }

    fn refused(&self) -> Result<(), JournalError> {
        self.shared.queue.lock().poison.clone().map_or(Ok(()), |why| Err(JournalError::Poisoned(why)))
    }

    fn flush(&mut self, buffer: &mut Vec<u8>) -> Result<(), JournalError> {
        if buffer.is_empty() {
            return Ok(());
        }
        let failed =
            |what, writer: &Self, e| JournalError::io(what, &segment_path(&writer.directory, writer.segment), e);
        let written = self.reserve.or_with_it(|| self.file.write_all_at(buffer, self.written));
        written.map_err(|e| failed("append to", self, e))?;
        if self.durability == Durability::Disk {
            self.fill_ahead(self.written + buffer.len() as u64);
            self.file.sync_data().map_err(|e| failed("flush", self, e))?;
            self.durable = self.written + buffer.len() as u64;
        }
        self.written += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Fills with zeros ahead of `end` where records have come to the end of the file. A full disk is no failure of the
    /// records, which are written.
    fn fill_ahead(&mut self, end: u64) {
        if end > self.length {
            self.length = end;
            if self.file.write_all_at(&vec![0; AHEAD_BYTES], end).is_ok() {
                self.length += AHEAD_BYTES as u64;
            }
        }
    }

    /// Begins the next segment. Where it cannot be made, now, records go on in this one, and only who asked is told.
    fn rotate(&mut self, begun: &Rotation) -> Result<(), JournalError> {
        let number = self.segment + 1;
        // The inodes that are held are for a start, which cannot do without.
        let room = |create: &dyn Fn() -> io::Result<File>| {
            if self.reserve.lacks_inodes() { create() } else { self.reserve.or_with_it(create) }
        };
        let file = match Self::create_with(&self.directory, number, room) {
            Ok(file) => file,
            Err(error) => {
                let _ = begun.0.set(Err(error.clone()));
                // One that is there would be read as what follows this segment.
                let is_there = segment_path(&self.directory, number).try_exists().unwrap_or(true);
                return if is_there { Err(error) } else { Ok(()) };
            }
        };
        self.end_segment();
        self.file = file;
        self.segment = number;
        self.written = 0;
        self.durable = 0;
        self.length = 0;
        let _ = begun.0.set(Ok(number));
        Ok(())
    }
}
