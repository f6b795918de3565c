//! The bytes of one log record: a header, then the changes. `docs/on_disk_kv.md` has the table.

use super::buffer::AlignedBuffer;
use crate::layer::Layer;
use crate::{Change, Error, Seq};

/// `ULLKVLOG`, read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"ULLKVLOG");
/// The version of records written here.
const VERSION: u16 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 88;

/// What stands before the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The store that the record belongs to.
    pub store: u64,
    /// How many times a log file was begun anew before.
    pub epoch: u64,
    /// A random number of the epoch: bytes left from another one are never taken for a record of this.
    pub salt: u64,
    /// Place among the records of the epoch, from 0.
    pub index: u32,
    /// First commit.
    pub first: Seq,
    /// Last commit.
    pub last: Seq,
    /// The newest commit known to be durable when the record was written.
    pub durable: Seq,
    /// How many changes follow.
    pub count: u32,
    /// Bytes of the changes.
    pub payload_bytes: u64,
    /// Checksum of the changes.
    pub payload_sum: u32,
}

/// What the start of a block turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// No whole header.
    Nothing,
    /// A header of this version.
    Header(Header),
    /// A header of a later version.
    Newer(u32),
}

impl Header {
    /// Writes the header over the first bytes of `into`.
    pub fn encode(&self, into: &mut [u8]) {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u16.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        for number in [self.store, self.epoch, self.salt, self.first.0, self.last.0, self.durable.0, self.payload_bytes]
        {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.payload_sum.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        into[..HEADER_BYTES].copy_from_slice(&bytes);
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8]) -> Decoded {
        Self::try_decode(bytes).unwrap_or(Decoded::Nothing)
    }

    fn try_decode(bytes: &[u8]) -> Option<Decoded> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let u64_at = |at: usize| bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let u32_at = |at: usize| bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let version = u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        if u64_at(0)? != MAGIC || u32_at(84)? != crc32fast::hash(bytes.get(..84)?) {
            return None;
        }
        if version > VERSION {
            return Some(Decoded::Newer(u32::from(version)));
        }
        Some(Decoded::Header(Self {
            index: u32_at(12)?,
            store: u64_at(16)?,
            epoch: u64_at(24)?,
            salt: u64_at(32)?,
            first: Seq(u64_at(40)?),
            last: Seq(u64_at(48)?),
            durable: Seq(u64_at(56)?),
            payload_bytes: u64_at(64)?,
            count: u32_at(72)?,
            payload_sum: u32_at(76)?,
        }))
    }

    /// Bytes the record takes in the log.
    pub fn record_bytes(&self) -> u64 {
        (HEADER_BYTES as u64).saturating_add(self.payload_bytes)
    }
}

/// Writes the changes of a layer into the buffer, after room for a header; gives back the header's payload
/// fields `(count, bytes, sum)`.
pub(crate) fn encode_layer(layer: &Layer, into: &mut AlignedBuffer) -> (u32, u64, u32) {
    into.reset(HEADER_BYTES + layer.bytes());
    into.pad_to(HEADER_BYTES);
    let mut count = 0;
    for (key, value) in layer.iter() {
        let tail = into.tail();
        tail.extend_from_slice(&(key.len() as u32).to_le_bytes());
        // One above the length, so that 0 can say "removed".
        let value_code = value.map_or(0, |v| v.len() as u32 + 1);
        tail.extend_from_slice(&value_code.to_le_bytes());
        tail.extend_from_slice(key);
        tail.extend_from_slice(value.unwrap_or_default());
        count += 1;
    }
    let payload = &into.bytes()[HEADER_BYTES..];
    (count, payload.len() as u64, crc32fast::hash(payload))
}

/// Reads the changes of a record whose checksum was right.
pub(crate) fn decode_changes(mut payload: &[u8], count: u32) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::with_capacity(payload.len().min(count as usize * 8) / 8);
    for _ in 0..count {
        changes.push(decode_change(&mut payload).ok_or_else(malformed)?);
    }
    if payload.is_empty() { Ok(changes) } else { Err(malformed()) }
}

/// Makes the first bytes of a block a header that is taken for a whole one, whatever its numbers are: for fuzzing.
pub(crate) fn put_header_right(block: &mut [u8]) {
    block[..8].copy_from_slice(&MAGIC.to_le_bytes());
    block[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32fast::hash(&block[..HEADER_BYTES - 4]);
    block[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Reads invented bytes as changes, of as many as their first bytes say: for fuzzing.
pub(crate) fn fuzz_changes(bytes: &[u8]) {
    let mut payload = bytes;
    if let Some(count) = take_u32(&mut payload) {
        let _ = decode_changes(payload, count);
    }
}

fn malformed() -> Error {
    Error::Corrupt("a log record with a right checksum has malformed changes".to_owned())
}

fn decode_change(payload: &mut &[u8]) -> Option<Change> {
    let key_len = take_u32(payload)? as usize;
    let value_code = take_u32(payload)?;
    let key = payload.split_off(..key_len)?.to_vec();
    let value = match value_code {
        0 => None,
        code => Some(payload.split_off(..code as usize - 1)?.to_vec()),
    };
    Some(Change { key, value, fresh: false })
}

fn take_u32(payload: &mut &[u8]) -> Option<u32> {
    payload.split_off(..4)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            store: 1,
            epoch: 2,
            salt: 3,
            index: 4,
            first: Seq(5),
            last: Seq(6),
            durable: Seq(1),
            count: 7,
            payload_bytes: 8,
            payload_sum: 9,
        }
    }

    #[test]
    fn a_header_is_read_as_written_and_not_with_any_bit_flipped() {
        let mut bytes = vec![0; HEADER_BYTES];
        header().encode(&mut bytes);
        assert_eq!(Header::decode(&bytes), Decoded::Header(header()));
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad), Decoded::Nothing, "bit {bit}");
        }
        assert_eq!(Header::decode(&bytes[..HEADER_BYTES - 1]), Decoded::Nothing);
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = vec![0; HEADER_BYTES];
        header().encode(&mut bytes);
        bytes[8] = 9;
        let sum = crc32fast::hash(&bytes[..84]).to_le_bytes();
        bytes[84..].copy_from_slice(&sum);
        assert_eq!(Header::decode(&bytes), Decoded::Newer(9));
    }

    #[test]
    fn changes_are_read_as_written_and_garbage_is_refused() {
        let mut layer = Layer::after(Seq(0));
        layer.absorb(b"a".to_vec(), Some(b"1".to_vec()), false);
        layer.absorb(b"b".to_vec(), Some(Vec::new()), false);
        layer.absorb(b"c".to_vec(), None, false);
        let mut buffer = AlignedBuffer::default();
        let (count, _, _) = encode_layer(&layer, &mut buffer);
        let payload = &buffer.bytes()[HEADER_BYTES..];
        let read = decode_changes(payload, count).unwrap();
        assert_eq!(read, layer.changes());
        assert!(decode_changes(payload, count + 1).is_err());
        assert!(decode_changes(payload, count - 1).is_err());
        assert!(decode_changes(&[0xff; 64], u32::MAX).is_err());
    }
}
