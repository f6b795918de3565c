//! The bytes of one record: `magic u32 | length u32 | durable u64 | checksum u64 | payload`, little endian.
//!
//! `durable` is how many bytes of this segment were known to be flushed when the record was written: recovery uses it
//! to tell a torn tail (allowed) from damage to what had been reported (an error). The checksum is xxh3-64 over
//! `length | durable | payload`, seeded with segment and offset, so that a record never passes in another place.

use xxhash_rust::xxh3::Xxh3Builder;

/// Starts every record.
pub const MAGIC: u32 = 0x314a_4c55;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
/// Largest payload accepted.
pub const RECORD_MAX_BYTES: usize = 64 << 20;

/// A record found in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The caller's bytes.
    pub payload: &'a [u8],
    /// Bytes of the segment that were flushed when this was written.
    pub durable: u64,
    /// Offset of the next record.
    pub next: usize,
}

fn checksum(segment: u64, offset: u64, header: &[u8], payload: &[u8]) -> u64 {
    let seed = segment.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset;
    let mut hash = Xxh3Builder::new().with_seed(seed).build();
    hash.update(header);
    hash.update(payload);
    hash.digest()
}

/// Appends one record to `out`; `offset` is where it will stand in the segment.
pub fn encode(out: &mut Vec<u8>, segment: u64, offset: u64, durable: u64, payload: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    let sum = checksum(segment, offset, &out[start + 4..start + 16], payload);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads the record at `offset`; `None` when there is none that checks.
pub fn decode(buffer: &[u8], segment: u64, offset: usize) -> Option<Frame<'_>> {
    let header = buffer.get(offset..offset.checked_add(HEADER_BYTES)?)?;
    if u32::from_le_bytes(header[..4].try_into().ok()?) != MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    let durable = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let sum = u64::from_le_bytes(header[16..24].try_into().ok()?);
    let from = offset + HEADER_BYTES;
    let payload = buffer.get(from..from.checked_add(length)?)?;
    (checksum(segment, offset as u64, &header[4..16], payload) == sum).then_some(Frame {
        payload,
        durable,
        next: from + length,
    })
}

/// The largest `durable` of any record after `offset`: what must be intact for the segment to be merely torn there.
pub fn durable_after(buffer: &[u8], segment: u64, offset: usize) -> u64 {
    let magic = MAGIC.to_le_bytes();
    let mut durable = 0;
    let mut at = offset;
    while let Some(found) = buffer.get(at..).and_then(|rest| rest.windows(4).position(|window| window == magic)) {
        at += found;
        match decode(buffer, segment, at) {
            Some(frame) => {
                durable = durable.max(frame.durable);
                at = frame.next;
            }
            None => at += 1,
        }
    }
    durable
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_in_another_place_does_not_pass() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 3, 0, 0, b"hello");
        assert_eq!(decode(&bytes, 3, 0).unwrap().payload, b"hello");
        assert_eq!(decode(&bytes, 4, 0), None);
        let moved = [&[0u8; 7][..], &bytes].concat();
        assert_eq!(decode(&moved, 3, 7), None);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(payload in prop::collection::vec(any::<u8>(), 0..200), bit in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            encode(&mut bytes, 1, 0, 9, &payload);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&bytes, 1, 0), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..400) {
            let _ = decode(&bytes, 1, at);
            let _ = durable_after(&bytes, 1, at);
        }
    }
}
