//! copy_file_range(2).

use crate::check::*;
use crate::sys;

checks!("copy": copies_ranges, extends_and_stops_at_the_end, within_one_file, refusals, large);

fn copies_ranges(p: &Place) -> Outcome {
    let from = sys::open(p.file("a", b"0123456789")?, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("b", b"abcdefghij")?, libc::O_RDWR, 0)?;
    equal(supported(sys::copy_file_range(&from, 2, &to, 5, 3), "copy_file_range")?, 3)?;
    equal(content(p.at("b"))?, b"abcde234ij".to_vec())?;
    equal(content(p.at("a"))?, b"0123456789".to_vec())
}

fn extends_and_stops_at_the_end(p: &Place) -> Outcome {
    let from = sys::open(p.file("a", b"0123456789")?, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("b", b"")?, libc::O_RDWR, 0)?;
    equal(sys::copy_file_range(&from, 6, &to, 2, 100)?, 4)?;
    equal(content(p.at("b"))?, b"\0\x006789".to_vec())?;
    equal(sys::fstat(&to)?.st_size, 6)?;
    equal(sys::copy_file_range(&from, 10, &to, 0, 100)?, 0)?;
    equal(sys::copy_file_range(&from, 50, &to, 0, 100)?, 0)
}

fn within_one_file(p: &Place) -> Outcome {
    let fd = sys::open(p.file("a", b"0123456789")?, libc::O_RDWR, 0)?;
    equal(sys::copy_file_range(&fd, 0, &fd, 5, 3)?, 3)?;
    equal(content(p.at("a"))?, b"0123401289".to_vec())?;
    refused(sys::copy_file_range(&fd, 0, &fd, 2, 5), libc::EINVAL)
}

fn refusals(p: &Place) -> Outcome {
    let reader = sys::open(p.file("a", b"0123")?, libc::O_RDONLY, 0)?;
    let writer = sys::open(p.file("b", b"abcd")?, libc::O_WRONLY, 0)?;
    refused(sys::copy_file_range(&writer, 0, &writer, 2, 1), libc::EBADF)?;
    refused(sys::copy_file_range(&reader, 0, &reader, 2, 1), libc::EBADF)?;
    let append = sys::open(p.at("b"), libc::O_WRONLY | libc::O_APPEND, 0)?;
    refused(sys::copy_file_range(&reader, 0, &append, 0, 1), libc::EBADF)?;
    let d = sys::open(p.dir("d", 0o755)?, libc::O_RDONLY, 0)?;
    refused(sys::copy_file_range(&d, 0, &writer, 0, 1), libc::EISDIR)
}

fn large(p: &Place) -> Outcome {
    let data: Vec<u8> = (0..3_000_001_usize).map(|index| ((index * 31) >> 5) as u8).collect();
    let from = sys::open(p.file("a", &data)?, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("b", b"")?, libc::O_RDWR, 0)?;
    let mut done = 0;
    while done < data.len() {
        let copied = sys::copy_file_range(&from, done as i64, &to, done as i64, data.len() - done)?;
        ensure(copied > 0, "copying goes on until the end")?;
        done += copied;
    }
    ensure(content(p.at("b"))? == data, "the copy is the same")
}
