//! System calls that no crate wraps safely.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A kind of lease (fcntl(2), `F_SETLEASE`).
#[derive(Clone, Copy)]
pub enum Lease {
    /// Granted only while nobody has the file open for writing or mapped writable.
    Read,
    /// Granted only while nobody else has the file open at all.
    Write,
}

/// Takes a lease and gives it back at once: a question, not a lock. EAGAIN is the answer "somebody has it open".
/// A read lease needs a descriptor that is open for reading only.
pub fn probe_lease(file: impl AsFd, lease: Lease) -> Result<(), Errno> {
    let kind = match lease {
        Lease::Read => libc::F_RDLCK,
        Lease::Write => libc::F_WRLCK,
    };
    set_lease(file.as_fd().as_raw_fd(), kind)?;
    set_lease(file.as_fd().as_raw_fd(), libc::F_UNLCK)
}

fn set_lease(fd: libc::c_int, kind: libc::c_int) -> Result<(), Errno> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours; the caller's borrow keeps the descriptor open.
    match unsafe { libc::fcntl(fd, libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Opens the file of a descriptor once more, in another way.
pub fn reopen(file: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}
