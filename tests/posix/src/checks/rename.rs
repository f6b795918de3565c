//! rename(2).

use crate::check::*;
use crate::{directory, sys};

checks!("rename": listing_names_the_new_parent, moves_every_kind, replaces_files, replaces_empty_directories, kinds_must_fit, into_itself, same_inode,
    over_open_file, directory_parent_changes, needs_write_on_directory_to_move, dots, missing, long_way,
    directory_of_another_needs_write, chain_keeps_descriptors, trailing_slash);

fn moves_every_kind(p: &Place) -> Outcome {
    sys::mkdir(p.at("to"), 0o755)?;
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let from = p.make(&format!("{kind:?}"), kind)?;
        let before = sys::lstat(&from)?;
        let to = p.at(format!("to/{kind:?}"));
        sys::rename(&from, &to)?;
        refused(sys::lstat(&from), libc::ENOENT)?;
        let after = sys::lstat(&to)?;
        equal((after.st_ino, after.st_mode, after.st_nlink), (before.st_ino, before.st_mode, before.st_nlink))?;
        equal(after.st_mtime_nsec, before.st_mtime_nsec)?;
    }
    Ok(())
}

fn replaces_files(p: &Place) -> Outcome {
    for (index, kind) in Kind::FILES.into_iter().enumerate() {
        let (a, b) = (p.file(&format!("a{index}"), b"new")?, p.make(&format!("b{index}"), kind)?);
        let inode = sys::lstat(&a)?.st_ino;
        sys::rename(&a, &b)?;
        equal(sys::lstat(&b)?.st_ino, inode)?;
        refused(sys::lstat(&a), libc::ENOENT)?;
    }
    p.file("x", b"x")?;
    p.file("y", b"y")?;
    sys::link(p.at("y"), p.at("y2"))?;
    sys::rename(p.at("x"), p.at("y"))?;
    equal(sys::lstat(p.at("y2"))?.st_nlink, 1)?;
    equal(content(p.at("y2"))?, b"y".to_vec())
}

fn replaces_empty_directories(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    p.file("a/f", b"")?;
    sys::mkdir(p.at("b"), 0o755)?;
    sys::rename(p.at("a"), p.at("b"))?;
    equal(directory::names(p.at("b"))?, vec![b"f".to_vec()])?;
    sys::mkdir(p.at("c"), 0o755)?;
    refused_any(sys::rename(p.at("c"), p.at("b")), &[libc::ENOTEMPTY, libc::EEXIST])
}

fn kinds_must_fit(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    for kind in Kind::FILES {
        let file = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::rename(&file, &d), libc::EISDIR)?;
        refused(sys::rename(&d, &file), libc::ENOTDIR)?;
    }
    Ok(())
}

fn into_itself(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    sys::mkdir(p.at("a/b"), 0o755)?;
    refused(sys::rename(p.at("a"), p.at("a/c")), libc::EINVAL)?;
    refused(sys::rename(p.at("a"), p.at("a/b/c")), libc::EINVAL)?;
    refused_any(sys::rename(p.at("a/b"), p.at("a")), &[libc::ENOTEMPTY, libc::EEXIST])?;
    Ok(sys::rename(p.at("a"), p.at("a"))?)
}

fn same_inode(p: &Place) -> Outcome {
    let a = p.file("a", b"")?;
    sys::link(&a, p.at("b"))?;
    // Two names of one file: nothing happens, and both stay.
    sys::rename(&a, p.at("b"))?;
    equal(sys::lstat(&a)?.st_nlink, 2)?;
    sys::rename(&a, &a)?;
    equal(directory::names(&p.0)?.len(), 2)
}

fn over_open_file(p: &Place) -> Outcome {
    let (a, b) = (p.file("a", b"new")?, p.file("b", b"old")?);
    let (reader, writer) = (sys::open(&b, libc::O_RDONLY, 0)?, sys::open(&b, libc::O_WRONLY | libc::O_APPEND, 0)?);
    let moved = sys::open(&a, libc::O_RDWR, 0)?;
    sys::rename(&a, &b)?;
    write_all(&writer, b" file")?;
    let mut buffer = [0; 16];
    equal(sys::pread(&reader, &mut buffer, 0)?, 8)?;
    equal(&buffer[..8], b"old file")?;
    equal(sys::fstat(&reader)?.st_nlink, 0)?;
    equal(content(&b)?, b"new".to_vec())?;
    sys::pwrite(&moved, b"N", 0)?;
    equal(content(&b)?, b"New".to_vec())
}

fn directory_parent_changes(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    sys::mkdir(p.at("b"), 0o755)?;
    sys::mkdir(p.at("a/d"), 0o755)?;
    sys::rename(p.at("a/d"), p.at("b/d"))?;
    equal(sys::stat(p.at("b/d/.."))?.st_ino, sys::stat(p.at("b"))?.st_ino)?;
    equal((sys::lstat(p.at("a"))?.st_nlink, sys::lstat(p.at("b"))?.st_nlink), (2, 3))?;
    // Replacing a directory in another one takes one link from each.
    sys::mkdir(p.at("a/d"), 0o755)?;
    sys::rename(p.at("b/d"), p.at("a/d"))?;
    equal((sys::lstat(p.at("a"))?.st_nlink, sys::lstat(p.at("b"))?.st_nlink), (3, 2))
}

