//! mkdir(2), rmdir(2).

use crate::check::*;
use crate::{directory, sys};

checks!("mkdir": mode_and_owner, link_counts, existing, missing_parent, rmdir_refusals, rmdir_dot,
    removed_directory_is_dead, set_gid_inherits, removed_while_open, rmdir_needs_permission);

fn mode_and_owner(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    as_user(ALICE, || Ok(sys::mkdir(d.join("e"), 0o751)?))?;
    let stat = sys::lstat(d.join("e"))?;
    equal_mode(stat.st_mode, libc::S_IFDIR | 0o751)?;
    equal((stat.st_uid, stat.st_gid), (ALICE.uid, ALICE.gid))?;
    // mkdir(2) takes the sticky bit, but neither set-uid nor set-gid.
    sys::mkdir(p.at("sticky"), 0o1755)?;
    equal_mode(mode(p.at("sticky"))?, 0o1755)
}

fn link_counts(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    equal(sys::lstat(&d)?.st_nlink, 2)?;
    sys::mkdir(d.join("a"), 0o755)?;
    sys::mkdir(d.join("b"), 0o755)?;
    equal(sys::lstat(&d)?.st_nlink, 4)?;
    sys::rmdir(d.join("a"))?;
    equal(sys::lstat(&d)?.st_nlink, 3)?;
    sys::rename(d.join("b"), p.at("b"))?;
    equal(sys::lstat(&d)?.st_nlink, 2)
}

fn existing(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::mkdir(&path, 0o755), libc::EEXIST)?;
    }
    refused(sys::mkdir(p.at("."), 0o755), libc::EEXIST)
}

fn missing_parent(p: &Place) -> Outcome {
    refused(sys::mkdir(p.at("a/b"), 0o755), libc::ENOENT)?;
    p.file("f", b"")?;
    refused(sys::mkdir(p.at("f/b"), 0o755), libc::ENOTDIR)
}

fn rmdir_refusals(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    p.file("d/f", b"")?;
    refused_any(sys::rmdir(&d), &[libc::ENOTEMPTY, libc::EEXIST])?;
    refused(sys::rmdir(p.at("missing")), libc::ENOENT)?;
    for kind in Kind::FILES {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::rmdir(&path), libc::ENOTDIR)?;
    }
    sys::symlink("d", p.at("l"))?;
    refused(sys::rmdir(p.at("l")), libc::ENOTDIR)?;
    sys::unlink(d.join("f"))?;
    Ok(sys::rmdir(&d)?)
}

fn rmdir_dot(p: &Place) -> Outcome {
    p.dir("d", 0o755)?;
    refused(sys::rmdir(p.at("d/.")), libc::EINVAL)?;
    refused_any(sys::rmdir(p.at("d/..")), &[libc::ENOTEMPTY, libc::EEXIST])
}

fn removed_directory_is_dead(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let fd = sys::open(&d, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    sys::rmdir(&d)?;
    equal(sys::fstat(&fd)?.st_nlink, 0)?;
    refused(sys::openat(&fd, "f", libc::O_CREAT | libc::O_WRONLY, 0o644), libc::ENOENT)?;
    refused(sys::openat(&fd, "f", libc::O_RDONLY, 0), libc::ENOENT)
}

fn set_gid_inherits(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    sys::chown(&d, KEEP, TEAM)?;
    sys::chmod(&d, 0o2777)?;
    as_user(ALICE, || Ok(sys::mkdir(d.join("e"), 0o755)?))?;
    let stat = sys::lstat(d.join("e"))?;
    equal((stat.st_uid, stat.st_gid), (ALICE.uid, TEAM))?;
    equal_mode(stat.st_mode & 0o7777, 0o2755)?;
    as_user(ALICE, || Ok(sys::open(d.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o644).map(drop)?))?;
    equal(sys::lstat(d.join("f"))?.st_gid, TEAM)?;
    as_user(ALICE, || Ok(sys::mknod(d.join("p"), libc::S_IFIFO | 0o644, 0)?))?;
    equal(sys::lstat(d.join("p"))?.st_gid, TEAM)?;
    as_user(ALICE, || Ok(sys::symlink("x", d.join("l"))?))?;
    equal(sys::lstat(d.join("l"))?.st_gid, TEAM)
}

fn removed_while_open(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let mut stream = directory::Stream::open(&d)?;
    sys::rmdir(&d)?;
    stream.rewind();
    let left: Vec<_> = stream.map(|entry| entry.name).filter(|name| name != b"." && name != b"..").collect();
    equal(left, vec![])
}

fn rmdir_needs_permission(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    sys::mkdir(d.join("e"), 0o777)?;
    as_user(ALICE, || refused(sys::rmdir(d.join("e")), libc::EACCES))?;
    as_user(ALICE, || refused(sys::mkdir(d.join("f"), 0o755), libc::EACCES))
}
