//! A buffer that takes memory where it is used, and none once it is gone.
//!
//! One of a worker's is as long as the longest reply, of which nearly all need some bytes. The allocator would give it, after the first
//! one was freed, out of memory that it keeps, cleared from end to end.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes, zero at first.
pub(crate) struct Mapped {
    at: NonNull<u8>,
    length: usize,
    /// In its place, where nothing could be mapped.
    allocated: Vec<u8>,
}

impl Mapped {
    /// So many bytes.
    pub fn new(length: usize) -> Self {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        match mapped.ok().and_then(|at| NonNull::new(at.cast())) {
            Some(at) => Self { at, length, allocated: Vec::new() },
            None => Self { at: NonNull::dangling(), length: 0, allocated: vec![0; length] },
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.length == 0 {
            return &self.allocated;
        }
        // SAFETY: all of the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.length) }
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut self.allocated;
        }
        // SAFETY: as above, and `&mut self` excludes other references into it.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: exactly what `new` mapped; no reference into it outlives `self`.
            let _ = unsafe { munmap(self.at.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Pages of a buffer that are in memory.
    fn resident(buffer: &[u8]) -> usize {
        let page = ullage_fs::page_size();
        let mut entries = vec![0; buffer.len() / page * 8];
        let first = buffer.as_ptr() as u64 / page as u64;
        File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entries, first * 8).unwrap();
        // The highest bit of each.
        entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
    }

    /// Regression: each worker that there had been left a megabyte in memory.
    #[test]
    fn a_buffer_takes_no_memory_where_it_is_not_used() {
        const LENGTH: usize = 1 << 20;
        // What is freed has the allocator keep what is as long from then on.
        for _ in 0..3 {
            let mut buffer = Mapped::new(LENGTH);
            assert_eq!(resident(&buffer), 0);
            buffer[..100].fill(7);
            assert_eq!((buffer[99], buffer[100], buffer.len()), (7, 0, LENGTH));
            assert_eq!(resident(&buffer), 1);
        }
        assert!(Mapped::new(0).is_empty());
    }
}
