//! Where a thread that waits for us writes.

use super::looks::patient;
use super::{Call, File, call_of, memory, queues};

/// `RWF_NOAPPEND`: at its offset all the same (Linux 6.9).
const RWF_NOAPPEND: i32 = 0x20;
/// An offset that says: where the descriptor stands.
pub(super) const STANDS: u64 = u64::MAX;

/// Where a write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    At(u64),
    /// At the end of the file, wherever that is.
    End,
}

/// Where a thread that waits for us begins to write, if that is known.
pub(crate) fn place(thread: u32) -> Option<Place> {
    let call = call_of(thread)?;
    if call.is_in_memory() { patient(Some(thread), move || call.place(thread))? } else { call.place(thread) }
}

/// Where it begins at the furthest, if that is known: one of many that are queued, or a piece of what is copied.
pub(crate) fn furthest(thread: u32, file: Option<File>) -> Option<Place> {
    let call = call_of(thread)?;
    patient(Some(thread), move || call.furthest(thread, file))?
}

impl Call {
    fn place(&self, thread: u32) -> Option<Place> {
        match (self.number, &self.arguments[..]) {
            (libc::SYS_write | libc::SYS_writev | libc::SYS_sendfile, [descriptor, ..]) => {
                begins(thread, *descriptor, STANDS)
            }
            (libc::SYS_pwrite64 | libc::SYS_pwritev, [descriptor, _, _, at, ..]) => begins(thread, *descriptor, *at),
            (libc::SYS_pwritev2, [descriptor, _, _, at, _, flags, ..]) => match *flags as i32 {
                flags if flags & libc::RWF_APPEND != 0 => Some(Place::End),
                flags if flags & RWF_NOAPPEND != 0 => (*at != STANDS).then_some(Place::At(*at)),
                _ => begins(thread, *descriptor, *at),
            },
            (libc::SYS_splice, [_, _, descriptor, at, ..]) => begins(thread, *descriptor, offset_behind(thread, *at)?),
            _ => None,
        }
    }

    fn furthest(&self, thread: u32, file: Option<File>) -> Option<Place> {
        match (self.number, &self.arguments[..]) {
            (libc::SYS_io_submit | libc::SYS_io_uring_enter, _) => {
                queues::furthest(thread, &self.queued(thread)?, file)
            }
            (libc::SYS_copy_file_range, [_, _, descriptor, at, ..]) => {
                begins(thread, *descriptor, offset_behind(thread, *at)?)
            }
            _ => self.place(thread),
        }
    }
}

/// Where a write through a descriptor of a thread begins, if it is one for this offset.
pub(super) fn begins(thread: u32, descriptor: u64, at: u64) -> Option<Place> {
    Some(match position(thread, descriptor)? {
        Place::At(_) if at != STANDS => Place::At(at),
        stands => stands,
    })
}

/// The offset that a pointer leads to in the memory of who waits.
fn offset_behind(thread: u32, pointer: u64) -> Option<u64> {
    if pointer == 0 {
        return Some(STANDS);
    }
    Some(u64::from_ne_bytes(memory(thread, pointer, size_of::<u64>())?.try_into().ok()?))
}

/// Where a descriptor of a thread stands.
fn position(thread: u32, descriptor: u64) -> Option<Place> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
    if flags & libc::O_APPEND != 0 { Some(Place::End) } else { Some(Place::At(field("pos:")?.parse().ok()?)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// What was not known was refused with all room left, once a file that is lent room was opened for both.
    #[test]
    fn the_place_of_every_call_that_writes_is_known() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let file = tempfile::tempfile().unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(70_000)).unwrap();
        let (descriptor, offset) = (file.as_raw_fd() as u64, 5000_u64);
        let behind = std::ptr::from_ref(&offset) as u64;
        let appends = libc::RWF_APPEND as u64;
        let calls = [
            (libc::SYS_write, [descriptor, 0, 0, 0, 0, 0], Place::At(70_000)),
            (libc::SYS_pwritev, [descriptor, 0, 0, 5000, 0, 0], Place::At(5000)),
            (libc::SYS_pwritev2, [descriptor, 0, 0, 5000, 0, 0], Place::At(5000)),
            (libc::SYS_pwritev2, [descriptor, 0, 0, u64::MAX, 0, 0], Place::At(70_000)),
            (libc::SYS_pwritev2, [descriptor, 0, 0, 5000, 0, appends], Place::End),
            (libc::SYS_splice, [0, 0, descriptor, 0, 0, 0], Place::At(70_000)),
            (libc::SYS_splice, [0, 0, descriptor, behind, 0, 0], Place::At(5000)),
            (libc::SYS_copy_file_range, [0, 0, descriptor, behind, 0, 0], Place::At(5000)),
        ];
        for (number, arguments, place) in calls {
            let call = Call { number, arguments: arguments.to_vec(), is_compat: false };
            assert_eq!(call.furthest(own, None), Some(place), "{number} {arguments:?}");
        }
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
        for flags in [0, u64::from(RWF_NOAPPEND as u32)] {
            let arguments = vec![descriptor, 0, 0, 5000, 0, flags];
            let call = Call { number: libc::SYS_pwritev2, arguments, is_compat: false };
            assert_eq!(call.place(own), Some(if flags == 0 { Place::End } else { Place::At(5000) }));
        }
    }
}
