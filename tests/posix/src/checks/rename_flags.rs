//! renameat2(2) with RENAME_NOREPLACE and RENAME_EXCHANGE.

use crate::check::*;
use crate::{directory, sys};

checks!("rename_flags": no_replace, exchange_files, exchange_kinds, exchange_directories, exchange_missing,
    exchange_with_own_parent, flags_conflict, whiteout);

fn no_replace(p: &Place) -> Outcome {
    p.file("a", b"a")?;
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let b = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::rename2(p.at("a"), &b, libc::RENAME_NOREPLACE), libc::EEXIST)?;
    }
    sys::rename2(p.at("a"), p.at("c"), libc::RENAME_NOREPLACE)?;
    refused(sys::rename2(p.at("c"), p.at("c"), libc::RENAME_NOREPLACE), libc::EEXIST)?;
    equal(content(p.at("c"))?, b"a".to_vec())
}

fn exchange_files(p: &Place) -> Outcome {
    p.file("a", b"a")?;
    sys::mkdir(p.at("d"), 0o755)?;
    p.file("d/b", b"b")?;
    let (a, b) = (sys::lstat(p.at("a"))?.st_ino, sys::lstat(p.at("d/b"))?.st_ino);
    let open = sys::open(p.at("a"), libc::O_RDWR, 0)?;
    sys::rename2(p.at("a"), p.at("d/b"), libc::RENAME_EXCHANGE)?;
    equal((sys::lstat(p.at("a"))?.st_ino, sys::lstat(p.at("d/b"))?.st_ino), (b, a))?;
    equal((content(p.at("a"))?, content(p.at("d/b"))?), (b"b".to_vec(), b"a".to_vec()))?;
    sys::pwrite(&open, b"A", 0)?;
    equal(content(p.at("d/b"))?, b"A".to_vec())
}

fn exchange_kinds(p: &Place) -> Outcome {
    sys::mkdir(p.at("x"), 0o755)?;
    sys::mkdir(p.at("y"), 0o755)?;
    sys::mkdir(p.at("x/d"), 0o755)?;
    for kind in Kind::FILES {
        let file = p.make(&format!("y/{kind:?}"), kind)?;
        sys::rename2(p.at("x/d"), &file, libc::RENAME_EXCHANGE)?;
        equal_mode(sys::lstat(p.at("x/d"))?.st_mode & libc::S_IFMT, kind.bits())?;
        equal_mode(sys::lstat(&file)?.st_mode & libc::S_IFMT, libc::S_IFDIR)?;
        equal((sys::lstat(p.at("x"))?.st_nlink, sys::lstat(p.at("y"))?.st_nlink), (2, 3))?;
        equal(sys::stat(file.join(".."))?.st_ino, sys::stat(p.at("y"))?.st_ino)?;
        sys::rename2(p.at("x/d"), &file, libc::RENAME_EXCHANGE)?;
    }
    Ok(())
}

fn exchange_directories(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    sys::mkdir(p.at("b"), 0o755)?;
    sys::mkdir(p.at("a/one"), 0o755)?;
    p.file("a/one/f", b"")?;
    sys::mkdir(p.at("b/two"), 0o755)?;
    p.file("b/two/g", b"")?;
    // Not empty, and still exchanged.
    sys::rename2(p.at("a/one"), p.at("b/two"), libc::RENAME_EXCHANGE)?;
    equal(directory::names(p.at("a/one"))?, vec![b"g".to_vec()])?;
    equal(directory::names(p.at("b/two"))?, vec![b"f".to_vec()])?;
    equal(sys::stat(p.at("a/one/.."))?.st_ino, sys::stat(p.at("a"))?.st_ino)
}

fn exchange_missing(p: &Place) -> Outcome {
    p.file("a", b"")?;
    refused(sys::rename2(p.at("a"), p.at("b"), libc::RENAME_EXCHANGE), libc::ENOENT)?;
    refused(sys::rename2(p.at("b"), p.at("a"), libc::RENAME_EXCHANGE), libc::ENOENT)
}

fn exchange_with_own_parent(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    sys::mkdir(p.at("a/b"), 0o755)?;
    refused(sys::rename2(p.at("a"), p.at("a/b"), libc::RENAME_EXCHANGE), libc::EINVAL)?;
    refused(sys::rename2(p.at("a/b"), p.at("a"), libc::RENAME_EXCHANGE), libc::EINVAL)
}

fn flags_conflict(p: &Place) -> Outcome {
    p.file("a", b"")?;
    p.file("b", b"")?;
    let both = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
    refused(sys::rename2(p.at("a"), p.at("b"), both), libc::EINVAL)?;
    refused(sys::rename2(p.at("a"), p.at("b"), 1 << 20), libc::EINVAL)
}

fn whiteout(p: &Place) -> Outcome {
    p.file("a", b"a")?;
    sys::mkdir(p.at("d"), 0o755)?;
    sys::rename2(p.at("a"), p.at("d/b"), libc::RENAME_WHITEOUT)?;
    equal(content(p.at("d/b"))?, b"a".to_vec())?;
    let left = sys::lstat(p.at("a"))?;
    equal((left.st_mode, left.st_rdev, left.st_nlink), (libc::S_IFCHR, 0, 1))?;
    p.file("c", b"c")?;
    let both = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    refused(sys::rename2(p.at("c"), p.at("d/b"), both), libc::EEXIST)?;
    sys::rename2(p.at("c"), p.at("a"), libc::RENAME_WHITEOUT)?;
    equal(content(p.at("a"))?, b"c".to_vec())?;
    let mut names = directory::names(p.at("."))?;
    names.sort();
    equal(names, vec![b"a".to_vec(), b"c".to_vec(), b"d".to_vec()])?;
    sys::rename2(p.at("d"), p.at("e"), libc::RENAME_WHITEOUT)?;
    equal(sys::lstat(p.at("."))?.st_nlink, 3)?;
    for name in ["a", "c", "d"] {
        sys::unlink(p.at(name))?;
    }
    refused(sys::rename2(p.at("e"), p.at("x"), libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE), libc::EINVAL)
}
