//! INIT: what the kernel offers, what is taken.

#[allow(clippy::wildcard_imports, reason = "the protocol's own names, all of them used here")]
use crate::abi::{self, init::*};
use crate::connection::{Connection, may_register, write_reply};
use crate::decode::decode;
use crate::message::{Dialect, Message};
use crate::request::Request;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;

/// Largest READ and WRITE.
pub(crate) const MAX_TRANSFER: u32 = 1 << 20;

/// Taken whenever offered. Not `FUSE_ASYNC_DIO`: with it a short count of an asynchronous write, as at a limit or on a full
/// disk, is an I/O error to whoever wrote.
const WANTED: u64 = ASYNC_READ
    | BIG_WRITES
    | DONT_MASK
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | PARALLEL_DIROPS
    | POSIX_ACL
    | ABORT_ERROR
    | MAX_PAGES
    | CACHE_SYMLINKS
    | EXPLICIT_INVAL_DATA
    | HANDLE_KILLPRIV_V2
    | SETXATTR_EXT
    | INIT_EXT
    | HAS_EXPIRE_ONLY
    | DIRECT_IO_ALLOW_MMAP
    | EXPORT_SUPPORT;

/// Requests of the kernel's own (readahead, asynchronous I/O, each RELEASE) in flight at most: more than can wait for pools that do not answer,
/// since none of any file comes while so many do.
pub(crate) const MAX_BACKGROUND: u16 = 4096;
/// From this many on, the kernel takes the file system for congested.
pub(crate) const CONGESTED: u16 = 3072;
/// The same over io_uring, where each takes an entry of its CPU's queue: some are left for what somebody waits for.
const IN_RINGS: (u16, u16) = (768, 576);
const _: () = assert!((IN_RINGS.0 as usize) < crate::uring::MOST_ENTRIES);

/// How long the kernel may take to send INIT, which it queues in mount(2).
const PATIENCE_SECONDS: i64 = 10;

/// What was settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub dialect: Dialect,
    pub passthrough: bool,
    pub over_io_uring: bool,
    /// Longest data of one READ or WRITE.
    pub max_transfer: usize,
}

/// Pages that so much data of one request lies in.
fn pages(bytes: u32, page: usize) -> u16 {
    u16::try_from(bytes as usize / page).unwrap_or(u16::MAX).max(1)
}

/// Answers INIT, the first request of every connection.
pub(crate) fn negotiate(connection: &Connection, passthrough: bool, io_uring: bool) -> io::Result<Settled> {
    let device = connection.device();
    let patience = Timespec { tv_sec: PATIENCE_SECONDS, tv_nsec: 0 };
    let mut poll = [PollFd::from_borrowed_fd(device, PollFlags::IN)];
    if rustix::event::poll(&mut poll, Some(&patience))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel sent no INIT"));
    }
    let mut buffer = vec![0; MAX_TRANSFER as usize + 4096];
    let length = rustix::io::read(device, &mut buffer)?;
    let dialect = Dialect { setxattr_ext: false };
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's INIT is not one");
    let message = Message::from_device(&buffer[..length], dialect).map_err(|_| broken())?;
    let unique = message.header.unique;
    let Ok(Request::Init { minor, max_readahead, flags: offered }) = decode(&message, dialect) else {
        return Err(broken());
    };
    if minor < 31 {
        // Below 7.31 structures are shorter and neither FUSE_INIT_EXT nor passthrough exist.
        let _ = write_reply(device, unique, libc::EPROTO, &[]);
        return Err(io::Error::other(format!("the kernel speaks FUSE 7.{minor}; 7.31 is the oldest understood")));
    }
    let mut wanted = WANTED;
    if passthrough {
        wanted |= PASSTHROUGH;
    }
    if io_uring {
        wanted |= OVER_IO_URING;
    }
    let taken = offered & wanted;
    let (max_background, congestion_threshold) =
        if taken & OVER_IO_URING == 0 { (MAX_BACKGROUND, CONGESTED) } else { IN_RINGS };
    let max_write = if taken & MAX_PAGES != 0 { MAX_TRANSFER } else { 32 * 4096 };
    let answer = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR.min(minor),
        max_readahead,
        flags: taken as u32,
        max_background,
        congestion_threshold,
        max_write,
        time_gran: 1,
        max_pages: pages(max_write, ullage_fs::page_size()),
        flags2: (taken >> 32) as u32,
        max_stack_depth: u32::from(taken & PASSTHROUGH != 0),
        ..InitOut::default()
    };
    write_reply(device, unique, 0, zerocopy::IntoBytes::as_bytes(&answer))?;
    let settled = Settled {
        dialect: Dialect { setxattr_ext: taken & SETXATTR_EXT != 0 },
        passthrough: taken & PASSTHROUGH != 0 && may_register(device),
        over_io_uring: taken & OVER_IO_URING != 0,
        max_transfer: max_write as usize,
    };
    connection.set_passthrough(settled.passthrough);
    tracing::debug!(minor, ?settled, offered = format!("{offered:#x}"), taken = format!("{taken:#x}"), "negotiated");
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_as_many_pages_as_their_data_whatever_a_page_is() {
        let kib = 1024;
        assert_eq!(pages(MAX_TRANSFER, 4 * kib), 256);
        assert_eq!(pages(MAX_TRANSFER, 16 * kib), 64);
        assert_eq!(pages(MAX_TRANSFER, 64 * kib), 16);
        assert_eq!(pages(MAX_TRANSFER, 2048 * kib), 1, "never none");
    }
}
