//! A byte buffer at an address that `O_DIRECT` takes.

use super::BLOCK;

/// Capacity above which the memory is given back after use, in bytes.
const KEEP_BYTES: usize = 4 << 20;

/// Bytes that begin at a multiple of [`BLOCK`]; grows up to what was reserved.
#[derive(Default)]
pub(crate) struct AlignedBuffer {
    raw: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    /// Empties it and makes room for `capacity` bytes.
    pub fn reset(&mut self, capacity: usize) {
        if self.raw.capacity() > KEEP_BYTES && capacity < KEEP_BYTES {
            self.raw = Vec::new();
        }
        self.raw.clear();
        self.raw.reserve(capacity + 2 * BLOCK);
        self.start = self.raw.as_ptr().align_offset(BLOCK);
        self.raw.resize(self.start, 0);
    }

    /// Where to append. More than was reserved would move the buffer and so must not be appended.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Appends zeros up to `len` bytes.
    pub fn pad_to(&mut self, len: usize) {
        self.raw.resize(self.start + len, 0);
        debug_assert_eq!(self.raw.as_ptr().align_offset(BLOCK), self.start);
    }

    pub fn len(&self) -> usize {
        self.raw.len() - self.start
    }

    pub fn bytes(&self) -> &[u8] {
        &self.raw[self.start..]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..]
    }
}
