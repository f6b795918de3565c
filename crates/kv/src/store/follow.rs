//! What became durable, handed on in order: so that a copy elsewhere can follow without reading everything again.
//!
//! A tail is a stream: 8 bytes of magic, then one zstd frame with, for each key in order, a byte 1 (set) or 2 (removed), the
//! lengths of key and value (u32, little-endian), key and value; at the end a byte 0, the number of entries (u64) and the
//! CRC-32 of all before it in the frame.

use super::Store;
use super::snapshot::{Summed, read_failed, write_failed};
use crate::layer::Layer;
use crate::{Batch, Error, Kv, Seq};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, Weak};

/// What a tail begins with; the last byte is the version.
const MAGIC: &[u8; 8] = b"ULLKVTL\x01";
/// Compression level.
const LEVEL: i32 = 3;

/// Told of every group of commits when it is durable and has reached the engine, in order.
pub trait Follow: Send + Sync {
    /// Called while nothing else enters the engine: it is to keep what it is given, and no more.
    fn durable(&self, changes: Durable);
}

/// A group of commits that is durable.
#[derive(Clone, Debug)]
pub struct Durable(pub(super) Arc<Layer>);

impl Durable {
    /// The last commit in it.
    pub fn last(&self) -> Seq {
        self.0.last
    }

    /// What it holds in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Its changes in key order; no value for a key that was removed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.0.iter()
    }
}

/// Changes since some state of a store, the newest of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Tail {
    /// Adds what came later.
    pub fn absorb(&mut self, changes: &Durable) {
        for (key, value) in changes.iter() {
            self.changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes in key order; no value for a key that was removed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.changes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    /// Writes it, compressed.
    pub fn write_to(&self, out: &mut dyn Write) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            out.write_all(MAGIC)?;
            let mut out = Summed::new(zstd::stream::write::Encoder::new(out, LEVEL)?);
            for (key, value) in &self.changes {
                out.put_change(if value.is_some() { 1 } else { 2 }, key, value.as_deref().unwrap_or_default())?;
            }
            out.put(&[0])?;
            out.put(&(self.changes.len() as u64).to_le_bytes())?;
            let sum = out.sum.clone().finalize();
            out.inner.write_all(&sum.to_le_bytes())?;
            out.inner.finish()?.flush()
        };
        write().map_err(write_failed)
    }

    /// Reads what [`Tail::write_to`] wrote; [`Error::Corrupt`] for anything else.
    pub fn read_from(from: &mut dyn Read) -> Result<Self, Error> {
        let corrupt = |why: &str| Error::Corrupt(format!("a piece of the mirrored log {why}"));
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(read_failed)?;
        if magic[..7] != MAGIC[..7] {
            return Err(corrupt("is none"));
        }
        if magic[7] > MAGIC[7] {
            return Err(Error::Newer { found: u32::from(magic[7]), known: u32::from(MAGIC[7]) });
        }
        let mut from = Summed::new(zstd::stream::read::Decoder::new(from).map_err(read_failed)?);
        let mut tail = Self::default();
        loop {
            let [kind] = from.take().map_err(read_failed)?;
            if kind == 0 {
                break;
            }
            let key_len = u32::from_le_bytes(from.take().map_err(read_failed)?);
            let value_len = u32::from_le_bytes(from.take().map_err(read_failed)?);
            let key = from.take_vec(key_len).map_err(read_failed)?;
            let value = from.take_vec(value_len).map_err(read_failed)?;
            let value = match kind {
                1 => Some(value),
                2 if value.is_empty() => None,
                _ => return Err(corrupt("cannot be read")),
            };
            tail.changes.insert(key, value);
        }
        let stated = u64::from_le_bytes(from.take().map_err(read_failed)?);
        let sum = from.sum.clone().finalize().to_le_bytes();
        if from.take::<4>().map_err(read_failed)? != sum || stated != tail.changes.len() as u64 {
            return Err(corrupt("fails its checksum"));
        }
        Ok(tail)
    }

    /// The changes as one commit.
    pub fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in self.changes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.del(key),
            }
        }
        batch
    }
}

impl Store {
    /// Tells `follower` of everything that enters the engine from now on, as long as it lives.
    pub fn follow(&self, follower: Weak<dyn Follow>) {
        *self.core.follower.lock() = Some(follower);
    }

    /// The keys of all values that are not what was written, in order. Everything else is left as it is; a record that
    /// is in the way of a scan can be removed by its key.
    pub fn damaged(&self) -> Result<Vec<Vec<u8>>, Error> {
        self.checkpoint()?;
        self.core.engine.damaged()
    }

    /// Commits these changes and returns when they are in the engine and durable.
    pub fn apply_tail(&self, tail: Tail) -> Result<(), Error> {
        self.commit(tail.into_batch())?;
        self.checkpoint()
    }
}
