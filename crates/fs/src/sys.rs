//! Thin wrappers around system calls that no crate we use has.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;
/// Extents asked for at once.
const BATCH: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved2: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FiemapExtent; BATCH],
}

/// Has the kernel begin to write a file's data, and does not wait for it.
pub(crate) fn begin_writing(file: &File) -> io::Result<()> {
    // SAFETY: the call takes no memory of ours, and the borrow keeps the descriptor open.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The allocated extents that touch a range, in order, as (offset, length): those not written to yet and those without a
/// place on the disk yet included. EOPNOTSUPP where the file system keeps none.
pub(crate) fn extents(file: &File, range: std::ops::Range<u64>) -> io::Result<Vec<(u64, u64)>> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let mut map = Fiemap {
            start,
            length: range.end - start,
            flags: 0,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); BATCH],
        };
        // SAFETY: the structure has the kernel's layout and says how many extents it has room for.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = &map.extents[..(map.mapped as usize).min(BATCH)];
        found.extend(mapped.iter().map(|extent| (extent.logical, extent.length)));
        match mapped.last() {
            Some(last) if last.flags & LAST == 0 && last.logical + last.length > start => {
                start = last.logical + last.length;
            }
            _ => break,
        }
    }
    Ok(found)
}
