//! The whole content as one compressed stream, and back.
//!
//! The stream: 8 bytes of magic, then one zstd frame with, for each key in order, a byte 1, the lengths of key
//! and value (u32, little-endian), key and value; at the end a byte 0, the number of entries (u64), the commit
//! it was taken at (u64) and the CRC-32 of all before it in the frame.

use super::Store;
use crate::kv::Visit;
use crate::merge::Merge;
use crate::{Batch, Error, Kv, Seq, is_damage};
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// What a snapshot begins with; the last byte is the version.
const MAGIC: &[u8; 8] = b"ULLKVSN\x01";
/// Entries committed at a time when restoring.
const BATCH_ENTRIES: usize = 4096;
/// Compression level: content of the catalog shrinks about as far as at higher ones.
const LEVEL: i32 = 3;

/// Takes a key and its value.
type Put<'a> = dyn FnMut(&[u8], &[u8]) -> io::Result<()> + 'a;

/// Passes bytes on and sums them up.
pub(super) struct Summed<T> {
    pub inner: T,
    pub sum: crc32fast::Hasher,
}

impl<T> Summed<T> {
    pub fn new(inner: T) -> Self {
        Self { inner, sum: crc32fast::Hasher::new() }
    }
}

impl<T: Write> Summed<T> {
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }

    fn put_entry(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.put_change(1, key, value)
    }

    pub fn put_change(&mut self, kind: u8, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.put(&[kind])?;
        self.put(&(key.len() as u32).to_le_bytes())?;
        self.put(&(value.len() as u32).to_le_bytes())?;
        self.put(key)?;
        self.put(value)
    }
}

impl<T: Read> Summed<T> {
    pub fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    pub fn take_vec(&mut self, len: u32) -> io::Result<Vec<u8>> {
        // Grows as bytes arrive: a damaged length must not allocate 4 GiB.
        let mut bytes = Vec::new();
        let read = self.inner.by_ref().take(u64::from(len)).read_to_end(&mut bytes)?;
        if read < len as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.sum.update(&bytes);
        Ok(bytes)
    }
}

pub(super) fn write_failed(source: io::Error) -> Error {
    Error::Io { doing: "write a snapshot of", path: PathBuf::new(), source }
}

pub(super) fn read_failed(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            Error::Corrupt(format!("the snapshot is not whole: {source}"))
        }
        _ if is_damage(&source) => Error::Corrupt(format!("the snapshot cannot be read: {source}")),
        _ => Error::Io { doing: "read a snapshot of", path: PathBuf::new(), source },
    }
}

impl Store {
    /// Writes the whole content, as it was at one commit, durable by then; gives that commit back. Commits go
    /// on meanwhile.
    pub fn snapshot_to(&self, out: &mut dyn Write) -> Result<Seq, Error> {
        self.core.flush(Seq(u64::MAX))?;
        out.write_all(MAGIC).map_err(write_failed)?;
        let encoder = zstd::stream::write::Encoder::new(out, LEVEL).map_err(write_failed)?;
        let mut out = Summed::new(encoder);
        let mut count = 0u64;
        let cut = self.visit_cut(&mut |key, value| {
            count += 1;
            out.put_entry(key, value)
        })?;
        let finish = || -> io::Result<()> {
            out.put(&[0])?;
            out.put(&count.to_le_bytes())?;
            out.put(&cut.0.to_le_bytes())?;
            let sum = out.sum.clone().finalize();
            out.inner.write_all(&sum.to_le_bytes())?;
            out.inner.finish()?.flush()
        };
        finish().map_err(write_failed)?;
        Ok(cut)
    }

