//! SEEK_DATA, SEEK_HOLE, sparse files.

use crate::check::*;
use crate::sys;

checks!("holes": data_and_hole_positions, past_the_end, sparse_takes_no_space, whole_file_is_data_at_least);

fn data_and_hole_positions(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    let unit = 65_536;
    sys::pwrite(&fd, &[b'1'; 4096], 4 * unit)?;
    sys::pwrite(&fd, &[b'2'; 4096], 8 * unit)?;
    sys::ftruncate(&fd, 12 * unit)?;
    sys::fsync(&fd)?;
    equal(sys::lseek(&fd, 0, libc::SEEK_HOLE)?, 0)?;
    let first = sys::lseek(&fd, 0, libc::SEEK_DATA)?;
    if first == 0 {
        return Err(Failure::Skipped("the file system does not know its holes".to_owned()));
    }
    equal(first, 4 * unit)?;
    let hole = sys::lseek(&fd, first, libc::SEEK_HOLE)?;
    ensure(hole > first && hole < 8 * unit, "a hole follows the data")?;
    equal(sys::lseek(&fd, hole, libc::SEEK_DATA)?, 8 * unit)?;
    refused(sys::lseek(&fd, 10 * unit, libc::SEEK_DATA), libc::ENXIO)?;
    equal(sys::lseek(&fd, 10 * unit, libc::SEEK_HOLE)?, 10 * unit)
}

fn past_the_end(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"abc")?, libc::O_RDONLY, 0)?;
    refused(sys::lseek(&fd, 3, libc::SEEK_DATA), libc::ENXIO)?;
    refused(sys::lseek(&fd, 3, libc::SEEK_HOLE), libc::ENXIO)?;
    refused(sys::lseek(&fd, 100, libc::SEEK_HOLE), libc::ENXIO)
}

fn whole_file_is_data_at_least(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[b'x'; 10_000])?, libc::O_RDONLY, 0)?;
    equal(sys::lseek(&fd, 0, libc::SEEK_DATA)?, 0)?;
    equal(sys::lseek(&fd, 5000, libc::SEEK_DATA)?, 5000)?;
    equal(sys::lseek(&fd, 0, libc::SEEK_HOLE)?, 10_000)
}

fn sparse_takes_no_space(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    sys::ftruncate(&fd, 100 << 30)?;
    let stat = sys::fstat(&fd)?;
    equal(stat.st_size, 100 << 30)?;
    ensure(stat.st_blocks < 100, "a hole takes no blocks")?;
    sys::pwrite(&fd, b"middle", 50 << 30)?;
    sys::fsync(&fd)?;
    ensure(sys::fstat(&fd)?.st_blocks < 200, "one block was written")?;
    let mut buffer = [1; 8];
    equal(sys::pread(&fd, &mut buffer, (50 << 30) - 1)?, 8)?;
    equal(&buffer, b"\0middle\0")
}
