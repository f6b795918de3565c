//! How long the writes are that a process has queued, with io_submit(2) or in its rings: one of them waits for us.
//!
//! What stands there is the process's own memory. It may have changed it since the kernel took it, and a ring still holds what was
//! taken from it before: the longest write of all is what is thought of.

use super::{lengths, memory};

/// Requests that one io_submit(2) may bring.
const MOST_SUBMITTED: usize = 4096;

/// `struct iocb`: where it holds what.
mod iocb {
    pub const SIZE: usize = 64;
    pub const OPCODE: usize = 16;
    pub const BUFFER: usize = 24;
    pub const LENGTH: usize = 32;
    pub const PWRITE: u8 = 1;
    pub const PWRITEV: u8 = 8;
}

/// `struct io_uring_sqe`: where it holds what.
mod sqe {
    pub const SIZE: usize = 64;
    pub const ADDRESS: usize = 16;
    pub const LENGTH: usize = 24;
    pub const WRITEV: u8 = 2;
    pub const WRITE_FIXED: u8 = 5;
    pub const WRITE: u8 = 23;
    pub const SPLICE: u8 = 30;
    /// Where in the ring's file its requests are mapped from (`IORING_OFF_SQES`).
    pub const MAPPED_AT: u64 = 0x1000_0000;
    /// The largest ring, of the larger kind of requests.
    pub const MOST: u64 = 2 * 32768 * 64;
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The longest write among those that a thread submits.
pub(super) fn longest_submitted(thread: u32, at: u64, count: u64) -> Option<u64> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST_SUBMITTED)?;
    let mut longest = 0;
    for pointer in memory(thread, at, count * 8)?.chunks_exact(8) {
        let bytes = memory(thread, number(pointer, 0)?, iocb::SIZE)?;
        longest = longest.max(match bytes[iocb::OPCODE] {
            iocb::PWRITE => number(&bytes, iocb::LENGTH)?,
            iocb::PWRITEV => lengths(thread, number(&bytes, iocb::BUFFER)?, number(&bytes, iocb::LENGTH)?)?,
            _ => 0,
        });
    }
    Some(longest)
}

/// Other threads may take rings of theirs away while we look: so often it is looked again.
const LOOKS: usize = 64;

/// The longest write in the rings of a thread's process. None when it has no ring that we can see.
pub(super) fn longest_in_rings(thread: u32) -> Option<u64> {
    in_rings(thread, |requests| longest_in(thread, requests))?.into_iter().max()
}

/// What is found in each ring. None when one of them is not to be read.
fn in_rings<T>(thread: u32, find: impl Fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    (0..LOOKS).find_map(|_| {
        let maps = std::fs::read_to_string(format!("/proc/{thread}/maps")).ok()?;
        let rings = maps.lines().filter_map(ring);
        rings.map(|(start, length)| find(&memory(thread, start, usize::try_from(length).ok()?)?)).collect()
    })
}

/// The longest write among requests.
fn longest_in(thread: u32, requests: &[u8]) -> Option<u64> {
    let mut longest = 0;
    for request in requests.chunks_exact(sqe::SIZE) {
        let length = u64::from(u32::from_ne_bytes(request[sqe::LENGTH..sqe::LENGTH + 4].try_into().ok()?));
        longest = longest.max(match request[0] {
            sqe::WRITE | sqe::WRITE_FIXED | sqe::SPLICE => length,
            sqe::WRITEV => lengths(thread, number(request, sqe::ADDRESS)?, length)?,
            _ => 0,
        });
    }
    Some(longest)
}

/// Of a line of `/proc/PID/maps`: where the requests of a ring are, if it is that.
fn ring(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
    if !line.ends_with("anon_inode:[io_uring]") || offset != sqe::MAPPED_AT {
        return None;
    }
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some((start, (end - start).min(sqe::MOST)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::{IoUring, opcode::Write, types::Fd};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    #[test]
    fn the_requests_of_a_ring_are_told_from_other_mappings() {
        let line = "7f0000000000-7f0000002000 rw-s 10000000 00:10 1 anon_inode:[io_uring]";
        assert_eq!(ring(line), Some((0x7f00_0000_0000, 0x2000)));
        assert_eq!(ring("7f0000000000-7f0000002000 rw-s 00000000 00:10 1 anon_inode:[io_uring]"), None);
        assert_eq!(ring("7f0000000000-7f0000002000 rw-p 10000000 00:10 1 /some/file"), None);
        assert_eq!(ring(""), None);
    }

    #[test]
    fn the_longest_of_what_is_submitted_counts() {
        let request = |opcode: u8, buffer: u64, length: u64| {
            let mut bytes = [0; iocb::SIZE];
            bytes[iocb::OPCODE] = opcode;
            bytes[iocb::BUFFER..iocb::BUFFER + 8].copy_from_slice(&buffer.to_ne_bytes());
            bytes[iocb::LENGTH..iocb::LENGTH + 8].copy_from_slice(&length.to_ne_bytes());
            bytes
        };
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let vector = [0, 3000_u64, 0, 4000];
        let requests = [request(0, 0, 1 << 30), request(1, 0, 5000), request(8, vector.as_ptr() as u64, 2)];
        let pointers: Vec<u64> = requests.iter().map(|bytes| bytes.as_ptr() as u64).collect();
        let at = pointers.as_ptr() as u64;
        assert_eq!(longest_submitted(own, at, 3), Some(7000));
        assert_eq!(longest_submitted(own, at, 2), Some(5000));
        assert_eq!((longest_submitted(own, at, 1 << 40), longest_submitted(own, 8, 1)), (None, None));
    }

    /// A write was refused with room left: a ring of another thread's was gone when it was to be read.
    #[test]
    fn rings_that_come_and_go_hide_no_other() {
        let Ok(mut kept) = IoUring::new(2) else { return };
        let file = tempfile::tempfile().unwrap();
        let data = [0; 5000];
        let write = Write::new(Fd(file.as_raw_fd()), data.as_ptr(), 5000).build();
        // SAFETY: it is never submitted.
        unsafe { kept.submission().push(&write) }.unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(IoUring::new(2));
                }
            });
            let until = Instant::now() + Duration::from_millis(500);
            while Instant::now() < until {
                let longest = longest_in_rings(own);
                if longest.is_none_or(|longest| longest < 5000) {
                    stop.store(true, Relaxed);
                    panic!("{longest:?}");
                }
            }
            stop.store(true, Relaxed);
        });
    }
}