    /// Visits what is durable now, in key order; gives back the last commit in it.
    fn visit_cut(&self, put: &mut Put<'_>) -> Result<Seq, Error> {
        // While this is held nothing enters the engine. An engine's scan shows one state of it, so by its first
        // visit this can go: what enters later stays invisible.
        let mut guard = Some(self.core.applying.lock());
        let (layers, cut) = self.core.state.lock().cut();
        let mut above = Merge::new(layers.iter().rev().map(|layer| layer.range(b"", None))).peekable();
        let mut failed = Ok(());
        let mut merge = |key: &[u8], value: &[u8]| -> io::Result<()> {
            while let Some((upper, upper_value)) = above.next_if(|(upper, _)| *upper < key) {
                upper_value.map_or(Ok(()), |v| put(upper, v))?;
            }
            match above.next_if(|(upper, _)| *upper == key) {
                Some((_, upper_value)) => upper_value.map_or(Ok(()), |v| put(key, v)),
                None => put(key, value),
            }
        };
        let visit: &mut Visit<'_> = &mut |key, value| {
            guard.take();
            failed = merge(key, value);
            failed.is_ok()
        };
        self.core.engine.scan(b"", b"", visit)?;
        failed.map_err(write_failed)?;
        for (key, value) in above {
            value.map_or(Ok(()), |v| put(key, v)).map_err(write_failed)?;
        }
        Ok(cut)
    }

    /// Brings back the content of a snapshot and gives back the commit it was taken at; the store must be
    /// empty and not in use yet. Commits go on from there, and all is durable when it returns.
    ///
    /// After an error the store holds a part: throw its directory away.
    pub fn restore_from(&self, from: &mut dyn Read) -> Result<Seq, Error> {
        let mut occupied = false;
        self.scan(b"", b"", &mut |_, _| {
            occupied = true;
            false
        })?;
        if occupied {
            return Err(Error::Engine("a snapshot can only be restored into an empty catalog".to_owned()));
        }
        let mut batch = Batch::new();
        let mut waiting = 0;
        let cut = read_entries(from, &mut |key, value| {
            batch.put(key, value);
            waiting += 1;
            if waiting < BATCH_ENTRIES {
                return Ok(());
            }
            waiting = 0;
            self.commit(std::mem::take(&mut batch)).map(drop)
        })?;
        {
            // The snapshot's numbers are taken; the next record covers all from the last durable one on.
            let mut state = self.core.state.lock();
            state.newest = state.newest.max(cut);
        }
        self.commit(batch)?;
        self.checkpoint()?;
        Ok(cut)
    }
}

/// Takes a key and its value as they are read.
type Take<'a> = dyn FnMut(Vec<u8>, Vec<u8>) -> Result<(), Error> + 'a;

/// Reads a snapshot to its end, and gives back the commit it was taken at. Only then is it known to be whole.
pub(crate) fn read_entries(from: &mut dyn Read, take: &mut Take<'_>) -> Result<Seq, Error> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(read_failed)?;
    let (title, version) = magic.split_at(MAGIC.len() - 1);
    if title != &MAGIC[..MAGIC.len() - 1] {
        return Err(Error::Corrupt("this is no snapshot of a catalog".to_owned()));
    }
    if version[0] > MAGIC[MAGIC.len() - 1] {
        return Err(Error::Newer { found: u32::from(version[0]), known: u32::from(MAGIC[MAGIC.len() - 1]) });
    }
    let decoder = zstd::stream::read::Decoder::new(from).map_err(read_failed)?;
    let mut from = Summed::new(decoder);
    let mut count = 0u64;
    while from.take::<1>().map_err(read_failed)? == [1] {
        let key_len = u32::from_le_bytes(from.take().map_err(read_failed)?);
        let value_len = u32::from_le_bytes(from.take().map_err(read_failed)?);
        let key = from.take_vec(key_len).map_err(read_failed)?;
        let value = from.take_vec(value_len).map_err(read_failed)?;
        take(key, value)?;
        count += 1;
    }
    let stated = u64::from_le_bytes(from.take().map_err(read_failed)?);
    let cut = Seq(u64::from_le_bytes(from.take().map_err(read_failed)?));
    let sum = from.sum.clone().finalize().to_le_bytes();
    if from.take::<4>().map_err(read_failed)? != sum || stated != count {
        return Err(Error::Corrupt("the snapshot fails its checksum".to_owned()));
    }
    Ok(cut)
}
