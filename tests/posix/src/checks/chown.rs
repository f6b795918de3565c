//! chown(2), lchown(2), fchown(2).

use crate::check::*;
use crate::sys;

checks!("chown": root_changes_both, minus_one_keeps, links_followed_or_not, owner_may_give_to_own_group,
    owner_may_not_give_away, stranger_may_nothing, through_descriptor, every_kind);

fn owner(path: impl AsRef<std::path::Path>) -> sys::Sys<(u32, u32)> {
    sys::lstat(path).map(|stat| (stat.st_uid, stat.st_gid))
}

fn root_changes_both(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, 123, 456)?;
    equal(owner(&file)?, (123, 456))?;
    sys::chown(&file, 4_000_000_000, 4_000_000_001)?;
    equal(owner(&file)?, (4_000_000_000, 4_000_000_001))
}

fn minus_one_keeps(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, 123, KEEP)?;
    equal(owner(&file)?, (123, 0))?;
    sys::chown(&file, KEEP, 456)?;
    equal(owner(&file)?, (123, 456))?;
    sys::chown(&file, KEEP, KEEP)?;
    equal(owner(&file)?, (123, 456))
}

fn links_followed_or_not(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::symlink("f", p.at("l"))?;
    sys::chown(p.at("l"), 1, 2)?;
    sys::lchown(p.at("l"), 3, 4)?;
    equal(owner(file)?, (1, 2))?;
    equal(owner(p.at("l"))?, (3, 4))?;
    sys::symlink("nowhere", p.at("dangling"))?;
    refused(sys::chown(p.at("dangling"), 1, 2), libc::ENOENT)?;
    Ok(sys::lchown(p.at("dangling"), 5, 6)?)
}

fn owner_may_give_to_own_group(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(ALICE_IN_TEAM, || Ok(sys::chown(&file, KEEP, TEAM)?))?;
    equal(owner(&file)?, (ALICE.uid, TEAM))?;
    as_user(ALICE_IN_TEAM, || Ok(sys::chown(&file, ALICE.uid, ALICE.gid)?))?;
    equal(owner(&file)?, (ALICE.uid, ALICE.gid))?;
    as_user(ALICE, || refused(sys::chown(&file, KEEP, TEAM), libc::EPERM))?;
    as_user(ALICE, || refused(sys::chown(&file, KEEP, 0), libc::EPERM))
}

fn owner_may_not_give_away(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || refused(sys::chown(&file, BOB.uid, KEEP), libc::EPERM))?;
    as_user(ALICE, || refused(sys::chown(&file, 0, 0), libc::EPERM))?;
    // To oneself is no change, and allowed.
    as_user(ALICE, || Ok(sys::chown(&file, ALICE.uid, ALICE.gid)?))
}

fn stranger_may_nothing(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    sys::chmod(&file, 0o777)?;
    as_user(BOB, || refused(sys::chown(&file, BOB.uid, BOB.gid), libc::EPERM))?;
    as_user(BOB, || refused(sys::chown(&file, KEEP, BOB.gid), libc::EPERM))?;
    equal(owner(&file)?, (ALICE.uid, ALICE.gid))
}

fn through_descriptor(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDONLY, 0)?;
    sys::fchown(&fd, 7, 8)?;
    equal(owner(&file)?, (7, 8))?;
    sys::unlink(&file)?;
    sys::fchown(&fd, 9, 10)?;
    equal(sys::fstat(&fd)?.st_uid, 9)
}

fn every_kind(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        sys::lchown(&path, 11, 12)?;
        equal(owner(&path)?, (11, 12))?;
    }
    Ok(())
}
