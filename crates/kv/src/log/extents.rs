//! Where a log file's bytes lie, as FIEMAP tells of it.

use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::File;
use std::io;
use std::ops::Range;

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: Opcode = 0xc020_660b;
/// `FIEMAP_EXTENT_LAST`, and `FIEMAP_EXTENT_MERGED`: made up of blocks, in a file without extents.
const HARMLESS: u32 = 1 | 0x1000;
/// Extents asked for at once. What is in more pieces takes a flush of its own.
const BATCH: usize = 8;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved2: [u32; 3],
}

#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// Whether every byte of a range has a block on the disk that was written before and is nobody else's: what is written there stays there, and the file
/// system has nothing to write down for it.
pub(super) fn are_in_place(file: &File, range: Range<u64>) -> io::Result<bool> {
    let mut map =
        Fiemap { start: range.start, length: range.end - range.start, count: BATCH as u32, ..Fiemap::default() };
    // SAFETY: the structure has the kernel's layout, and says how many extents it has room for.
    unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, _>::new(&mut map))? };
    let mut reached = range.start;
    for extent in map.extents.iter().take(map.mapped as usize) {
        if extent.logical > reached || extent.flags & !HARMLESS != 0 {
            return Ok(false);
        }
        reached = extent.logical + extent.length;
    }
    Ok(reached >= range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_and_what_was_never_written_are_not_in_place() {
        let file = tempfile::tempfile().unwrap();
        if are_in_place(&file, 0..1).is_err() {
            eprintln!("skipped: this file system does not tell of extents");
            return;
        }
        file.write_all_at(&[1; 16384], 0).unwrap();
        file.set_len(1 << 20).unwrap();
        file.sync_all().unwrap();
        assert!(are_in_place(&file, 0..16384).unwrap() && are_in_place(&file, 4096..8192).unwrap());
        assert!(!are_in_place(&file, 12288..20480).unwrap() && !are_in_place(&file, 65536..69632).unwrap());
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 16384, 16384).unwrap();
        assert!(!are_in_place(&file, 0..32768).unwrap() && are_in_place(&file, 0..16384).unwrap());
    }
}
