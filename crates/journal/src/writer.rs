//! The one thread that writes: takes everything queued, writes it once, flushes once, then reports.

use crate::recover::segment_path;
use crate::{Durability, JournalError, frame, snapshot};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Called on the writer's thread once the record is durable, or never will be.
pub(crate) type Completion = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

pub(crate) enum Item {
    Record { payload: Vec<u8>, done: Completion },
    Rotate { number: u64 },
}

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
    pub(crate) durability: Durability,
    pub(crate) shared: Arc<Shared>,
    pub(crate) segment: u64,
    pub(crate) file: File,
    pub(crate) written: u64,
    pub(crate) durable: u64,
}

impl Writer {
    /// Opens segment `number` for appending; it must not exist.
    pub(crate) fn create(directory: &std::path::Path, number: u64) -> Result<File, JournalError> {
        let path = segment_path(directory, number);
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| JournalError::io("create", &path, e))?;
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
                    return;
                }
                queue.bytes = 0;
                self.shared.room.notify_all();
                std::mem::take(&mut queue.items)
            };
            self.commit(items);
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
                Item::Rotate { number } => {
                    result = result.and_then(|()| self.flush(&mut buffer)).and_then(|()| self.rotate(number));
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
        let path = || segment_path(&self.directory, self.segment);
        self.file.write_all(buffer).map_err(|e| JournalError::io("append to", &path(), e))?;
        if self.durability == Durability::Disk {
            self.file.sync_data().map_err(|e| JournalError::io("flush", &path(), e))?;
        }
        self.written += buffer.len() as u64;
        self.durable = self.written;
        buffer.clear();
        Ok(())
    }

    fn rotate(&mut self, number: u64) -> Result<(), JournalError> {
        self.file = Self::create(&self.directory, number)?;
        self.segment = number;
        self.written = 0;
        self.durable = 0;
        Ok(())
    }
}
