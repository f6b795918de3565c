//! `/proc/PID/pagemap`: which pages of a process are in memory.

use crate::{PAGE, sys};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Set in the entry of a page that is in memory.
const PRESENT: u64 = 1 << 63;

/// And of one that is swapped out.
const SWAPPED: u64 = 1 << 62;

/// Which of so many pages from an address on are in memory. Past the end of a process' addresses none are.
pub fn present(pid: i32, start: u64, pages: u64) -> io::Result<Vec<bool>> {
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut entries = vec![0; pages as usize * 8];
    let read = file.read_at(&mut entries, start / PAGE * 8)?;
    let entry = |bytes: &[u8]| bytes.try_into().is_ok_and(|bytes| u64::from_ne_bytes(bytes) & PRESENT != 0);
    Ok(entries[..read].chunks_exact(8).map(entry).collect())
}

/// Calls `found` with the number of each page of a range that the process of such a file has, in memory or swapped out. Of one that is gone nothing
/// is found, or an error given.
pub fn each_existing(file: &File, range: Range<u64>, mut found: impl FnMut(u64)) -> io::Result<()> {
    match scan(file, range.clone(), &mut found) {
        // Before Linux 6.7.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            read(file, range, &mut found)
        }
        other => other,
    }
}

/// By the kernel, which passes over what is only reserved.
fn scan(file: &File, range: Range<u64>, found: &mut impl FnMut(u64)) -> io::Result<()> {
    let mut regions = [sys::PageRegion::default(); 256];
    let mut start = range.start;
    while start < range.end {
        let (count, reached) = sys::scan_pages(file, start..range.end, &mut regions)?;
        for region in &regions[..count] {
            (region.start / PAGE..region.end / PAGE).for_each(&mut *found);
        }
        if reached <= start {
            break;
        }
        start = reached;
    }
    Ok(())
}

/// Page by page, 32 MiB at a time.
fn read(file: &File, range: Range<u64>, found: &mut impl FnMut(u64)) -> io::Result<()> {
    let mut entries = vec![0; 8192 * 8];
    let (mut page, end) = (range.start / PAGE, range.end / PAGE);
    while page < end {
        let wanted = ((end - page) as usize).min(8192) * 8;
        let got = file.read_at(&mut entries[..wanted], page * 8)?;
        if got < 8 {
            break;
        }
        for entry in entries[..got].chunks_exact(8) {
            if entry.try_into().is_ok_and(|bytes| u64::from_ne_bytes(bytes) & (PRESENT | SWAPPED) != 0) {
                found(page);
            }
            page += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_reserved_is_not_found_either_way() {
        let block = vec![0u8; 64 << 20];
        let start = (block.as_ptr() as u64).next_multiple_of(PAGE);
        let touched = [3, 9_000, 9_001];
        for page in touched {
            let at = (start - block.as_ptr() as u64 + page * PAGE) as usize;
            // SAFETY: within the block, which nobody else refers to.
            unsafe { block.as_ptr().cast_mut().add(at).write_volatile(1) };
        }
        let file = File::open("/proc/self/pagemap").unwrap();
        let range = start..start + (63 << 20);
        let mut pages = [Vec::new(), Vec::new()];
        read(&file, range.clone(), &mut |page| pages[0].push(page)).unwrap();
        each_existing(&file, range, |page| pages[1].push(page)).unwrap();
        // Huge pages are touched whole.
        assert!(
            pages[0] == pages[1] && touched.iter().all(|page| pages[0].contains(&(start / PAGE + page))),
            "{pages:?}"
        );
        assert!(pages[0].len() <= 3 * 512, "{}", pages[0].len());
    }
}
