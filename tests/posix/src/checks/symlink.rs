//! symlink(2), readlink(2).

use crate::check::*;
use crate::sys;

checks!("symlink": target_as_given, existing, mode_and_size, followed, readlink_of_others, non_utf8_target,
    changed_target_is_seen);

fn target_as_given(p: &Place) -> Outcome {
    for (index, target) in ["x", "../up", "/absolute", "with space", "//", "a/./b//c/"].iter().enumerate() {
        let path = p.at(index.to_string());
        sys::symlink(target, &path)?;
        equal(sys::readlink(&path)?, target.as_bytes().to_vec())?;
    }
    Ok(())
}

fn existing(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::symlink("x", &path), libc::EEXIST)?;
    }
    refused(sys::symlink("x", p.at("missing/l")), libc::ENOENT)
}

fn mode_and_size(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    as_user(ALICE, || Ok(sys::symlink("twelve bytes", d.join("l"))?))?;
    let stat = sys::lstat(d.join("l"))?;
    equal_mode(stat.st_mode, libc::S_IFLNK | 0o777)?;
    equal((stat.st_size, stat.st_uid, stat.st_gid, stat.st_nlink), (12, ALICE.uid, ALICE.gid, 1))
}

fn followed(p: &Place) -> Outcome {
    sys::mkdir(p.at("d"), 0o755)?;
    p.file("d/f", b"content")?;
    sys::symlink("d", p.at("to-directory"))?;
    sys::symlink("to-directory/f", p.at("to-file"))?;
    equal(content(p.at("to-file"))?, b"content".to_vec())?;
    sys::symlink(p.at("d/f"), p.at("absolute"))?;
    equal(content(p.at("absolute"))?, b"content".to_vec())?;
    sys::unlink(p.at("to-file"))?;
    equal(sys::lstat(p.at("d/f"))?.st_nlink, 1)
}

fn readlink_of_others(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().filter(|&kind| kind != Kind::Symlink).chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::readlink(&path), libc::EINVAL)?;
    }
    Ok(())
}

fn non_utf8_target(p: &Place) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let target = std::ffi::OsStr::from_bytes(b"\xff\x01\xfe");
    sys::symlink(target, p.at("l"))?;
    equal(sys::readlink(p.at("l"))?, b"\xff\x01\xfe".to_vec())
}

fn changed_target_is_seen(p: &Place) -> Outcome {
    for number in 0..20 {
        sys::symlink(format!("target-{number}"), p.at("l"))?;
        equal(sys::readlink(p.at("l"))?, format!("target-{number}").into_bytes())?;
        sys::unlink(p.at("l"))?;
        sys::symlink(format!("other-{number}"), p.at("m"))?;
        sys::rename(p.at("m"), p.at("l"))?;
        equal(sys::readlink(p.at("l"))?, format!("other-{number}").into_bytes())?;
        sys::unlink(p.at("l"))?;
    }
    Ok(())
}
