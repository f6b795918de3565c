//! link(2), linkat(2).

use crate::check::*;
use crate::sys;

checks!("link": counts_and_shares, every_kind, never_directories, existing_target, missing_source,
    symlink_itself_or_target, needs_write_on_directory, many, through_proc_descriptor);

fn counts_and_shares(p: &Place) -> Outcome {
    let a = p.file("a", b"one")?;
    sys::mkdir(p.at("d"), 0o755)?;
    sys::link(&a, p.at("b"))?;
    sys::link(&a, p.at("d/c"))?;
    let (one, other) = (sys::lstat(&a)?, sys::lstat(p.at("d/c"))?);
    equal((one.st_nlink, other.st_nlink), (3, 3))?;
    equal(one.st_ino, other.st_ino)?;
    sys::chmod(p.at("b"), 0o600)?;
    equal_mode(mode(p.at("d/c"))?, 0o600)?;
    let fd = sys::open(p.at("b"), libc::O_WRONLY | libc::O_APPEND, 0)?;
    write_all(&fd, b" two")?;
    equal(content(p.at("d/c"))?, b"one two".to_vec())?;
    equal(sys::lstat(&a)?.st_size, 7)?;
    sys::unlink(&a)?;
    equal(sys::lstat(p.at("b"))?.st_nlink, 2)?;
    sys::unlink(p.at("b"))?;
    equal(sys::lstat(p.at("d/c"))?.st_nlink, 1)?;
    equal(content(p.at("d/c"))?, b"one two".to_vec())
}

fn every_kind(p: &Place) -> Outcome {
    for kind in Kind::FILES {
        let a = p.make(&format!("{kind:?}"), kind)?;
        let b = p.at(format!("{kind:?}-link"));
        sys::link(&a, &b)?;
        let (one, other) = (sys::lstat(&a)?, sys::lstat(&b)?);
        equal((one.st_ino, one.st_nlink, one.st_mode), (other.st_ino, 2, other.st_mode))?;
        equal(one.st_rdev, other.st_rdev)?;
    }
    Ok(())
}

fn never_directories(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    refused(sys::link(&d, p.at("e")), libc::EPERM)
}

fn existing_target(p: &Place) -> Outcome {
    let a = p.file("a", b"")?;
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let b = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::link(&a, &b), libc::EEXIST)?;
    }
    refused(sys::link(&a, &a), libc::EEXIST)?;
    equal(sys::lstat(&a)?.st_nlink, 1)
}

fn missing_source(p: &Place) -> Outcome {
    refused(sys::link(p.at("missing"), p.at("b")), libc::ENOENT)?;
    let a = p.file("a", b"")?;
    refused(sys::link(&a, p.at("missing/b")), libc::ENOENT)?;
    refused(sys::link(p.at("a/x"), p.at("b")), libc::ENOTDIR)?;
    refused(sys::link(&a, p.at("a/x")), libc::ENOTDIR)
}

fn symlink_itself_or_target(p: &Place) -> Outcome {
    p.file("f", b"")?;
    sys::symlink("f", p.at("s"))?;
    sys::link(p.at("s"), p.at("s2"))?;
    equal(sys::readlink(p.at("s2"))?, b"f".to_vec())?;
    sys::linkat(p.at("s"), p.at("f2"), libc::AT_SYMLINK_FOLLOW)?;
    equal(sys::lstat(p.at("f2"))?.st_ino, sys::lstat(p.at("f"))?.st_ino)
}

fn needs_write_on_directory(p: &Place) -> Outcome {
    let (from, to) = (p.dir("from", 0o777)?, p.dir("to", 0o755)?);
    let open = p.dir("open", 0o777)?;
    sys::chown(&from, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || {
        let fd = sys::open(from.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o644)?;
        drop(fd);
        refused(sys::link(from.join("f"), to.join("f")), libc::EACCES)?;
        Ok(sys::link(from.join("f"), open.join("f"))?)
    })?;
    sys::chmod(&from, 0o700)?;
    as_user(BOB, || refused(sys::link(from.join("f"), open.join("g")), libc::EACCES))
}

fn many(p: &Place) -> Outcome {
    let a = p.file("a", b"")?;
    for number in 0..1000 {
        sys::link(&a, p.at(format!("l{number}")))?;
    }
    equal(sys::lstat(&a)?.st_nlink, 1001)?;
    for number in 0..1000 {
        sys::unlink(p.at(format!("l{number}")))?;
    }
    equal(sys::lstat(&a)?.st_nlink, 1)
}

fn through_proc_descriptor(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("a", b"x")?;
    let fd = sys::open(p.at("a"), libc::O_RDONLY, 0)?;
    let proc = format!("/proc/self/fd/{}", fd.as_raw_fd());
    sys::linkat(proc, p.at("b"), libc::AT_SYMLINK_FOLLOW)?;
    equal(sys::lstat(p.at("b"))?.st_nlink, 2)
}
