//! open(2).

use crate::check::*;
use crate::sys;

checks!("open": creates_with_owner_and_mode, exclusive, truncates, truncate_needs_write, kinds_refused, directory_flag,
    nofollow, permissions, path_only, fifo_without_reader, unreadable_new_file_is_open, bad_addresses, tmpfile,
    tmpfile_exclusive, tmpfile_in_a_removed_directory, noatime, trailing_slash, creates_through_dangling_link);

fn creates_with_owner_and_mode(p: &Place) -> Outcome {
    sys::umask(0);
    let d = p.dir("d", 0o777)?;
    for bits in [0, 0o400, 0o644, 0o755, 0o777, 0o1777, 0o4755] {
        let path = d.join(format!("{bits:o}"));
        as_user(ALICE, || Ok(sys::open(&path, libc::O_CREAT | libc::O_RDWR, bits).map(drop)?))?;
        let stat = sys::lstat(&path)?;
        equal_mode(stat.st_mode, libc::S_IFREG | bits)?;
        equal((stat.st_uid, stat.st_gid, stat.st_size, stat.st_nlink), (ALICE.uid, ALICE.gid, 0, 1))?;
    }
    Ok(())
}

fn exclusive(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644), libc::EEXIST)?;
    }
    Ok(())
}

fn truncates(p: &Place) -> Outcome {
    let file = p.file("f", b"content")?;
    drop(sys::open(&file, libc::O_WRONLY, 0)?);
    equal(sys::lstat(&file)?.st_size, 7)?;
    drop(sys::open(&file, libc::O_WRONLY | libc::O_TRUNC, 0)?);
    equal(sys::lstat(&file)?.st_size, 0)?;
    let reader = sys::open(p.file("g", b"content")?, libc::O_RDONLY, 0)?;
    drop(sys::open(p.at("g"), libc::O_CREAT | libc::O_RDWR | libc::O_TRUNC, 0o600)?);
    equal(sys::read(&reader, &mut [0; 10])?, 0)?;
    equal_mode(mode(p.at("g"))?, 0o644)
}

fn truncate_needs_write(p: &Place) -> Outcome {
    let file = p.file("f", b"content")?;
    sys::chmod(&file, 0o444)?;
    as_user(ALICE, || refused(sys::open(&file, libc::O_RDONLY | libc::O_TRUNC, 0), libc::EACCES))?;
    as_user(ALICE, || refused(sys::open(&file, libc::O_WRONLY | libc::O_TRUNC, 0), libc::EACCES))?;
    equal(sys::lstat(&file)?.st_size, 7)
}

fn kinds_refused(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    refused(sys::open(&d, libc::O_WRONLY, 0), libc::EISDIR)?;
    refused(sys::open(&d, libc::O_RDWR, 0), libc::EISDIR)?;
    refused(sys::open(&d, libc::O_RDONLY | libc::O_CREAT, 0o644), libc::EISDIR)?;
    refused(sys::open(&d, libc::O_RDONLY | libc::O_TRUNC, 0), libc::EISDIR)?;
    let fd = sys::open(&d, libc::O_RDONLY, 0)?;
    refused(sys::read(&fd, &mut [0; 8]), libc::EISDIR)?;
    refused(sys::open(p.make("s", Kind::Socket)?, libc::O_RDONLY, 0), libc::ENXIO)
}

fn directory_flag(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    refused(sys::open(&file, libc::O_RDONLY | libc::O_DIRECTORY, 0), libc::ENOTDIR)?;
    let d = p.dir("d", 0o755)?;
    sys::symlink("d", p.at("l"))?;
    sys::open(&d, libc::O_DIRECTORY, 0)?;
    sys::open(p.at("l"), libc::O_DIRECTORY, 0)?;
    refused(sys::open(p.at("l"), libc::O_DIRECTORY | libc::O_NOFOLLOW, 0), libc::ENOTDIR)
}

fn nofollow(p: &Place) -> Outcome {
    p.file("f", b"")?;
    sys::symlink("f", p.at("l"))?;
    sys::symlink("l", p.at("m"))?;
    sys::open(p.at("m"), libc::O_RDONLY, 0)?;
    refused(sys::open(p.at("l"), libc::O_RDONLY | libc::O_NOFOLLOW, 0), libc::ELOOP)?;
    Ok(sys::open(p.at("f"), libc::O_RDONLY | libc::O_NOFOLLOW, 0).map(drop)?)
}

fn permissions(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, TEAM)?;
    let team_member = User { uid: BOB.uid, gid: BOB.gid, groups: &[TEAM] };
    // The first class that fits decides, even if a later one would allow more.
    for (bits, user, readable, writable) in [
        (0o600, ALICE, true, true),
        (0o400, ALICE, true, false),
        (0o200, ALICE, false, true),
        (0o066, ALICE, false, false),
        (0o060, team_member, true, true),
        (0o606, team_member, false, false),
        (0o040, team_member, true, false),
        (0o006, BOB, true, true),
        (0o660, BOB, false, false),
        (0o002, BOB, false, true),
    ] {
        sys::chmod(&file, bits)?;
        as_user(user, || {
            let tries = [(libc::O_RDONLY, readable), (libc::O_WRONLY, writable), (libc::O_RDWR, readable && writable)];
            for (flags, allowed) in tries {
                let opened = sys::open(&file, flags, 0);
                if allowed { drop(opened?) } else { refused(opened, libc::EACCES)? }
            }
            Ok(())
        })?;
    }
    sys::chmod(&file, 0)?;
    Ok(sys::open(&file, libc::O_RDWR, 0).map(drop)?)
}

