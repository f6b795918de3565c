//! The writes that a process has queued, with io_submit(2) or in its rings: one of them waits for us.
//!
//! What stands there is the process's own memory. It may have changed it since the kernel took it, and a ring still holds what was
//! taken from it before: the longest write of all is what is thought of, and the furthest.

use super::place::{Place, STANDS, begins};
use super::{File, file_at, lengths, memory, numbers, spliced};
use std::time::{Duration, Instant};

/// Requests that one io_submit(2) may bring.
const MOST_SUBMITTED: usize = 4096;

/// `struct iocb`: where it holds what.
mod iocb {
    pub const SIZE: usize = 64;
    pub const OPCODE: usize = 16;
    pub const DESCRIPTOR: usize = 20;
    pub const BUFFER: usize = 24;
    pub const LENGTH: usize = 32;
    pub const OFFSET: usize = 40;
    pub const PWRITE: u8 = 1;
    pub const PWRITEV: u8 = 8;
}

/// `struct io_uring_sqe`: where it holds what.
mod sqe {
    pub const SIZE: usize = 64;
    pub const FLAGS: usize = 1;
    pub const DESCRIPTOR: usize = 4;
    pub const OFFSET: usize = 8;
    pub const ADDRESS: usize = 16;
    pub const LENGTH: usize = 24;
    pub const WRITEV: u8 = 2;
    pub const WRITE_FIXED: u8 = 5;
    pub const WRITE: u8 = 23;
    pub const SPLICE: u8 = 30;
    pub const WRITEV_FIXED: u8 = 61;
    /// What comes after it may write as well, for all we know (`IORING_OP_PIPE`).
    pub const LAST_KNOWN: u8 = 62;
    /// The descriptor is a number that the ring alone knows (`IOSQE_FIXED_FILE`).
    pub const FIXED_FILE: u8 = 1;
    /// Where in the ring's file its requests are mapped from (`IORING_OFF_SQES`).
    pub const MAPPED_AT: u64 = 0x1000_0000;
    /// The largest ring, of the larger kind of requests.
    pub const MOST: u64 = 2 * 32768 * 64;
}

/// How the descriptor of a ring is shown.
const RING: &str = "anon_inode:[io_uring]";

/// A write that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    /// What it goes to, if that is a descriptor of the process.
    descriptor: Option<u64>,
    offset: u64,
    length: u64,
}

/// The longest of these. None is not believed: one of them waits for us.
pub(super) fn longest(queued: &[Queued]) -> Option<u64> {
    queued.iter().map(|write| write.length).max().filter(|length| *length > 0)
}

/// The furthest place where one of these begins that may go to a file, at the end where none begins anywhere else.
pub(super) fn furthest(thread: u32, queued: &[Queued], file: Option<File>) -> Option<Place> {
    let may_be_it = |write: &&Queued| {
        let its = write.descriptor.and_then(|descriptor| file_at(thread, descriptor));
        file.zip(its).is_none_or(|(file, its)| file == its)
    };
    let place = |write: &Queued| {
        let known = (write.offset != STANDS).then_some(Place::At(write.offset));
        write.descriptor.and_then(|descriptor| begins(thread, descriptor, write.offset)).or(known)
    };
    let places: Option<Vec<Place>> = queued.iter().filter(may_be_it).map(place).collect();
    places?.into_iter().max_by_key(|place| if let Place::At(at) = place { Some(*at) } else { None })
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?).into())
}

/// The writes among those that a thread submits.
pub(super) fn submitted(thread: u32, at: u64, count: u64) -> Option<Vec<Queued>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST_SUBMITTED)?;
    let mut queued = Vec::new();
    for pointer in memory(thread, at, count * 8)?.chunks_exact(8) {
        let bytes = memory(thread, number(pointer, 0)?, iocb::SIZE)?;
        let length = match bytes[iocb::OPCODE] {
            iocb::PWRITE => number(&bytes, iocb::LENGTH)?,
            iocb::PWRITEV => lengths(thread, number(&bytes, iocb::BUFFER)?, number(&bytes, iocb::LENGTH)?, false)?,
            _ => continue,
        };
        let descriptor = Some(short(&bytes, iocb::DESCRIPTOR)?);
        queued.push(Queued { descriptor, offset: number(&bytes, iocb::OFFSET)?, length });
    }
    Some(queued)
}

/// Mappings that are looked at: one ring can be mapped any number of times, and each is as large as the largest.
const MOST_RINGS: usize = 256;

/// Other threads may make rings and take theirs away while we look: it is looked again, for so long at most where they do, and where all stays
/// as it is. On a busy machine who unmapped his, and is about to close it, gets his next turn late.
const PATIENCE: Duration = Duration::from_secs(5);
const UNCHANGED: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);

/// What a look at the rings of a process saw of them: the descriptors of those in use, and where their requests are.
#[derive(Default, PartialEq, Eq)]
struct Rings {
    used: Vec<u32>,
    mapped: Vec<(u64, u64)>,
}

