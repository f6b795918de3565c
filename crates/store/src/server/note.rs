//! What the accounts add to a record of the journal: changes of rows, each under the shard it belongs to.

use ullage_bank::rows::encode_write;
use ullage_journal::codec::Encoder;
use ullage_voucher::{RowBytes, Write};

/// The place of the shards' numbers that holds what is to be credited.
pub(super) const CREDIT: u32 = u32::MAX;

/// Changes of rows, encoded as they are added: most are never looked at again.
#[derive(Debug)]
pub(super) struct Note(Encoder);

/// What most notes stay below: one that grows while it is written is moved again and again.
const BYTES: usize = 256;

impl Default for Note {
    fn default() -> Self {
        Self(Encoder::with_capacity(BYTES))
    }
}

impl Note {
    pub(super) fn add(&mut self, shard: u32, write: &Write) {
        encode_write(&mut self.0, &shard.to_be_bytes(), write);
    }

    pub(super) fn add_all(&mut self, shard: u32, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            self.add(shard, &write);
        }
    }

    pub(super) fn put(&mut self, shard: u32, key: u64, value: u64) {
        let write = Write { key: row(key), value: Some(row(value)) };
        self.add(shard, &write);
    }

    pub(super) fn remove(&mut self, shard: u32, key: RowBytes) {
        self.add(shard, &Write { key, value: None });
    }

    /// The bytes; nothing if nothing changed.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| self.0.finish())
    }
}

/// A number, as it stands in a row.
pub(super) fn row(number: u64) -> RowBytes {
    RowBytes::from_slice(&number.to_be_bytes())
}
