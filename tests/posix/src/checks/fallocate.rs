//! fallocate(2), posix_fallocate(3).

use crate::check::*;
use crate::sys;
use std::os::fd::OwnedFd;

checks!("fallocate": allocates_and_extends, keep_size, punch_hole, zero_range, collapse_and_insert, refusals,
    posix_variant, never_shows_old_data);

const BLOCK: i64 = 4096;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn open(p: &Place, content: &[u8]) -> sys::Sys<OwnedFd> {
    sys::open(p.file("f", content)?, libc::O_RDWR, 0)
}

fn all(got: &[u8], byte: u8) -> Outcome {
    ensure(got.iter().all(|&other| other == byte), &format!("all are {byte}"))
}

fn allocates_and_extends(p: &Place) -> Outcome {
    let fd = open(p, b"abc")?;
    supported(sys::fallocate(&fd, 0, 0, 100_000), "fallocate")?;
    let stat = sys::fstat(&fd)?;
    equal(stat.st_size, 100_000)?;
    ensure(stat.st_blocks * 512 >= 100_000, "the space is allocated")?;
    let got = content(p.at("f"))?;
    equal(&got[..3], b"abc")?;
    all(&got[3..], 0)?;
    sys::fallocate(&fd, 0, 10, 10)?;
    equal(sys::fstat(&fd)?.st_size, 100_000)
}

fn keep_size(p: &Place) -> Outcome {
    let fd = open(p, b"abc")?;
    supported(sys::fallocate(&fd, libc::FALLOC_FL_KEEP_SIZE, 0, 100_000), "FALLOC_FL_KEEP_SIZE")?;
    let stat = sys::fstat(&fd)?;
    equal(stat.st_size, 3)?;
    ensure(stat.st_blocks * 512 >= 100_000, "the space is allocated")?;
    sys::pwrite(&fd, b"z", 50_000)?;
    let got = content(p.at("f"))?;
    equal(got.len(), 50_001)?;
    all(&got[3..50_000], 0)
}

fn punch_hole(p: &Place) -> Outcome {
    let fd = open(p, &[b'x'; 40_960])?;
    sys::fsync(&fd)?;
    let before = sys::fstat(&fd)?.st_blocks;
    supported(sys::fallocate(&fd, PUNCH, 2 * BLOCK, 3 * BLOCK), "FALLOC_FL_PUNCH_HOLE")?;
    let stat = sys::fstat(&fd)?;
    equal(stat.st_size, 40_960)?;
    equal(stat.st_blocks, before - 24)?;
    let got = content(p.at("f"))?;
    all(&got[..8192], b'x')?;
    all(&got[8192..20_480], 0)?;
    all(&got[20_480..], b'x')?;
    // Inside blocks, and past the end.
    sys::fallocate(&fd, PUNCH, 100, 50)?;
    sys::fallocate(&fd, PUNCH, 40_000, 100_000)?;
    let got = content(p.at("f"))?;
    equal(got.len(), 40_960)?;
    all(&got[100..150], 0)?;
    all(&got[150..8192], b'x')?;
    all(&got[40_000..], 0)
}

fn zero_range(p: &Place) -> Outcome {
    let fd = open(p, &[b'x'; 20_000])?;
    supported(sys::fallocate(&fd, libc::FALLOC_FL_ZERO_RANGE, 1000, 9000), "FALLOC_FL_ZERO_RANGE")?;
    let got = content(p.at("f"))?;
    equal(got.len(), 20_000)?;
    all(&got[..1000], b'x')?;
    all(&got[1000..10_000], 0)?;
    all(&got[10_000..], b'x')?;
    sys::fallocate(&fd, libc::FALLOC_FL_ZERO_RANGE, 15_000, 10_000)?;
    let got = content(p.at("f"))?;
    equal(got.len(), 25_000)?;
    all(&got[15_000..], 0)?;
    sys::fallocate(&fd, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 20_000, 90_000)?;
    equal(sys::fstat(&fd)?.st_size, 25_000)
}

fn collapse_and_insert(p: &Place) -> Outcome {
    let mut data = vec![b'a'; 4096];
    data.extend([b'b'; 4096]);
    data.extend([b'c'; 4096]);
    let fd = open(p, &data)?;
    supported(sys::fallocate(&fd, libc::FALLOC_FL_COLLAPSE_RANGE, BLOCK, BLOCK), "FALLOC_FL_COLLAPSE_RANGE")?;
    let got = content(p.at("f"))?;
    equal(got.len(), 8192)?;
    all(&got[..4096], b'a')?;
    all(&got[4096..], b'c')?;
    supported(sys::fallocate(&fd, libc::FALLOC_FL_INSERT_RANGE, BLOCK, BLOCK), "FALLOC_FL_INSERT_RANGE")?;
    let got = content(p.at("f"))?;
    equal(got.len(), 12_288)?;
    all(&got[4096..8192], 0)?;
    all(&got[8192..], b'c')
}

fn refusals(p: &Place) -> Outcome {
    let fd = open(p, b"abc")?;
    refused(sys::fallocate(&fd, 0, 0, 0), libc::EINVAL)?;
    refused(sys::fallocate(&fd, 0, -1, 10), libc::EINVAL)?;
    refused(sys::fallocate(&fd, 0, 0, -1), libc::EINVAL)?;
    refused(sys::fallocate(&sys::open(p.at("f"), libc::O_RDONLY, 0)?, 0, 0, 10), libc::EBADF)?;
    refused(sys::fallocate(&fd, libc::FALLOC_FL_PUNCH_HOLE, 0, 10), libc::EOPNOTSUPP)?;
    refused(sys::fallocate(&fd, 0, i64::MAX - 5, 5), libc::EFBIG)?;
    let fifo = sys::open(p.make("fifo", Kind::Fifo)?, libc::O_RDWR, 0)?;
    refused(sys::fallocate(&fifo, 0, 0, 10), libc::ESPIPE)
}

fn posix_variant(p: &Place) -> Outcome {
    let fd = open(p, b"abc")?;
    sys::posix_fallocate(&fd, 10, 1000)?;
    equal(sys::fstat(&fd)?.st_size, 1010)?;
    sys::posix_fallocate(&fd, 0, 5)?;
    equal(sys::fstat(&fd)?.st_size, 1010)?;
    equal(&content(p.at("f"))?[..3], b"abc")?;
    refused(sys::posix_fallocate(&fd, 0, 0), libc::EINVAL)?;
    refused(sys::posix_fallocate(&sys::open(p.at("f"), libc::O_RDONLY, 0)?, 0, 10), libc::EBADF)
}

fn never_shows_old_data(p: &Place) -> Outcome {
    // Fill and free some space, then allocate: none of it may show.
    drop(p.file("secret", &vec![b'S'; 4 << 20])?);
    sys::fsync(&sys::open(p.at("secret"), libc::O_RDONLY, 0)?)?;
    sys::unlink(p.at("secret"))?;
    let fd = open(p, b"")?;
    supported(sys::fallocate(&fd, 0, 0, 4 << 20), "fallocate")?;
    all(&content(p.at("f"))?, 0)
}
