//! Directory streams with positions, as opendir(3) has them.

use crate::sys::{Errno, Sys};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dirent {
    /// The name.
    pub name: Vec<u8>,
    /// `d_ino`.
    pub ino: u64,
    /// `d_type`.
    pub kind: u8,
}

/// A directory stream.
pub struct Stream(*mut libc::DIR);

impl Stream {
    /// opendir(3).
    pub fn open(path: impl AsRef<Path>) -> Sys<Self> {
        let path = CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: the string outlives the call.
        let stream = unsafe { libc::opendir(path.as_ptr()) };
        if stream.is_null() {
            return Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)));
        }
        Ok(Self(stream))
    }

    /// telldir(3).
    pub fn position(&self) -> i64 {
        // SAFETY: the stream is open.
        unsafe { libc::telldir(self.0) }
    }

    /// seekdir(3).
    pub fn seek(&mut self, position: i64) {
        // SAFETY: the stream is open.
        unsafe { libc::seekdir(self.0, position) }
    }

    /// rewinddir(3).
    pub fn rewind(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.0) }
    }
}

impl Iterator for Stream {
    type Item = Dirent;

    fn next(&mut self) -> Option<Dirent> {
        // SAFETY: the stream is open; the entry is copied before the next call may overwrite it.
        unsafe {
            let entry = libc::readdir64(self.0);
            let name = CStr::from_ptr((&raw const entry.as_ref()?.d_name).cast());
            Some(Dirent { name: name.to_bytes().to_vec(), ino: (*entry).d_ino, kind: (*entry).d_type })
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and never used again.
        unsafe { libc::closedir(self.0) };
    }
}

/// All names but `.` and `..`, sorted.
pub fn names(path: impl AsRef<Path>) -> Sys<Vec<Vec<u8>>> {
    let mut names: Vec<_> =
        Stream::open(path)?.map(|entry| entry.name).filter(|name| name != b"." && name != b"..").collect();
    names.sort();
    Ok(names)
}
