//! The one system call on `/dev/fuse` that neither `rustix` nor `fuser` offers, and where the allocator takes large buffers from.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOW(229, 2, uint32_t)` of `<linux/fuse.h>`.
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// Ends the registration of a backing file.
pub(super) fn close_backing(device: BorrowedFd<'_>, backing: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel only reads the four bytes
    // that the pointer names, during the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), FUSE_DEV_IOC_BACKING_CLOSE, &raw const backing) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// From now on the allocator takes blocks of so many bytes and more from the kernel, each on its own, so that what is never used of them takes
/// no memory. Left alone, it keeps those that come free, and clears them for the next one.
pub(super) fn map_from(bytes: libc::c_int) {
    // SAFETY: takes two numbers; what is allocated already stays as it is.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
