//! utimensat(2), futimens(3): values, ranges, rights.

use crate::check::*;
use crate::sys;

checks!("utimens": nanoseconds, before_1970_and_after_2038, now_and_omit, rights, symlink_itself, bad_values, fractions_kept_by_rename,
    directories_and_specials);

fn set(path: &std::path::Path, seconds: i64, nanoseconds: i64) -> sys::Sys<(i64, i64, i64, i64)> {
    sys::utimens(path, [sys::time(seconds, nanoseconds), sys::time(seconds + 1, 999_999_999 - nanoseconds)], 0)?;
    let stat = sys::lstat(path)?;
    Ok((stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec))
}

fn nanoseconds(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    for n in [0, 1, 123_456_789, 999_999_999] {
        equal(set(&file, 1_500_000_000, n)?, (1_500_000_000, n, 1_500_000_001, 999_999_999 - n))?;
    }
    Ok(())
}

fn before_1970_and_after_2038(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    for seconds in [-1, -2, -1_000_000, -2_147_483_647, 0, 2_147_483_647, 2_147_483_648, 4_294_967_296, 10_000_000_000]
    {
        for n in [0, 500_000_000, 999_999_999] {
            equal(set(&file, seconds, n)?, (seconds, n, seconds + 1, 999_999_999 - n))?;
        }
    }
    Ok(())
}

fn now_and_omit(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    set(&file, 1000, 5)?;
    sys::utimens(&file, [sys::time(0, libc::UTIME_OMIT), sys::time(7, 8)], 0)?;
    let stat = sys::lstat(&file)?;
    equal((stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec), (1000, 5, 7, 8))?;
    sys::utimens(&file, [sys::time(0, libc::UTIME_NOW), sys::time(0, libc::UTIME_OMIT)], 0)?;
    let stat = sys::lstat(&file)?;
    ensure(stat.st_atime > 1_600_000_000 && stat.st_mtime == 7, "atime is now, mtime as it was")?;
    sys::utimens_now(&file)?;
    let stat = sys::lstat(&file)?;
    ensure(stat.st_mtime > 1_600_000_000, "both are now")?;
    let fd = sys::open(&file, libc::O_RDONLY, 0)?;
    sys::futimens(&fd, [sys::time(11, 12), sys::time(13, 14)])?;
    equal(sys::fstat(&fd)?.st_mtime_nsec, 14)
}

fn rights(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    sys::chmod(&file, 0o666)?;
    as_user(BOB, || {
        // Who may write may say "now", but only the owner may say when.
        sys::utimens_now(&file)?;
        refused(sys::utimens(&file, [sys::time(1, 0), sys::time(1, 0)], 0), libc::EPERM)?;
        let mixed = [sys::time(0, libc::UTIME_NOW), sys::time(0, libc::UTIME_OMIT)];
        refused(sys::utimens(&file, mixed, 0), libc::EPERM)?;
        Ok(sys::utimens(&file, [sys::time(0, libc::UTIME_OMIT), sys::time(0, libc::UTIME_OMIT)], 0)?)
    })?;
    sys::chmod(&file, 0o444)?;
    as_user(BOB, || refused(sys::utimens_now(&file), libc::EACCES))?;
    sys::chmod(&file, 0)?;
    as_user(ALICE, || {
        sys::utimens_now(&file)?;
        Ok(sys::utimens(&file, [sys::time(1, 0), sys::time(1, 0)], 0)?)
    })
}

fn symlink_itself(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::symlink("f", p.at("l"))?;
    set(&file, 1000, 0)?;
    sys::utimens(p.at("l"), [sys::time(5, 0), sys::time(6, 7)], libc::AT_SYMLINK_NOFOLLOW)?;
    let link = sys::lstat(p.at("l"))?;
    equal((link.st_mtime, link.st_mtime_nsec, sys::lstat(&file)?.st_mtime), (6, 7, 1001))?;
    sys::utimens(p.at("l"), [sys::time(8, 0), sys::time(9, 0)], 0)?;
    equal(sys::lstat(&file)?.st_mtime, 9)
}

fn bad_values(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    for nanoseconds in [-1, 1_000_000_000] {
        refused(sys::utimens(&file, [sys::time(1, nanoseconds), sys::time(1, 0)], 0), libc::EINVAL)?;
    }
    Ok(())
}

fn fractions_kept_by_rename(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let given = set(&file, -5, 250_000_000)?;
    sys::rename(&file, p.at("g"))?;
    sys::link(p.at("g"), p.at("h"))?;
    sys::chmod(p.at("h"), 0o600)?;
    let stat = sys::lstat(p.at("h"))?;
    equal((stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec), given)
}

fn directories_and_specials(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().filter(|&kind| kind != Kind::Symlink).chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        equal(set(&path, 1_234_567_890, 77)?, (1_234_567_890, 77, 1_234_567_891, 999_999_922))?;
    }
    Ok(())
}
