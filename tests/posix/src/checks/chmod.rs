//! chmod(2), fchmod(2).

use crate::check::*;
use crate::sys;

checks!("chmod": changes_all_bits, through_descriptor, follows_links, only_owner_may, type_stays, umask_applies_once);

fn changes_all_bits(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]).filter(|&kind| kind != Kind::Symlink) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        for bits in [0, 0o111, 0o222, 0o444, 0o644, 0o755, 0o777, 0o1755, 0o2755, 0o4755, 0o7777] {
            sys::chmod(&path, bits)?;
            equal_mode(sys::lstat(&path)?.st_mode, kind.bits() | bits)?;
        }
    }
    Ok(())
}

fn through_descriptor(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDONLY, 0)?;
    sys::fchmod(&fd, 0o4711)?;
    equal_mode(mode(&file)?, 0o4711)?;
    sys::unlink(&file)?;
    sys::fchmod(&fd, 0o600)?;
    equal_mode(sys::fstat(&fd)?.st_mode & 0o7777, 0o600)
}

fn follows_links(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::symlink("f", p.at("l"))?;
    sys::chmod(p.at("l"), 0o600)?;
    equal_mode(mode(file)?, 0o600)?;
    equal_mode(mode(p.at("l"))?, 0o777)
}

fn only_owner_may(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    sys::chmod(&file, 0o666)?;
    as_user(BOB, || refused(sys::chmod(&file, 0o600), libc::EPERM))?;
    as_user(BOB, || {
        let fd = sys::open(&file, libc::O_RDWR, 0)?;
        refused(sys::fchmod(&fd, 0o600), libc::EPERM)
    })?;
    equal_mode(mode(&file)?, 0o666)?;
    as_user(ALICE, || Ok(sys::chmod(&file, 0o600)?))?;
    equal_mode(mode(&file)?, 0o600)?;
    // The ownership counts, not the permission to write.
    as_user(ALICE, || Ok(sys::chmod(&file, 0)?))?;
    as_user(ALICE, || Ok(sys::chmod(&file, 0o644)?))
}

fn type_stays(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chmod(&file, libc::S_IFDIR | 0o600)?;
    equal_mode(sys::lstat(&file)?.st_mode, libc::S_IFREG | 0o600)
}

fn umask_applies_once(p: &Place) -> Outcome {
    sys::umask(0o027);
    let path = p.at("f");
    let fd = sys::open(&path, libc::O_CREAT | libc::O_WRONLY, 0o666)?;
    sys::mkdir(p.at("d"), 0o777)?;
    sys::mknod(p.at("n"), libc::S_IFIFO | 0o666, 0)?;
    equal_mode(mode(&path)?, 0o640)?;
    equal_mode(mode(p.at("d"))?, 0o750)?;
    equal_mode(mode(p.at("n"))?, 0o640)?;
    sys::fchmod(&fd, 0o777)?;
    equal_mode(mode(&path)?, 0o777)
}