impl Rings {
    fn of(thread: u32) -> Option<Self> {
        let used =
            numbers(format!("/proc/{thread}/fd")).filter(|descriptor| is_used_ring(thread, *descriptor)).collect();
        let maps = std::fs::read_to_string(format!("/proc/{thread}/maps")).ok()?;
        Some(Self { used, mapped: mapped_rings(&maps)? })
    }

    /// The writes in them. None when one of them cannot be seen.
    fn queued(&self, thread: u32) -> Option<Vec<Queued>> {
        let (mut rings, mut queued) = (0, Vec::new());
        for (start, length) in &self.mapped {
            let requests = memory(thread, *start, usize::try_from(*length).ok()?)?;
            // One that is new shows nothing, and stands for no other.
            if requests.iter().any(|byte| *byte != 0) {
                rings += 1;
                queued.extend(writes(thread, &requests)?);
            }
        }
        (rings > 0 && rings >= self.used.len()).then_some(queued)
    }
}

/// The writes in the rings of a thread's process. None when it has a ring that we cannot see.
pub(super) fn in_rings(thread: u32) -> Option<Vec<Queued>> {
    let (began, mut changed, mut before) = (Instant::now(), Instant::now(), Rings::default());
    loop {
        let rings = Rings::of(thread)?;
        let queued = rings.queued(thread);
        if rings != before {
            (changed, before) = (Instant::now(), rings);
        }
        if queued.is_some() || changed.elapsed() >= UNCHANGED || began.elapsed() >= PATIENCE {
            return queued;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a descriptor is a ring, and one that something was ever taken from.
fn is_used_ring(thread: u32, descriptor: u32) -> bool {
    let is_ring =
        std::fs::read_link(format!("/proc/{thread}/fd/{descriptor}")).is_ok_and(|target| target.as_os_str() == RING);
    let is_new = || {
        let text = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("CachedSqHead:").is_some_and(|taken| taken.trim() == "0"))
    };
    is_ring && !is_new()
}

/// The writes among requests.
fn writes(thread: u32, requests: &[u8]) -> Option<Vec<Queued>> {
    let mut queued = Vec::new();
    for request in requests.chunks_exact(sqe::SIZE) {
        let length = short(request, sqe::LENGTH)?;
        let length = match request[0] {
            sqe::WRITE | sqe::WRITE_FIXED => length,
            sqe::SPLICE => spliced(length),
            sqe::WRITEV | sqe::WRITEV_FIXED => lengths(thread, number(request, sqe::ADDRESS)?, length, false)?,
            other if other > sqe::LAST_KNOWN => return None,
            _ => continue,
        };
        let descriptor = Some(short(request, sqe::DESCRIPTOR)?).filter(|_| request[sqe::FLAGS] & sqe::FIXED_FILE == 0);
        queued.push(Queued { descriptor, offset: number(request, sqe::OFFSET)?, length });
    }
    Some(queued)
}

/// Of `/proc/PID/maps`: where the requests of rings are. None where there are too many to look at.
fn mapped_rings(maps: &str) -> Option<Vec<(u64, u64)>> {
    let rings: Vec<_> = maps.lines().filter_map(ring).take(MOST_RINGS + 1).collect();
    (rings.len() <= MOST_RINGS).then_some(rings)
}

/// Of a line of it: where the requests of a ring are, if it is that.
fn ring(line: &str) -> Option<(u64, u64)> {
    // Address, permissions, offset, device, inode, and what it is: the path of a file, which may end like that, begins at the root.
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
    if words.nth(2) != Some(RING) || offset != sqe::MAPPED_AT {
        return None;
    }
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some((start, (end - start).min(sqe::MOST)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::{IoUring, opcode::Nop, opcode::Write, types::Fd};
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn the_requests_of_a_ring_are_told_from_other_mappings() {
        let line = "7f0000000000-7f0000002000 rw-s 10000000 00:10 1 anon_inode:[io_uring]";
        assert_eq!(ring(line), Some((0x7f00_0000_0000, 0x2000)));
        assert_eq!(ring("7f0000000000-7f0000002000 rw-s 00000000 00:10 1 anon_inode:[io_uring]"), None);
        assert_eq!(ring("7f0000000000-7f0000002000 rw-p 10000000 00:10 1 /some/file"), None);
        assert_eq!(ring("7f0000000000-7f0000002000 rw-s 10000000 00:10 1 /tmp/anon_inode:[io_uring]"), None);
        assert_eq!(ring("7f0000000000-7f0000002000 rw-s 10000000 00:10 1 /tmp/x anon_inode:[io_uring]"), None);
        assert_eq!(ring(""), None);
    }

    /// All were copied, and kept until the last one was: a user's 65,000 took more memory than there is.
    #[test]
    fn a_ring_that_is_mapped_without_end_is_not_looked_at_without_end() {
        let line = "7f0000000000-7f0000400000 r--s 10000000 00:10 1 anon_inode:[io_uring]\n";
        assert_eq!(mapped_rings(&line.repeat(MOST_RINGS)).map(|rings| rings.len()), Some(MOST_RINGS));
        assert_eq!(mapped_rings(&line.repeat(MOST_RINGS + 1)), None);
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
        let longest_submitted = |at, count| submitted(own, at, count).and_then(|queued| longest(&queued));
        let requests = [request(0, 0, 1 << 30), request(1, 0, 5000), request(8, vector.as_ptr() as u64, 2)];
        let pointers: Vec<u64> = requests.iter().map(|bytes| bytes.as_ptr() as u64).collect();
        let at = pointers.as_ptr() as u64;
        assert_eq!(longest_submitted(at, 3), Some(7000));
        assert_eq!(longest_submitted(at, 2), Some(5000));
        // One of them writes.
        assert_eq!(longest_submitted(at, 1), None);
        assert_eq!((longest_submitted(at, 1 << 40), longest_submitted(8, 1)), (None, None));
    }

    fn request(opcode: u8, descriptor: u32, offset: u64, address: u64, length: u32) -> [u8; sqe::SIZE] {
        let mut bytes = [0; sqe::SIZE];
        bytes[0] = opcode;
        bytes[sqe::DESCRIPTOR..sqe::DESCRIPTOR + 4].copy_from_slice(&descriptor.to_ne_bytes());
        bytes[sqe::OFFSET..sqe::OFFSET + 8].copy_from_slice(&offset.to_ne_bytes());
        bytes[sqe::ADDRESS..sqe::ADDRESS + 8].copy_from_slice(&address.to_ne_bytes());
        bytes[sqe::LENGTH..sqe::LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    /// What was not known passed for nothing, and was let go on at the limit.
    #[test]
    fn what_newer_kernels_have_written_is_told_or_said_to_be_unknown() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let vector = [0, 3000_u64, 0, 4000];
        let longest = |opcode| {
            let requests = [request(0, 0, 0, 0, 9000), request(opcode, 0, 0, vector.as_ptr() as u64, 2)].concat();
            writes(own, &requests).and_then(|queued| longest(&queued))
        };
        assert_eq!((longest(sqe::WRITEV), longest(sqe::WRITEV_FIXED)), (Some(7000), Some(7000)));
        // IORING_OP_READ, and what nobody has thought of yet.
        assert_eq!((longest(22), longest(200)), (None, None));
    }

    #[test]
    fn the_furthest_place_of_what_is_queued_for_a_file_counts() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let [file, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let descriptor = |file: &std::fs::File| file.as_raw_fd() as u32;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(70_000)).unwrap();
        let all = [
            request(sqe::WRITE, descriptor(&file), 4096, 0, 10),
            request(sqe::WRITE, descriptor(&other), 1 << 40, 0, 10),
            request(sqe::WRITE, descriptor(&file), u64::MAX, 0, 10),
        ];
        let its = file_at(own, descriptor(&file).into());
        let furthest = |count: usize| furthest(own, &writes(own, &all[..count].concat()).unwrap(), its);
        assert_eq!((furthest(0), furthest(1), furthest(2)), (None, Some(Place::At(4096)), Some(Place::At(4096))));
        assert_eq!(furthest(3), Some(Place::At(70_000)));
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
        assert_eq!(furthest(3), Some(Place::End));
    }

    /// A write was refused with room left: a ring of another thread's was gone when it was to be read.
    #[test]
    fn rings_that_come_and_go_hide_no_other() {
        let Ok(mut kept) = IoUring::new(2) else { return };
        let file = tempfile::tempfile().unwrap();
        let data = [0; 5000];
        let write = Write::new(Fd(file.as_raw_fd()), data.as_ptr(), 5000).build();
        // SAFETY: `data` and `file` outlive the ring.
        unsafe { kept.submission().push(&write) }.unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let longest_in_rings = || in_rings(own).and_then(|queued| longest(&queued));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        drop(IoUring::new(2));
                    }
                });
            }
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                let longest = longest_in_rings();
                if longest.is_none_or(|longest| longest < 5000) {
                    stop.store(true, Relaxed);
                    panic!("{longest:?}");
                }
            }
            stop.store(true, Relaxed);
        });
        // Nor does the one hide another that is not mapped: writes of that passed the limit.
        kept.submit_and_wait(1).unwrap();
        let mut used = IoUring::new(2).unwrap();
        // SAFETY: it uses nothing.
        unsafe { used.submission().push(&Nop::new().build()) }.unwrap();
        used.submit_and_wait(1).unwrap();
        // SAFETY: the ring is open.
        let hidden = unsafe { BorrowedFd::borrow_raw(used.as_raw_fd()) }.try_clone_to_owned().unwrap();
        drop(used);
        assert_eq!(longest_in_rings(), None);
        // Who takes one away may have to wait for his turn in between.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                drop(hidden);
            });
            assert_eq!(longest_in_rings(), Some(5000));
        });
    }
}
