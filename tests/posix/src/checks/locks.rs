//! POSIX record locks, open-file-description locks, flock(2), leases.

use crate::check::*;
use crate::sys;

checks!("locks": posix_between_processes, posix_ranges, posix_goes_with_any_close, ofd_between_descriptors,
    flock_between_descriptors, descriptor_mode, lock_survives_rename_and_unlink);

/// The errno of a try to lock in another process; 0 when it was granted.
fn try_elsewhere(path: &std::path::Path, kind: i32, start: i64, length: i64) -> sys::Sys<i32> {
    sys::in_child(|| {
        let fd = sys::open(path, libc::O_RDWR, 0);
        match fd.and_then(|fd| sys::lock(&fd, libc::F_SETLK, kind, start, length)) {
            Ok(()) => 0,
            Err(errno) => errno.0,
        }
    })
}

const BUSY: [i32; 2] = [libc::EAGAIN, libc::EACCES];

fn posix_between_processes(p: &Place) -> Outcome {
    let file = p.file("f", b"0123456789")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::lock(&fd, libc::F_SETLK, libc::F_WRLCK, 2, 3)?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_WRLCK, 0, 0)?), "the whole file is refused")?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_RDLCK, 4, 1)?), "a part is refused")?;
    equal(try_elsewhere(&file, libc::F_WRLCK, 5, 10)?, 0)?;
    let holder = sys::in_child(|| {
        let lock =
            sys::open(&file, libc::O_RDWR, 0).and_then(|fd| sys::lock_query(&fd, libc::F_GETLK, libc::F_WRLCK, 0, 0));
        lock.map_or(255, |lock| {
            i32::from(i32::from(lock.l_type) != libc::F_WRLCK || (lock.l_start, lock.l_len) != (2, 3))
        })
    })?;
    equal(holder, 0)?;
    sys::lock(&fd, libc::F_SETLK, libc::F_UNLCK, 0, 0)?;
    equal(try_elsewhere(&file, libc::F_WRLCK, 0, 0)?, 0)
}

fn posix_ranges(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::lock(&fd, libc::F_SETLK, libc::F_RDLCK, 0, 100)?;
    equal(try_elsewhere(&file, libc::F_RDLCK, 0, 100)?, 0)?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_WRLCK, 0, 100)?), "readers exclude a writer")?;
    // Taking out the middle leaves both ends.
    sys::lock(&fd, libc::F_SETLK, libc::F_UNLCK, 40, 20)?;
    equal(try_elsewhere(&file, libc::F_WRLCK, 40, 20)?, 0)?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_WRLCK, 39, 1)?), "before the gap")?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_WRLCK, 60, 1)?), "after the gap")
}

fn posix_goes_with_any_close(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::lock(&fd, libc::F_SETLK, libc::F_WRLCK, 0, 0)?;
    ensure(BUSY.contains(&try_elsewhere(&file, libc::F_WRLCK, 0, 0)?), "locked")?;
    drop(sys::open(&file, libc::O_RDONLY, 0)?);
    equal(try_elsewhere(&file, libc::F_WRLCK, 0, 0)?, 0)
}

fn ofd_between_descriptors(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let (a, b) = (sys::open(&file, libc::O_RDWR, 0)?, sys::open(&file, libc::O_RDWR, 0)?);
    sys::lock(&a, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10)?;
    refused_any(sys::lock(&b, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1), &BUSY)?;
    sys::lock(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 5)?;
    drop(sys::open(&file, libc::O_RDONLY, 0)?);
    refused_any(sys::lock(&b, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1), &BUSY)?;
    drop(a);
    Ok(sys::lock(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0)?)
}

fn flock_between_descriptors(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let (a, b) = (sys::open(&file, libc::O_RDONLY, 0)?, sys::open(&file, libc::O_RDONLY, 0)?);
    sys::flock(&a, libc::LOCK_SH | libc::LOCK_NB)?;
    sys::flock(&b, libc::LOCK_SH | libc::LOCK_NB)?;
    refused(sys::flock(&b, libc::LOCK_EX | libc::LOCK_NB), libc::EAGAIN)?;
    sys::flock(&b, libc::LOCK_UN)?;
    sys::flock(&a, libc::LOCK_EX | libc::LOCK_NB)?;
    refused(sys::flock(&b, libc::LOCK_SH | libc::LOCK_NB), libc::EAGAIN)?;
    drop(a);
    sys::flock(&b, libc::LOCK_EX | libc::LOCK_NB)?;
    let d = sys::open(&p.0, libc::O_DIRECTORY, 0)?;
    Ok(sys::flock(&d, libc::LOCK_EX | libc::LOCK_NB).map(drop)?)
}

fn descriptor_mode(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    refused(sys::lock(&sys::open(&file, libc::O_RDONLY, 0)?, libc::F_SETLK, libc::F_WRLCK, 0, 0), libc::EBADF)?;
    refused(sys::lock(&sys::open(&file, libc::O_WRONLY, 0)?, libc::F_SETLK, libc::F_RDLCK, 0, 0), libc::EBADF)
}

fn lock_survives_rename_and_unlink(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::lock(&fd, libc::F_SETLK, libc::F_WRLCK, 0, 0)?;
    sys::rename(&file, p.at("g"))?;
    ensure(BUSY.contains(&try_elsewhere(&p.at("g"), libc::F_WRLCK, 0, 0)?), "still locked under its new name")?;
    sys::unlink(p.at("g"))?;
    p.file("g", b"")?;
    equal(try_elsewhere(&p.at("g"), libc::F_WRLCK, 0, 0)?, 0)
}
