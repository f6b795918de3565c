//! Shared and private mappings of files.

use crate::sys::{Errno, Sys};
use std::os::fd::AsRawFd;

/// A mapping, ended when dropped.
pub struct Map {
    address: *mut u8,
    length: usize,
}

impl Map {
    /// Maps `length` bytes from the file's start, readable and (with `writable`) writable; `shared` or private.
    pub fn new(fd: &impl AsRawFd, length: usize, writable: bool, shared: bool) -> Sys<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        // SAFETY: the kernel chooses the address, so no memory in use is touched.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)));
        }
        Ok(Self { address: address.cast(), length })
    }

    /// Copies out. The range must lie inside the file as well as the mapping.
    pub fn get(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        // SAFETY: the range lies in the mapping; bytes are read one by one and volatile, because others may write.
        (at..at + length).map(|at| unsafe { self.address.add(at).read_volatile() }).collect()
    }

    /// Copies in; the mapping must be writable.
    pub fn set(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.length);
        for (index, byte) in data.iter().enumerate() {
            // SAFETY: the byte lies in the mapping, which the caller made writable.
            unsafe { self.address.add(at + index).write_volatile(*byte) };
        }
    }

    /// msync(2) with MS_SYNC.
    pub fn sync(&self) -> Sys<()> {
        // SAFETY: the range is our mapping.
        let result = unsafe { libc::msync(self.address.cast(), self.length, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}
