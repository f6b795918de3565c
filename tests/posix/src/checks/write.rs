//! read(2), write(2) and their relatives on regular files.

use crate::check::*;
use crate::sys;

checks!("write": past_the_end_leaves_zeros, wrong_descriptor_mode, size_seen_at_once, sizes_around_pages, seek_positions,
    two_descriptors_agree, large_single_write, fsync_kinds, file_size_limit_is_large, negative_offset);

fn past_the_end_leaves_zeros(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"ab")?, libc::O_RDWR, 0)?;
    sys::pwrite(&fd, b"z", 9000)?;
    let got = content(p.at("f"))?;
    equal(got.len(), 9001)?;
    ensure(got[2..9000].iter().all(|&byte| byte == 0), "the gap reads as zeros")
}

fn wrong_descriptor_mode(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    refused(sys::write(&sys::open(&file, libc::O_RDONLY, 0)?, b"x"), libc::EBADF)?;
    refused(sys::read(&sys::open(&file, libc::O_WRONLY, 0)?, &mut [0; 3]), libc::EBADF)
}

fn size_seen_at_once(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_WRONLY, 0)?;
    for size in 1..200_i64 {
        sys::write(&fd, b"x")?;
        equal((sys::stat(&file)?.st_size, sys::fstat(&fd)?.st_size), (size, size))?;
    }
    Ok(())
}

fn sizes_around_pages(p: &Place) -> Outcome {
    for size in [1, 511, 4095, 4096, 4097, 65_535, 65_537, 131_073, 1_048_575, 1_048_577] {
        let data: Vec<u8> = (0..size).map(|index: usize| (index * 7 + index / 251) as u8).collect();
        let path = p.file(&size.to_string(), &data)?;
        ensure(content(&path)? == data, &format!("{size} bytes come back as they were written"))?;
        let fd = sys::open(&path, libc::O_RDONLY, 0)?;
        let mut buffer = vec![0; 10];
        equal(sys::pread(&fd, &mut buffer, size as i64)?, 0)?;
        equal(sys::pread(&fd, &mut buffer, size as i64 - 1)?, 1)?;
    }
    Ok(())
}

fn seek_positions(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"0123456789")?, libc::O_RDWR, 0)?;
    equal(sys::lseek(&fd, 0, libc::SEEK_END)?, 10)?;
    equal(sys::lseek(&fd, -4, libc::SEEK_CUR)?, 6)?;
    let mut buffer = [0; 2];
    equal(sys::read(&fd, &mut buffer)?, 2)?;
    equal(&buffer, b"67")?;
    equal(sys::lseek(&fd, 100, libc::SEEK_SET)?, 100)?;
    equal(sys::read(&fd, &mut buffer)?, 0)?;
    refused(sys::lseek(&fd, -1, libc::SEEK_SET), libc::EINVAL)
}

fn two_descriptors_agree(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let (one, other) = (sys::open(&file, libc::O_RDWR, 0)?, sys::open(&file, libc::O_RDWR, 0)?);
    for number in 0..100_i64 {
        let text = format!("{number:08}");
        let (writer, reader) = if number % 2 == 0 { (&one, &other) } else { (&other, &one) };
        sys::pwrite(writer, text.as_bytes(), number * 8)?;
        let mut buffer = [0; 8];
        equal(sys::pread(reader, &mut buffer, number * 8)?, 8)?;
        equal(buffer.to_vec(), text.into_bytes())?;
    }
    Ok(())
}

fn large_single_write(p: &Place) -> Outcome {
    let data = vec![b'L'; 9 << 20];
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    equal(sys::write(&fd, &data)?, data.len())?;
    let mut back = vec![0; data.len()];
    equal(sys::pread(&fd, &mut back, 0)?, data.len())?;
    ensure(back == data, "9 MiB come back as they were written")
}

fn fsync_kinds(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"x")?, libc::O_RDWR, 0)?;
    sys::fsync(&fd)?;
    sys::fdatasync(&fd)?;
    sys::syncfs(&fd)?;
    sys::fsync(&sys::open(p.at("f"), libc::O_RDONLY, 0)?)?;
    sys::fsync(&sys::open(&p.0, libc::O_DIRECTORY, 0)?)?;
    let synced = sys::open(p.at("g"), libc::O_CREAT | libc::O_WRONLY | libc::O_SYNC, 0o644)?;
    Ok(sys::write(&synced, b"synced").map(drop)?)
}

fn file_size_limit_is_large(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    let at = 5_000_000_000;
    sys::pwrite(&fd, b"far", at)?;
    equal(sys::fstat(&fd)?.st_size, at + 3)?;
    let mut buffer = [0; 3];
    equal(sys::pread(&fd, &mut buffer, at)?, 3)?;
    equal(&buffer, b"far")
}

fn negative_offset(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"abc")?, libc::O_RDWR, 0)?;
    refused(sys::pread(&fd, &mut [0; 1], -1), libc::EINVAL)?;
    refused(sys::pwrite(&fd, b"x", -1), libc::EINVAL)
}
