//! Files that live on without a name.

use crate::check::*;
use crate::{map::Map, sys};
use std::os::fd::AsRawFd;

checks!("unlinked": data_and_attributes_live, not_linked_back, replaced_by_rename_lives, mapping_lives, many_at_once,
    reopened_through_proc);

fn data_and_attributes_live(p: &Place) -> Outcome {
    let file = p.file("f", b"before")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::unlink(&file)?;
    sys::pwrite(&fd, b" after", 6)?;
    let mut buffer = [0; 32];
    equal(sys::pread(&fd, &mut buffer, 0)?, 12)?;
    equal(&buffer[..12], b"before after")?;
    sys::fchmod(&fd, 0o711)?;
    sys::fchown(&fd, 3, 4)?;
    sys::futimens(&fd, [sys::time(10, 20), sys::time(30, 40)])?;
    sys::ftruncate(&fd, 6)?;
    sys::fsync(&fd)?;
    let stat = sys::fstat(&fd)?;
    equal((stat.st_nlink, stat.st_size, stat.st_uid, stat.st_gid), (0, 6, 3, 4))?;
    equal_mode(stat.st_mode & 0o7777, 0o711)?;
    // A new file of the same name is another file.
    p.file("f", b"other")?;
    ensure(sys::lstat(&file)?.st_ino != stat.st_ino, "a live inode's number is not given again")?;
    equal(sys::pread(&fd, &mut buffer, 0)?, 6)
}

fn not_linked_back(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    sys::unlink(p.at("f"))?;
    let proc = format!("/proc/self/fd/{}", fd.as_raw_fd());
    refused(sys::linkat(proc, p.at("back"), libc::AT_SYMLINK_FOLLOW), libc::ENOENT)
}

fn replaced_by_rename_lives(p: &Place) -> Outcome {
    let fd = sys::open(p.file("old", b"old")?, libc::O_RDWR, 0)?;
    p.file("new", b"new")?;
    sys::rename(p.at("new"), p.at("old"))?;
    sys::pwrite(&fd, b"still ", 0)?;
    equal(sys::fstat(&fd)?.st_size, 6)?;
    equal(content(p.at("old"))?, b"new".to_vec())
}

fn mapping_lives(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[b'm'; 8192])?, libc::O_RDWR, 0)?;
    let mut map = Map::new(&fd, 8192, true, true)?;
    sys::unlink(p.at("f"))?;
    drop(fd);
    map.set(5000, b"written");
    map.sync()?;
    equal(map.get(4999, 8), b"mwritten".to_vec())
}

fn many_at_once(p: &Place) -> Outcome {
    let mut open = Vec::new();
    for number in 0..200_u32 {
        let file = p.file("f", &number.to_le_bytes())?;
        open.push(sys::open(&file, libc::O_RDONLY, 0)?);
        sys::unlink(&file)?;
    }
    for (number, fd) in open.iter().enumerate() {
        let mut buffer = [0; 4];
        equal(sys::pread(fd, &mut buffer, 0)?, 4)?;
        equal(u32::from_le_bytes(buffer) as usize, number)?;
    }
    Ok(())
}

fn reopened_through_proc(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"abc")?, libc::O_RDONLY, 0)?;
    sys::unlink(p.at("f"))?;
    let again = sys::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), libc::O_RDWR, 0)?;
    sys::pwrite(&again, b"xyz", 3)?;
    equal(sys::fstat(&fd)?.st_size, 6)
}
