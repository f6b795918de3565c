//! Shared mappings that outlive the descriptor they were made from.

use crate::sys;
use std::fs::File;

/// A shared, writable mapping.
#[derive(Debug)]
pub struct Map {
    at: *mut u8,
    length: usize,
}

// SAFETY: the mapping is memory like any other; it belongs to whoever has this value.
unsafe impl Send for Map {}
// SAFETY: whoever shares it only reads, or has the kernel store.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `length` bytes of a file.
    pub fn new(file: &File, length: usize) -> std::io::Result<Self> {
        Ok(Self { at: sys::map(file, length)?, length })
    }

    /// The same, for reading only: through an own descriptor that the file is opened with.
    pub fn for_reading(file: &File, length: usize) -> std::io::Result<Self> {
        Ok(Self { at: sys::map_for_reading(file, length)?, length })
    }

    /// Reads what is mapped the way another process would: where there is nothing behind it, an error and no signal.
    pub fn read(&self) -> std::io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; self.length];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, self.at as u64)?;
        Ok(bytes)
    }

    /// Stores eight bytes at once. The file must reach that far.
    pub fn store(&mut self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length, "beyond the mapping");
        sys::store(self.at, offset, value);
    }

    /// Loads eight bytes at once.
    pub fn load(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length, "beyond the mapping");
        sys::load(self.at, offset)
    }

    /// Stores bytes. The file must reach that far.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length, "beyond the mapping");
        sys::copy(self.at, offset, data);
    }

    /// Stores bytes the way another process would, through `/proc/self/mem`: where the file system refuses that, an error and no
    /// signal. Gives back how many were stored.
    pub fn store_through(&self, memory: &File, offset: usize, data: &[u8]) -> std::io::Result<usize> {
        use std::os::unix::fs::FileExt;
        assert!(offset + data.len() <= self.length, "beyond the mapping");
        memory.write_at(data, self.at as u64 + offset as u64)
    }

    /// Takes away the blocks behind a range: madvise(2) with MADV_REMOVE.
    pub fn remove(&self, offset: usize, length: usize) -> std::io::Result<()> {
        assert!(offset + length <= self.length, "beyond the mapping");
        sys::remove(self.at, offset, length)
    }

    /// Where it lies, and how long it is.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.at, self.length)
    }

    /// How many of its pages are in memory, as mincore(2) tells the calling thread's user.
    pub fn resident(&self) -> std::io::Result<usize> {
        sys::resident(self.at, self.length)
    }

    /// Brings what was stored to the disk.
    pub fn sync(&self) -> std::io::Result<()> {
        sys::sync(self.at, self.length)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        sys::unmap(self.at, self.length);
    }
}
