//! System calls that no crate wraps safely.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use std::path::PathBuf;
use std::sync::Once;

/// A new file in this directory, without a name.
pub fn unnamed(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::from_raw_mode(0o600))
}

/// A kind of lease (fcntl(2), `F_SETLEASE`).
#[derive(Clone, Copy, Debug)]
pub enum Lease {
    /// Granted only while nobody has the file open for writing or mapped writable.
    Read,
    /// Granted only while nobody else has the file open at all.
    Write,
}

/// Takes a lease and gives it back at once: a question, not a lock. EAGAIN is the answer "somebody has it open".
/// A read lease needs a descriptor that is open for reading only.
pub fn probe_lease(file: impl AsFd, lease: Lease) -> Result<(), Errno> {
    static IGNORE: Once = Once::new();
    let kind = match lease {
        Lease::Read => libc::F_RDLCK,
        Lease::Write => libc::F_WRLCK,
    };
    IGNORE.call_once(ignore_lease_breaks);
    set_lease(file.as_fd().as_raw_fd(), kind)?;
    set_lease(file.as_fd().as_raw_fd(), libc::F_UNLCK)
}

/// Whoever opens a file while a lease is on it has SIGIO sent to the holder, which by default ends the process. Ours last
/// for one system call and need no notice.
fn ignore_lease_breaks() {
    // SAFETY: both calls are given a whole structure of ours or null, and SIG_IGN runs no code of ours.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGIO, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_DFL {
            now.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGIO, &raw const now, std::ptr::null_mut());
        }
    }
}

fn set_lease(fd: libc::c_int, kind: libc::c_int) -> Result<(), Errno> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours; the caller's borrow keeps the descriptor open.
    match unsafe { libc::fcntl(fd, libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Whether this says that what lies on the disk cannot be read, rather than that something else is in the way.
pub fn is_damage(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::UCLEAN | Errno::BADMSG)
}

/// Opens the file of a descriptor once more, in another way.
pub fn reopen(file: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(by_descriptor(file), flags | OFlags::CLOEXEC, Mode::empty())
}

/// A path that leads to what is open, and nowhere else.
pub fn by_descriptor(open: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

/// Changes the mode of what is open as a place only, which needs no permission to come to it: no call takes such a descriptor and a mode.
pub fn chmod(what: impl AsFd, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmodat(CWD, by_descriptor(what), Mode::from_raw_mode(mode), AtFlags::empty())
}

/// Whether something that was written to a file was lost on its way to the disk, and nobody was told of it. From then on nobody is: without a
/// flush, and without waiting where nothing is under way.
pub fn lost_writes(file: impl AsFd) -> bool {
    // SAFETY: the call touches no memory of ours; the caller's borrow keeps the descriptor open.
    let looked = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    looked != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}
