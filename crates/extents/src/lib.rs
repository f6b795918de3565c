//! Where the bytes of files lie on their disk, as FIEMAP tells of it: the call that no crate we use has, and what is asked of its answer.

#![deny(missing_docs)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;
/// `FIEMAP_EXTENT_DELALLOC`: written, and without a place on the disk yet.
const DELAYED: u32 = 4;
/// `FIEMAP_EXTENT_DATA_INLINE`.
const INLINE: u32 = 0x200;
/// `FIEMAP_EXTENT_UNWRITTEN`.
const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_MERGED`: made up of blocks, in a file without extents.
const MERGED: u32 = 0x1000;
/// `FIEMAP_EXTENT_SHARED`: with other files.
const SHARED: u32 = 0x2000;
/// Extents asked for at once.
const BATCH: usize = 64;

/// An allocated extent of a file, as FIEMAP tells of it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved2: [u32; 3],
}

impl Extent {
    /// Its bytes in the file.
    pub fn range(&self) -> Range<u64> {
        self.logical..self.logical + self.length
    }

    /// Where they lie on the disk, while they have a place there.
    pub fn place(&self) -> Range<u64> {
        self.physical..self.physical + self.length
    }

    fn is_written(&self) -> bool {
        self.flags & !(LAST | MERGED) == 0
    }

    /// Whether it was written and has no place on the disk yet.
    pub fn is_delayed(&self) -> bool {
        self.flags & DELAYED != 0
    }

    /// Whether it was never written, as far as the disk knows.
    pub fn is_bare(&self) -> bool {
        self.flags & UNWRITTEN != 0
    }

    /// Whether it is one by chance, in a file that is mapped block by block.
    pub fn is_of_blocks(&self) -> bool {
        self.flags & MERGED != 0
    }

    /// Whether it lies in the inode, and has no blocks.
    pub fn is_inline(&self) -> bool {
        self.flags & INLINE != 0
    }

    /// Whether it is written to elsewhere, since others have it too.
    pub fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

impl Fiemap {
    fn extents(&self) -> &[Extent] {
        &self.extents[..(self.mapped as usize).min(BATCH)]
    }
}

/// The allocated extents that touch a range, in order: those not written to yet and those without a place on the disk yet included.
/// EOPNOTSUPP where the file system keeps none.
pub fn extents(file: &File, range: Range<u64>) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    each_extent(file, range, |extent| found.push(*extent))?;
    Ok(found)
}

/// All extents of a file, where one look shows them.
pub fn few_extents(file: &File) -> Option<Vec<Extent>> {
    let map = map(file, 0..u64::MAX >> 1).ok()?;
    let found = map.extents();
    let all = found.len() < BATCH || found.last().is_some_and(|last| last.flags & LAST != 0);
    all.then(|| found.to_vec())
}

/// The whole extent of which a look at a range of a file shows this part. A look shows nothing before its range: where the extent begins
/// is found by halving what lies before it, since to go through that may take long.
pub fn whole_extent(file: &File, part: &Range<u64>, block: u64) -> io::Result<Range<u64>> {
    let first = |from| -> io::Result<Range<u64>> {
        Ok(map(file, from..u64::MAX >> 1)?.extents().first().map_or(part.clone(), Extent::range))
    };
    let end = first(part.start)?.end.max(part.end);
    let (mut before, mut start) = (0, part.start);
    while before < start {
        let middle = (before.midpoint(start) / block * block).max(before);
        let found = first(middle)?;
        if found.end <= part.start {
            before = found.end.max(middle + 1);
        } else if found.start == middle {
            start = middle;
        } else {
            return Ok(found.start..end);
        }
    }
    Ok(start..end)
}

/// Whether what lies before a place in a file was written, and what lies there is its continuation on the disk: written too, it is
/// part of the same extent.
pub fn goes_on(file: &File, at: u64) -> bool {
    let around = extents(file, at.saturating_sub(1)..at + 1).unwrap_or_default();
    let [before, here] = &around[..] else { return false };
    before.is_written()
        && before.range().end == at
        && here.logical == at
        && before.physical + before.length == here.physical
}

/// How many bytes of a range were written and have their place on the disk. EOPNOTSUPP as above.
pub fn written_bytes(file: &File, range: Range<u64>) -> io::Result<u64> {
    let mut sum = 0;
    each_extent(file, range.clone(), |extent| {
        let end = (extent.logical + extent.length).min(range.end);
        if extent.is_written() {
            sum += end.saturating_sub(extent.logical.max(range.start));
        }
    })?;
    Ok(sum)
}

fn each_extent(file: &File, range: Range<u64>, mut visit: impl FnMut(&Extent)) -> io::Result<()> {
    let mut start = range.start;
    while start < range.end {
        let map = map(file, start..range.end)?;
        map.extents().iter().for_each(&mut visit);
        match map.extents().last() {
            Some(last) if last.flags & LAST == 0 && last.logical + last.length > start => {
                start = last.logical + last.length;
            }
            _ => break,
        }
    }
    Ok(())
}

/// What was written and has its place on the disk from `start` on without a gap, as far as one look goes.
pub fn written_run(file: &File, start: u64) -> Option<Range<u64>> {
    let map = map(file, start..u64::MAX >> 1).ok()?;
    let mut run: Option<Range<u64>> = None;
    for extent in map.extents() {
        let from = run.as_ref().map_or(start, |run| run.end);
        if !extent.is_written() || extent.logical > from {
            break;
        }
        let begin = run.map_or(extent.logical, |run| run.start);
        run = Some(begin..extent.logical + extent.length);
    }
    run
}

fn map(file: &File, range: Range<u64>) -> io::Result<Fiemap> {
    let mut map = Fiemap {
        start: range.start,
        length: range.end - range.start,
        flags: 0,
        mapped: 0,
        count: BATCH as u32,
        reserved: 0,
        extents: [Extent::default(); BATCH],
    };
    // SAFETY: the structure has the kernel's layout and says how many extents it has room for.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } {
        0 => Ok(map),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 4096;

    fn are_in_place(file: &File, range: Range<u64>) -> io::Result<bool> {
        Ok(written_bytes(file, range.clone())? == range.end - range.start)
    }

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
        fallocate(&file, FallocateFlags::empty(), 16384, 16384).unwrap();
        assert!(!are_in_place(&file, 0..32768).unwrap() && are_in_place(&file, 0..16384).unwrap());
    }

    /// Where there are no extents there is nothing to be found.
    #[test]
    fn any_part_of_an_extent_leads_to_all_of_it() {
        let file = tempfile::tempfile().unwrap();
        for n in 0..100 {
            let at = n * 40 * BLOCK;
            let allocated = fallocate(&file, FallocateFlags::empty(), at, (1 + n % 20) * BLOCK);
            if allocated.is_err() || extents(&file, 0..1).is_err() {
                eprintln!("skipped: no extents here");
                return;
            }
            // Right before it, right behind it, or away from it.
            file.write_all_at(&[1; BLOCK as usize], at + [39, 1 + n % 20, 30][n as usize % 3] * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        let all: Vec<_> = extents(&file, 0..u64::MAX >> 1).unwrap().iter().map(Extent::range).collect();
        assert!(all.len() > 100, "{}", all.len());
        for extent in all {
            for at in (extent.start..extent.end).step_by(BLOCK as usize) {
                let part = at..at + BLOCK;
                assert_eq!(whole_extent(&file, &part, BLOCK).unwrap(), extent, "at {at}");
            }
        }
    }
}
