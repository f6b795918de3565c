//! unlink(2).

use crate::check::*;
use crate::{directory, sys};

checks!("unlink": every_kind, directories, missing, name_free_again, recreate_cycles);

fn every_kind(p: &Place) -> Outcome {
    for kind in Kind::FILES {
        let path = p.make(&format!("{kind:?}"), kind)?;
        sys::unlink(&path)?;
        refused(sys::lstat(&path), libc::ENOENT)?;
    }
    equal(directory::names(&p.0)?, vec![])
}

fn directories(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    refused_any(sys::unlink(&d), &[libc::EISDIR, libc::EPERM])?;
    sys::symlink("d", p.at("l"))?;
    sys::unlink(p.at("l"))?;
    refused(sys::unlink(p.at("d/")), libc::EISDIR)?;
    Ok(sys::rmdir(&d)?)
}

fn missing(p: &Place) -> Outcome {
    refused(sys::unlink(p.at("missing")), libc::ENOENT)?;
    p.file("f", b"")?;
    refused(sys::unlink(p.at("f/")), libc::ENOTDIR)?;
    sys::unlink(p.at("f"))?;
    refused(sys::unlink(p.at("f")), libc::ENOENT)
}

fn name_free_again(p: &Place) -> Outcome {
    let f = p.file("f", b"file")?;
    sys::unlink(&f)?;
    sys::mkdir(&f, 0o755)?;
    sys::rmdir(&f)?;
    sys::symlink("x", &f)?;
    sys::unlink(&f)?;
    p.file("f", b"again")?;
    equal(content(&f)?, b"again".to_vec())
}

fn recreate_cycles(p: &Place) -> Outcome {
    // A new file never shows what an old one of the same name held.
    for number in 0..200_usize {
        let file = p.file("f", &vec![b'a' + (number % 26) as u8; number * 37])?;
        equal(sys::lstat(&file)?.st_size as usize, number * 37)?;
        ensure(content(&file)?.iter().all(|&byte| byte == b'a' + (number % 26) as u8), "only its own bytes")?;
        sys::unlink(&file)?;
        let fresh = sys::open(&file, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600)?;
        equal(sys::read(&fresh, &mut [0; 64])?, 0)?;
        sys::ftruncate(&fresh, 5000)?;
        let mut buffer = vec![1; 5000];
        equal(sys::pread(&fresh, &mut buffer, 0)?, 5000)?;
        ensure(buffer.iter().all(|&byte| byte == 0), "growth shows zeros")?;
        sys::unlink(&file)?;
    }
    Ok(())
}
