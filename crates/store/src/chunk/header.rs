//! The first 4 KiB of a chunk's file: whose it is, how long, and one checksum per 64 KiB of data.
//!
//! `magic "ULCHUNK1" | body length u32 | body | zeros | xxh3-64 of all before` where the body is
//! `mode u16 | generation u64 | size u64 | name | owner | count u32 | count x u64`. Data follow at byte 4096.

use super::name::ChunkName;
use std::sync::Arc;
use ullage_journal::codec::{DecodeError, Decoder, Encoder};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the data.
pub const HEADER_BYTES: usize = 4096;
/// Bytes under one checksum.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Largest chunk.
pub const CHUNK_MAX_BYTES: u64 = 16 << 20;
/// Longest owner's name.
pub const OWNER_MAX_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"ULCHUNK1";

/// What a chunk's file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The chunk.
    pub name: ChunkName,
    /// Whose it is.
    pub owner: Arc<str>,
    /// Permission bits as of `chmod`: owner and others, read and write.
    pub mode: u16,
    /// Number of the change that made it so; grows over the whole store.
    pub generation: u64,
    /// Bytes of data, holes included.
    pub size: u64,
    /// xxh3-64 of each block; the last one covers only what `size` covers.
    pub checksums: Vec<u64>,
}

impl Header {
    /// How many blocks `size` bytes have.
    pub fn blocks(size: u64) -> usize {
        size.div_ceil(BLOCK_BYTES as u64) as usize
    }

    /// Checksums of all blocks of `data` followed by zeros up to `size`.
    pub fn checksums_of(data: &[u8], size: u64) -> Vec<u64> {
        let size = size as usize;
        let mut sums: Vec<u64> = Vec::with_capacity(Self::blocks(size as u64));
        for start in (0..size).step_by(BLOCK_BYTES) {
            let end = (start + BLOCK_BYTES).min(size);
            match data.get(start..end) {
                Some(block) => sums.push(xxh3_64(block)),
                None => {
                    let mut block = data.get(start..).unwrap_or_default().to_vec();
                    block.resize(end - start, 0);
                    sums.push(xxh3_64(&block));
                }
            }
        }
        sums
    }

    /// Without magic and padding, for the journal.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.u16(self.mode).u64(self.generation).u64(self.size).text(self.name.as_str()).text(&self.owner);
        out.u32(self.checksums.len() as u32);
        for sum in &self.checksums {
            out.u64(*sum);
        }
        out.finish()
    }

    /// Back from [`Self::body`].
    pub fn from_body(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(body);
        let (mode, generation, size) = (from.u16()?, from.u64()?, from.u64()?);
        let name = from.text()?.parse().map_err(|_| DecodeError("has a bad name"))?;
        let owner = Arc::from(from.text()?);
        let count = from.u32()? as usize;
        if size > CHUNK_MAX_BYTES || count != Self::blocks(size) {
            return Err(DecodeError("has a bad size"));
        }
        let checksums = (0..count).map(|_| from.u64()).collect::<Result<_, _>>()?;
        from.end()?;
        Ok(Self { name, owner, mode, generation, size, checksums })
    }

    /// The 4 KiB on disk.
    pub fn page(&self) -> Vec<u8> {
        let body = self.body();
        let mut page = Vec::with_capacity(HEADER_BYTES);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&(body.len() as u32).to_le_bytes());
        page.extend_from_slice(&body);
        page.resize(HEADER_BYTES - 8, 0);
        let sum = xxh3_64(&page);
        page.extend_from_slice(&sum.to_le_bytes());
        page
    }

    /// Back from [`Self::page`].
    pub fn from_page(page: &[u8]) -> Result<Self, DecodeError> {
        let (covered, sum) = page.split_at_checked(HEADER_BYTES - 8).ok_or(DecodeError("ends too early"))?;
        if sum != xxh3_64(covered).to_le_bytes() {
            return Err(DecodeError("has a bad checksum"));
        }
        let rest = covered.strip_prefix(MAGIC).ok_or(DecodeError("has a bad magic"))?;
        Self::from_body(Decoder::new(rest).bytes()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(size: u64) -> Header {
        Header {
            name: "alice/f.0".parse().unwrap(),
            owner: "alice".into(),
            mode: 0o600,
            generation: 7,
            size,
            checksums: Header::checksums_of(&[], size),
        }
    }

    #[test]
    fn the_largest_header_fits_its_page() {
        let mut largest = header(CHUNK_MAX_BYTES);
        largest.name = "x".repeat(180).parse().unwrap();
        largest.owner = "o".repeat(OWNER_MAX_BYTES).into();
        assert_eq!(largest.page().len(), HEADER_BYTES);
        assert_eq!(Header::from_page(&largest.page()).unwrap(), largest);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(bit in 0usize..HEADER_BYTES * 8) {
            let mut page = header(100_000).page();
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::from_page(&page).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = Header::from_page(&bytes);
            let _ = Header::from_body(&bytes);
        }
    }
}
