//! The system calls that no library has: around mappings, handles, extents.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::File;

/// Maps the start of a file for reading and writing.
pub fn map(file: &File, length: usize) -> std::io::Result<*mut u8> {
    // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
    let at = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
    }?;
    Ok(at.cast())
}

/// Maps the start of a file for reading.
pub fn map_for_reading(file: &File, length: usize) -> std::io::Result<*mut u8> {
    // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
    Ok(at.cast())
}

/// Unmaps.
pub fn unmap(at: *mut u8, length: usize) {
    // SAFETY: `map` gave the address with this length, and its only owner gives it up.
    let _ = unsafe { rustix::mm::munmap(at.cast(), length) };
}

/// Stores a word; the caller has checked that it lies in the mapping and is aligned.
#[expect(clippy::cast_ptr_alignment, reason = "the caller checked it")]
pub fn store(at: *mut u8, offset: usize, value: u64) {
    // SAFETY: inside the mapping and aligned; volatile, since other programs look at it.
    unsafe { at.add(offset).cast::<u64>().write_volatile(value) };
}

/// Stores bytes; the caller has checked that they lie in the mapping.
pub fn copy(at: *mut u8, offset: usize, data: &[u8]) {
    // SAFETY: inside the mapping, which `data` cannot overlap: nobody hands out references into it.
    unsafe { at.add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
}

/// One write by io_uring at an offset; gives back how much was written.
pub fn ring_write(file: &File, data: &[u8], offset: u64) -> std::io::Result<usize> {
    let mut ring = io_uring::IoUring::new(2)?;
    let descriptor = io_uring::types::Fd(std::os::fd::AsRawFd::as_raw_fd(file));
    let entry = io_uring::opcode::Write::new(descriptor, data.as_ptr(), data.len() as u32).offset(offset).build();
    // SAFETY: `data` and `file` outlive the request, whose end is waited for below.
    unsafe { ring.submission().push(&entry) }.map_err(std::io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result))
}

/// msync(2), waiting.
pub fn sync(at: *mut u8, length: usize) -> std::io::Result<()> {
    // SAFETY: `map` gave the address with this length.
    unsafe { rustix::mm::msync(at.cast(), length, MsyncFlags::SYNC) }.map_err(Into::into)
}

/// Whether name_to_handle_at(2) gives a handle for a file, as servers of NFS ask for one.
pub fn has_handle(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // A `file_handle` with room for the longest there is: length, type, bytes.
    let mut handle = [0u32; 2 + 128 / 4];
    handle[0] = 128;
    let mut mount = 0;
    // SAFETY: the path ends with a zero, and the handle has the room that its first word says.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    };
    outcome == 0
}

/// Whether FIEMAP tells where a file lies.
pub fn has_extent_map(file: &File) -> bool {
    first_extent(file).is_ok()
}

/// Whether the file system has not chosen a place yet for what a file begins with (delayed allocation).
pub fn is_delayed(file: &File) -> bool {
    const FIEMAP_EXTENT_DELALLOC: u64 = 4;
    first_extent(file).is_ok_and(|flags| flags & FIEMAP_EXTENT_DELALLOC != 0)
}

/// The flags of a file's first extent, zero where it has none.
fn first_extent(file: &File) -> std::io::Result<u64> {
    use std::os::fd::AsRawFd;
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    // A `fiemap` of the whole file: start, length, flags and mapped, count and a spare word, then room for one
    // `fiemap_extent` of 56 bytes, whose flags are its eleventh word.
    let mut map = [0u64; 4 + 7];
    map[1] = u64::MAX;
    map[3] = 1;
    // SAFETY: the structure has its whole length, and room for the one extent that it promises.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, map.as_mut_ptr()) } {
        0 => Ok(map[4 + 5] & 0xffff_ffff),
        _ => Err(std::io::Error::last_os_error()),
    }
}