fn needs_write_on_directory_to_move(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    as_user(ALICE, || {
        sys::mkdir(d.join("mine"), 0o555)?;
        sys::mkdir(d.join("to"), 0o777)?;
        // A new parent means a new `..`, which is a write to the directory that moves; a new name alone is not.
        refused(sys::rename(d.join("mine"), d.join("to/mine")), libc::EACCES)?;
        Ok(sys::rename(d.join("mine"), d.join("still-mine"))?)
    })
}

fn directory_of_another_needs_write(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    sys::mkdir(d.join("to"), 0o777)?;
    sys::chmod(d.join("to"), 0o777)?;
    sys::mkdir(d.join("roots"), 0o755)?;
    as_user(ALICE, || {
        refused(sys::rename(d.join("roots"), d.join("to/roots")), libc::EACCES)?;
        Ok(sys::rename(d.join("roots"), d.join("renamed"))?)
    })
}

fn dots(p: &Place) -> Outcome {
    sys::mkdir(p.at("d"), 0o755)?;
    refused_any(sys::rename(p.at("d/."), p.at("e")), &[libc::EINVAL, libc::EBUSY])?;
    refused_any(sys::rename(p.at("d/.."), p.at("e")), &[libc::EINVAL, libc::EBUSY])?;
    refused_any(sys::rename(p.at("d"), p.at("d/.")), &[libc::EINVAL, libc::EBUSY])
}

fn missing(p: &Place) -> Outcome {
    p.file("f", b"")?;
    refused(sys::rename(p.at("missing"), p.at("x")), libc::ENOENT)?;
    refused(sys::rename(p.at("missing"), p.at("f")), libc::ENOENT)?;
    refused(sys::rename(p.at("f"), p.at("missing/x")), libc::ENOENT)?;
    refused(sys::rename(p.at("f/x"), p.at("y")), libc::ENOTDIR)?;
    refused(sys::rename(p.at("f"), p.at("f/y")), libc::ENOTDIR)
}

fn long_way(p: &Place) -> Outcome {
    p.file("0", b"content")?;
    for number in 0..500 {
        sys::rename(p.at(number.to_string()), p.at((number + 1).to_string()))?;
    }
    equal(directory::names(&p.0)?, vec![b"500".to_vec()])?;
    equal(content(p.at("500"))?, b"content".to_vec())
}

fn chain_keeps_descriptors(p: &Place) -> Outcome {
    sys::mkdir(p.at("a"), 0o755)?;
    let fd = sys::open(p.at("a"), libc::O_DIRECTORY, 0)?;
    p.file("a/f", b"x")?;
    sys::rename(p.at("a"), p.at("b"))?;
    sys::mkdir(p.at("a"), 0o755)?;
    drop(sys::openat(&fd, "g", libc::O_CREAT | libc::O_WRONLY, 0o644)?);
    equal(directory::names(p.at("b"))?, vec![b"f".to_vec(), b"g".to_vec()])?;
    equal(directory::names(p.at("a"))?, vec![])
}

fn trailing_slash(p: &Place) -> Outcome {
    sys::mkdir(p.at("d"), 0o755)?;
    p.file("f", b"")?;
    sys::rename(p.at("d/"), p.at("e/"))?;
    refused(sys::rename(p.at("f/"), p.at("g")), libc::ENOTDIR)?;
    refused(sys::rename(p.at("f"), p.at("g/")), libc::ENOTDIR)
}

/// Also where it was listed before, to its end.
fn listing_names_the_new_parent(p: &Place) -> Outcome {
    for name in ["a", "a/d", "a/d/below", "b", "b/e"] {
        p.dir(name, 0o755)?;
    }
    let names_parent = |name: &str| -> Outcome {
        let entries: Vec<_> = directory::Stream::open(p.at(name))?.collect();
        let parent = entries.iter().find(|entry| entry.name == b"..").map(|entry| entry.ino);
        equal(parent, Some(sys::stat(p.at(name).join(".."))?.st_ino))
    };
    let all_do = |names: [&str; 3]| names.into_iter().try_for_each(names_parent);
    all_do(["a/d", "a/d/below", "b/e"])?;
    sys::rename(p.at("a/d"), p.at("b/d"))?;
    all_do(["b/d", "b/d/below", "b/e"])?;
    sys::mkdir(p.at("a/empty"), 0o755)?;
    names_parent("a/empty")?;
    sys::rename(p.at("b/e"), p.at("a/empty"))?;
    all_do(["a/empty", "b/d", "b/d/below"])?;
    supported(sys::rename2(p.at("a/empty"), p.at("b/d"), libc::RENAME_EXCHANGE), "RENAME_EXCHANGE")?;
    all_do(["a/empty", "a/empty/below", "b/d"])
}
