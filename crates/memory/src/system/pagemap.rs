//! `/proc/PID/pagemap`: which pages of a process are in memory.

use crate::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Set in the entry of a page that is in memory.
const PRESENT: u64 = 1 << 63;

/// Which of so many pages from an address on are in memory. Past the end of a process' addresses none are.
pub fn present(pid: i32, start: u64, pages: u64) -> io::Result<Vec<bool>> {
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut entries = vec![0; pages as usize * 8];
    let read = file.read_at(&mut entries, start / PAGE * 8)?;
    let entry = |bytes: &[u8]| bytes.try_into().is_ok_and(|bytes| u64::from_ne_bytes(bytes) & PRESENT != 0);
    Ok(entries[..read].chunks_exact(8).map(entry).collect())
}
