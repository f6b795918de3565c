//! Thin wrappers around system calls that no crate we use has.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `fcntl(F_SETLEASE)`: `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
pub(crate) fn set_lease(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and F_SETLEASE takes an integer, no pointer.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