fn path_only(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    sys::chmod(&file, 0)?;
    as_user(ALICE, || {
        let fd = sys::open(&file, libc::O_PATH, 0)?;
        equal(sys::fstat(&fd)?.st_size, 3)?;
        refused(sys::read(&fd, &mut [0; 3]), libc::EBADF)
    })?;
    sys::symlink("f", p.at("l"))?;
    let fd = sys::open(p.at("l"), libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    equal_mode(sys::fstat(&fd)?.st_mode & libc::S_IFMT, libc::S_IFLNK)
}

fn fifo_without_reader(p: &Place) -> Outcome {
    let path = p.make("f", Kind::Fifo)?;
    refused(sys::open(&path, libc::O_WRONLY | libc::O_NONBLOCK, 0), libc::ENXIO)?;
    Ok(sys::open(&path, libc::O_RDONLY | libc::O_NONBLOCK, 0).map(drop)?)
}

fn unreadable_new_file_is_open(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    as_user(ALICE, || {
        let fd = sys::open(d.join("f"), libc::O_CREAT | libc::O_RDWR, 0o000)?;
        write_all(&fd, b"abc")?;
        equal(sys::pread(&fd, &mut [0; 3], 0)?, 3)?;
        refused(sys::open(d.join("f"), libc::O_RDONLY, 0), libc::EACCES)
    })
}

fn bad_addresses(p: &Place) -> Outcome {
    for (name, result) in sys::calls_with_bad_addresses() {
        if result != Err(sys::Errno(libc::EFAULT)) {
            return fail(&format!("{name}: expected EFAULT, got {result:?}"));
        }
    }
    let fd = sys::open(p.file("f", b"some data")?, libc::O_RDWR, 0)?;
    refused(sys::transfer_with_bad_address(&fd, true), libc::EFAULT)?;
    refused(sys::transfer_with_bad_address(&fd, false), libc::EFAULT)?;
    equal(content(p.at("f"))?, b"some data".to_vec())
}

fn tmpfile(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    let fd = supported(sys::open(&p.0, libc::O_TMPFILE | libc::O_RDWR, 0o640), "O_TMPFILE")?;
    write_all(&fd, b"unnamed")?;
    let stat = sys::fstat(&fd)?;
    equal((stat.st_nlink, stat.st_size), (0, 7))?;
    equal_mode(stat.st_mode, libc::S_IFREG | 0o640)?;
    equal(crate::directory::names(&p.0)?, vec![])?;
    sys::linkat(format!("/proc/self/fd/{}", fd.as_raw_fd()), p.at("named"), libc::AT_SYMLINK_FOLLOW)?;
    equal(content(p.at("named"))?, b"unnamed".to_vec())?;
    equal((sys::fstat(&fd)?.st_nlink, sys::lstat(p.at("named"))?.st_ino), (1, stat.st_ino))
}

fn tmpfile_exclusive(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL;
    let fd = supported(sys::open(&p.0, flags, 0o600), "O_TMPFILE")?;
    let proc = format!("/proc/self/fd/{}", fd.as_raw_fd());
    refused(sys::linkat(proc, p.at("named"), libc::AT_SYMLINK_FOLLOW), libc::ENOENT)
}

fn tmpfile_in_a_removed_directory(p: &Place) -> Outcome {
    let flags = libc::O_TMPFILE | libc::O_RDWR;
    supported(sys::open(&p.0, flags, 0o600), "O_TMPFILE")?;
    let d = sys::open(p.dir("d", 0o755)?, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    sys::rmdir(p.at("d"))?;
    // Another error than that of who would make a name there: ENOENT, by the kernel itself.
    refused_any(sys::openat(&d, ".", flags, 0o600), &[libc::EPERM])?;
    refused(sys::openat(&d, "f", libc::O_CREAT | libc::O_RDWR, 0o600), libc::ENOENT)
}

fn noatime(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chmod(&file, 0o666)?;
    sys::open(&file, libc::O_RDONLY | libc::O_NOATIME, 0)?;
    as_user(ALICE, || refused(sys::open(&file, libc::O_RDONLY | libc::O_NOATIME, 0), libc::EPERM))
}

fn trailing_slash(p: &Place) -> Outcome {
    p.file("f", b"")?;
    refused(sys::open(p.at("f/"), libc::O_RDONLY, 0), libc::ENOTDIR)?;
    refused(sys::open(p.at("new/"), libc::O_CREAT | libc::O_WRONLY, 0o644), libc::EISDIR)?;
    sys::mkdir(p.at("d/"), 0o755)?;
    Ok(sys::rmdir(p.at("d/"))?)
}

fn creates_through_dangling_link(p: &Place) -> Outcome {
    sys::symlink("target", p.at("l"))?;
    drop(sys::open(p.at("l"), libc::O_CREAT | libc::O_WRONLY, 0o644)?);
    equal_mode(sys::lstat(p.at("target"))?.st_mode & libc::S_IFMT, libc::S_IFREG)
}
