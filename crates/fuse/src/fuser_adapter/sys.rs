//! The one system call on `/dev/fuse` that neither `rustix` nor `fuser` offers.

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
