//! The log: two files of fixed length, written in turn.
//!
//! While one is written, what the other holds is brought into the engine and made durable there; then that
//! one may be begun anew. So at every moment the engine's durable state and the records after it are whole.

mod buffer;
mod ends;
mod file;
mod medium;
mod record;
mod recover;

pub(crate) use self::file::sync_dir_of;
pub(crate) use self::record::{fuzz_changes, put_header_right};
pub(crate) use self::recover::{Recovered, recover};

pub use self::file::FileMedium;
pub use self::medium::Medium;

use self::buffer::AlignedBuffer;
use self::ends::Ends;
use self::record::{Header, encode_layer};
use crate::Seq;
use crate::layer::Layer;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// Unit of all writing, in bytes: what `O_DIRECT` takes everywhere.
pub const BLOCK: usize = 4096;

/// A random number; need not be secret.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

struct LogFile {
    medium: Box<dyn Medium>,
    len: u64,
    /// The newest commit in it.
    last: Seq,
}

/// The writing end.
pub(crate) struct Log {
    files: [LogFile; 2],
    /// The file being written.
    current: usize,
    /// Where the next record goes; at the end of the file when it takes no more.
    offset: u64,
    store: u64,
    epoch: u64,
    salt: u64,
    index: u32,
    /// Where durable records end, and those after them.
    ends: Ends,
    /// Something was written to the current file that may not survive a power cut.
    unflushed: bool,
    buffer: AlignedBuffer,
}

/// Whether a record is to survive a power cut at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// It is, with all before it.
    Now,
    /// Somebody flushes the device afterwards, or calls [`Log::flush`].
    Later,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Append {
    /// It is in the log, in `bytes`; `switched` when the other file was begun for it.
    Written {
        /// Bytes of log.
        bytes: u64,
        /// The other file was begun.
        switched: bool,
    },
    /// Both files hold commits that are not durable in the engine: bring them there and ask again.
    Full,
    /// No file could ever hold it.
    TooLarge,
}

impl Log {
    /// A log whose old records are no longer needed: all that they held is durable in the engine.
    pub fn begin(media: [Box<dyn Medium>; 2], store: u64, recovered: Recovered) -> io::Result<Self> {
        let [a, b] = media;
        let files =
            [LogFile { len: a.len()?, medium: a, last: Seq(0) }, LogFile { len: b.len()?, medium: b, last: Seq(0) }];
        // The file of the newest epoch goes first: were its torn tail to become readable later, the record
        // before it would be gone.
        Ok(Self {
            files,
            current: recovered.newest_file,
            offset: 0,
            store,
            epoch: recovered.newest_epoch + 1,
            salt: random(),
            index: 0,
            ends: Ends::after(recovered.newest),
            unflushed: false,
            buffer: AlignedBuffer::default(),
        })
    }

    /// Writes a layer as one record. `durable` is the newest commit known to be so, `persisted` the newest one that is
    /// durable in the engine.
    pub fn append(&mut self, layer: &Layer, durable: Seq, persisted: Seq, flush: Flush) -> io::Result<Append> {
        let (count, payload_bytes, payload_sum) = encode_layer(layer, &mut self.buffer);
        let padded = self.buffer.len().next_multiple_of(BLOCK);
        self.buffer.pad_to(padded);
        let bytes = padded as u64;
        if bytes > self.files.iter().map(|f| f.len).min().unwrap_or(0) {
            return Ok(Append::TooLarge);
        }
        let switched = self.offset + bytes > self.files[self.current].len;
        if switched {
            let other = 1 - self.current;
            if self.files[other].last > persisted {
                return Ok(Append::Full);
            }
            self.flush()?;
            self.current = other;
            self.offset = 0;
            self.epoch += 1;
            self.salt = random();
            self.index = 0;
        }
        let header = Header {
            store: self.store,
            epoch: self.epoch,
            salt: self.salt,
            index: self.index,
            first: layer.first,
            last: layer.last,
            durable: self.ends.upto(durable),
            count,
            payload_bytes,
            payload_sum,
        };
        header.encode(self.buffer.bytes_mut());
        let file = &mut self.files[self.current];
        file.last = layer.last;
        // Whoever flushes the device flushes no more than that.
        let in_place = flush == Flush::Later && file.medium.is_in_place(self.offset, bytes);
        let flush = if in_place { Flush::Later } else { Flush::Now };
        // One durable write says nothing of those before it.
        let alone = flush == Flush::Now && !self.unflushed;
        self.unflushed = !alone;
        write_all(file.medium.as_mut(), self.buffer.bytes(), self.offset, alone)?;
        if flush == Flush::Now {
            self.flush()?;
        }
        self.offset += bytes;
        self.index += 1;
        self.ends.push(layer.last);
        Ok(Append::Written { bytes, switched })
    }

    /// Returns when every record survives a power cut.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unflushed {
            self.files[self.current].medium.sync()?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Somebody flushed the device of the log after the last record was written.
    pub fn flushed(&mut self) {
        self.unflushed = false;
    }

    /// Whose cache holds records that are not flushed; see [`Medium::device`].
    pub fn device(&self) -> Option<u64> {
        let [a, b] = &self.files;
        a.medium.device().filter(|device| b.medium.device() == Some(*device))
    }

    /// Says that commits up to this one went past the log: the next record begins a file anew.
    pub fn skip(&mut self, upto: Seq) {
        self.ends = Ends::after(upto);
        self.offset = self.files[self.current].len;
    }

    /// Bytes of both files.
    pub fn capacity_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.len).sum()
    }
}

fn write_all(medium: &mut dyn Medium, bytes: &[u8], offset: u64, durably: bool) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let (rest, at) = (&bytes[done..], offset + done as u64);
        match if durably { medium.write_durably_at(rest, at) } else { medium.write_at(rest, at) } {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) if done + n >= bytes.len() => break,
            // The rest must begin at a block again; less than a block written is no progress.
            Ok(n) if n < BLOCK => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n / BLOCK * BLOCK,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
