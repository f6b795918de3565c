//! Replies: what the kernel reads is what was meant, and nothing is written past the buffer.

use crate::abi::{self, output::*};
use crate::reply::{Listing, Reply};
use std::time::Duration;
use ullage_fs::{Attributes, AttributesFor, Data, Entry, Errno, Listed, Opened};
use ullage_types::{NodeId, Timestamp};

fn entry() -> Entry {
    let time = Timestamp { seconds: -5, nanoseconds: 7 };
    let attributes = Attributes {
        ino: 9,
        size: 10,
        blocks: 11,
        atime: time,
        mtime: time,
        ctime: time,
        btime: Timestamp { seconds: 4, nanoseconds: 2 },
        mode: 0o100_644,
        nlink: 1,
        uid: 2,
        gid: 3,
        rdev: (1 << 20) | (5 << 8) | 0x34,
        block_size: 4096,
    };
    let attributes = AttributesFor { attributes, lifetime: Duration::from_millis(1500) };
    Entry { node: NodeId(77), attributes, lifetime: Duration::MAX }
}

#[test]
fn lifetimes_never_overflow_the_kernels_clock() {
    let mut buffer = [0; 256];
    let length = Reply::Entry(&entry()).encode(&mut buffer).unwrap();
    let out: EntryOut = abi::read(&buffer[..length]).unwrap();
    assert_eq!(out.entry_valid, u64::from(u32::MAX));
    assert_eq!((out.attr_valid, out.attr_valid_nsec), (1, 500_000_000));
    assert_eq!((out.nodeid, out.attr.mtime as i64, out.attr.mtimensec), (77, -5, 7));
}

#[test]
fn statx_carries_the_birth_time_and_splits_device_numbers() {
    let mut buffer = [0; 512];
    let length = Reply::Statx(&entry().attributes).encode(&mut buffer).unwrap();
    let out: StatxOut = abi::read(&buffer[..length]).unwrap();
    assert_eq!((out.stat.btime.tv_sec, out.stat.btime.tv_nsec), (4, 2));
    assert_eq!((out.stat.rdev_major, out.stat.rdev_minor), (5, 0x134));
    assert_ne!(out.stat.mask & libc::STATX_BTIME, 0);
}

#[test]
fn each_way_data_moves_has_its_flags() {
    for (data, keep_cache, flags, backing) in [
        (Data::Server, false, 0, 0),
        (Data::Server, true, FOPEN_KEEP_CACHE, 0),
        (Data::Direct, false, FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES, 0),
        // The kernel refuses FOPEN_KEEP_CACHE beside FOPEN_PASSTHROUGH.
        (Data::Passthrough(3), true, FOPEN_PASSTHROUGH, 3),
        (Data::Exact(4), true, FOPEN_PASSTHROUGH | FOPEN_DIRECT_IO, 4),
    ] {
        // Whose pages are ours, and who may have stored to them, is told by close(2).
        let ours = backing == 0;
        let opened = Opened { handle: 5, data, keep_cache };
        for (access, tells) in [(libc::O_RDONLY, false), (libc::O_WRONLY, false), (libc::O_RDWR, ours)] {
            let mut buffer = [0; 16];
            Reply::Opened(&opened, (access | libc::O_CLOEXEC) as u32).encode(&mut buffer).unwrap();
            let out: OpenOut = abi::read(&buffer).unwrap();
            let flags = if tells { flags } else { flags | FOPEN_NOFLUSH };
            assert_eq!((out.fh, out.open_flags, out.backing_id), (5, flags, backing), "{opened:?}, {access}");
        }
    }
}

#[test]
fn a_reply_that_does_not_fit_is_an_error() {
    assert_eq!(Reply::Entry(&entry()).encode(&mut [0; 127]), Err(Errno(libc::EIO)));
    assert_eq!(Reply::Bytes(b"12345").encode(&mut [0; 4]), Err(Errno(libc::EIO)));
}

#[test]
fn a_listing_stops_where_the_next_entry_does_not_fit() {
    for plus in [false, true] {
        for room in 0..700 {
            let mut buffer = vec![0xee; room];
            let mut listing = Listing::new(&mut buffer, plus);
            let listed = Listed { name: b"a name", ino: 3, mode: libc::S_IFREG, next: 1, entry: plus.then(entry) };
            let mut taken = 0;
            while listing.push(&listed) {
                taken += 1;
            }
            let each = if plus { 160 } else { 32 };
            assert_eq!(taken, room / each);
            let used = listing.used();
            assert_eq!(used, taken * each);
            assert!(buffer[used..].iter().all(|&byte| byte == 0xee), "written past the last entry taken");
        }
    }
}
