//! access(2), and what permission each change of a directory needs.

use crate::check::*;
use crate::sys;

checks!("permission": access_by_class, access_for_root, directory_changes_need_write_and_search, reading_a_link_needs_none,
    groups_change_rights, execute);

fn access_by_class(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, TEAM)?;
    let member = User { groups: &[TEAM], ..BOB };
    for bits in 0..0o1000_u32 {
        sys::chmod(&file, bits)?;
        for (user, shift) in [(ALICE, 6), (member, 3), (BOB, 0)] {
            let allowed = i32::try_from(bits >> shift & 7).unwrap_or(0);
            as_user(user, || {
                for wanted in [libc::R_OK, libc::W_OK, libc::X_OK, libc::R_OK | libc::W_OK] {
                    let expected = if wanted & allowed == wanted { Ok(()) } else { Err(sys::Errno(libc::EACCES)) };
                    let got = sys::access(&file, wanted);
                    if got != expected {
                        let who = user.uid;
                        return fail(&format!("access {wanted} of {bits:03o} by {who}: {expected:?} != {got:?}"));
                    }
                }
                Ok(())
            })?;
        }
        // All combinations would take long on a slow file system; every 9th has each bit both ways.
        if bits.is_multiple_of(9) {
            equal_mode(mode(&file)?, bits)?;
        }
    }
    Ok(())
}

fn access_for_root(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chmod(&file, 0)?;
    sys::access(&file, libc::R_OK | libc::W_OK)?;
    refused(sys::access(&file, libc::X_OK), libc::EACCES)?;
    sys::chmod(&file, 0o001)?;
    sys::access(&file, libc::X_OK)?;
    let d = p.dir("d", 0)?;
    Ok(sys::access(&d, libc::R_OK | libc::W_OK | libc::X_OK)?)
}

fn directory_changes_need_write_and_search(p: &Place) -> Outcome {
    let (d, free) = (p.dir("d", 0o777)?, p.dir("free", 0o777)?);
    as_user(ALICE, || {
        for place in [&d, &free] {
            drop(sys::open(place.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o666)?);
            sys::mkdir(place.join("e"), 0o777)?;
        }
        Ok(())
    })?;
    for bits in [0o755, 0o776, 0o775] {
        sys::chmod(&d, bits)?;
        as_user(ALICE, || {
            refused(sys::unlink(d.join("f")), libc::EACCES)?;
            refused(sys::rmdir(d.join("e")), libc::EACCES)?;
            refused(sys::mkdir(d.join("n"), 0o755), libc::EACCES)?;
            refused(sys::open(d.join("n"), libc::O_CREAT | libc::O_WRONLY, 0o644), libc::EACCES)?;
            refused(sys::symlink("x", d.join("n")), libc::EACCES)?;
            refused(sys::mknod(d.join("n"), libc::S_IFIFO | 0o600, 0), libc::EACCES)?;
            refused(sys::rename(d.join("f"), d.join("g")), libc::EACCES)?;
            refused(sys::rename(d.join("f"), free.join("g")), libc::EACCES)?;
            refused(sys::rename(free.join("f"), d.join("g")), libc::EACCES)?;
            refused(sys::link(free.join("f"), d.join("g")), libc::EACCES)
        })?;
    }
    sys::chmod(&d, 0o773)?;
    as_user(ALICE, || {
        sys::rename(d.join("f"), d.join("g"))?;
        sys::unlink(d.join("g"))?;
        Ok(sys::rmdir(d.join("e"))?)
    })
}

fn reading_a_link_needs_none(p: &Place) -> Outcome {
    sys::symlink("target", p.at("l"))?;
    sys::lchown(p.at("l"), ALICE.uid, ALICE.gid)?;
    as_user(BOB, || equal(sys::readlink(p.at("l"))?, b"target".to_vec()))
}

fn groups_change_rights(p: &Place) -> Outcome {
    let d = p.dir("d", 0o770)?;
    sys::chown(&d, 0, TEAM)?;
    as_user(ALICE, || refused(sys::mkdir(d.join("a"), 0o755), libc::EACCES))?;
    as_user(ALICE_IN_TEAM, || Ok(sys::mkdir(d.join("a"), 0o755)?))?;
    // Not the directory's group: without set-gid, the new entry gets its maker's.
    equal(sys::lstat(d.join("a"))?.st_gid, ALICE.gid)
}

fn execute(p: &Place) -> Outcome {
    let file = p.file("f", b"#!/bin/sh\nexit 7\n")?;
    for (bits, user, runs) in
        [(0o644, ALICE, false), (0o755, ALICE, true), (0o744, ALICE, false), (0o754, ALICE, false)]
    {
        sys::chmod(&file, bits)?;
        as_user(user, || match std::process::Command::new(&file).status() {
            Ok(status) if runs => equal(status.code(), Some(7)),
            Err(error) if !runs => equal(error.raw_os_error(), Some(libc::EACCES)),
            other => fail(&format!("mode {bits:o}: got {other:?}")),
        })?;
    }
    Ok(())
}
