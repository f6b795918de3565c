//! The system calls that have no safe wrapper elsewhere: the device's ioctls, and a thread's scheduling class.

use crate::abi::output::BackingMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The device's ioctl type, `FUSE_DEV_IOC_MAGIC`.
const MAGIC: u32 = 229;

/// `_IOR(229, number, T)` or `_IOW(229, number, T)`.
const fn request(direction: u32, number: u32, size: usize) -> libc::Ioctl {
    ((direction << 30) | ((size as u32) << 16) | (MAGIC << 8) | number) as libc::Ioctl
}

const WRITE: u32 = 1;
const READ: u32 = 2;
const CLONE: libc::Ioctl = request(READ, 0, size_of::<u32>());
const BACKING_OPEN: libc::Ioctl = request(WRITE, 1, size_of::<BackingMap>());
const BACKING_CLOSE: libc::Ioctl = request(WRITE, 2, size_of::<u32>());

/// Binds a freshly opened `/dev/fuse` to the connection of `device`.
pub fn clone_device(fresh: BorrowedFd<'_>, device: BorrowedFd<'_>) -> io::Result<()> {
    let source = device.as_raw_fd() as u32;
    // SAFETY: the kernel reads one u32 behind the pointer, which outlives the call.
    check(unsafe { libc::ioctl(fresh.as_raw_fd(), CLONE, &raw const source) }).map(drop)
}

/// Registers a backing file with the connection; gives back its id.
pub fn backing_open(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the kernel reads one fuse_backing_map behind the pointer, which outlives the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BACKING_OPEN, &raw const map) })
}

/// Ends a registration.
pub fn backing_close(device: BorrowedFd<'_>, backing: u32) -> io::Result<()> {
    // SAFETY: the kernel reads one u32 behind the pointer, which outlives the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const backing) }).map(drop)
}

/// Puts the calling thread into the class `SCHED_IDLE`, or back into the normal one.
pub fn set_scheduler(idle: bool) -> io::Result<()> {
    set_class(0, if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER })
}

/// A thread's scheduling class; 0 is the calling thread.
pub fn class(thread: i32) -> io::Result<i32> {
    // SAFETY: takes a thread's number and touches no memory.
    check(unsafe { libc::sched_getscheduler(thread) }).map(|class| class as i32)
}

/// Puts a thread into a scheduling class, at its lowest priority; 0 is the calling thread.
pub fn set_class(thread: i32, class: i32) -> io::Result<()> {
    // SAFETY: plain numbers, of which the priority is the only one that every system has.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = i32::from(class == libc::SCHED_RR);
    // SAFETY: the kernel reads one sched_param behind the pointer, which outlives the call.
    check(unsafe { libc::sched_setscheduler(thread, class, &raw const parameters) }).map(drop)
}

/// The kernel's type of a file handle of FUSE's: a node and its generation.
const HANDLE_OF_A_NODE: i32 = 0x81;

/// Opens the file behind a node of the mount that `root` lies in, as O_PATH: if the kernel knows it, nobody is asked.
pub fn open_node(root: BorrowedFd<'_>, node: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        node: [u32; 2],
        generation: u32,
    }
    let mut handle =
        Handle { bytes: 12, kind: HANDLE_OF_A_NODE, node: [(node >> 32) as u32, node as u32], generation: 0 };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a file_handle of `bytes` bytes behind the pointer, which outlives the call.
    let opened = unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags) };
    check(opened)?;
    // SAFETY: the kernel gave this descriptor to us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Has the process go on when it is sent these signals.
pub fn ignore_signals(signals: &[i32]) {
    for signal in signals {
        // SAFETY: no handler of ours is installed: there is nothing that could run.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

fn check(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_numbers_are_those_of_the_header() {
        assert_eq!(CLONE as u32, 0x8004_e500);
        assert_eq!(BACKING_OPEN as u32, 0x4010_e501);
        assert_eq!(BACKING_CLOSE as u32, 0x4004_e502);
    }
}
