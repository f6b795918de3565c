//! Sticky directories: only the entry's owner, the directory's owner and root may take an entry away.

use crate::check::*;
use crate::sys;
use std::path::PathBuf;

checks!("sticky": unlink_and_rmdir, rename_from, rename_over, owner_of_directory_may, without_it_anyone_may);

fn shared(p: &Place, owner: User) -> sys::Sys<PathBuf> {
    let d = p.dir("d", 0o1777)?;
    sys::chown(&d, owner.uid, owner.gid)?;
    Ok(d)
}

fn make(user: User, path: PathBuf) -> Outcome {
    as_user(user, || Ok(sys::open(&path, libc::O_CREAT | libc::O_WRONLY, 0o666).map(drop)?))
}

const ROOT: User = User { uid: 0, gid: 0, groups: &[] };

fn unlink_and_rmdir(p: &Place) -> Outcome {
    let d = shared(p, ROOT)?;
    make(ALICE, d.join("f"))?;
    as_user(ALICE, || Ok(sys::mkdir(d.join("e"), 0o777)?))?;
    as_user(BOB, || {
        refused(sys::unlink(d.join("f")), libc::EPERM)?;
        refused(sys::rmdir(d.join("e")), libc::EPERM)
    })?;
    as_user(ALICE, || {
        sys::unlink(d.join("f"))?;
        Ok(sys::rmdir(d.join("e"))?)
    })?;
    make(ALICE, d.join("g"))?;
    Ok(sys::unlink(d.join("g"))?)
}

fn rename_from(p: &Place) -> Outcome {
    let d = shared(p, ROOT)?;
    let open = p.dir("open", 0o777)?;
    make(ALICE, d.join("f"))?;
    as_user(BOB, || {
        refused(sys::rename(d.join("f"), d.join("g")), libc::EPERM)?;
        refused(sys::rename(d.join("f"), open.join("g")), libc::EPERM)
    })?;
    as_user(ALICE, || Ok(sys::rename(d.join("f"), open.join("g"))?))
}

fn rename_over(p: &Place) -> Outcome {
    let d = shared(p, ROOT)?;
    make(ALICE, d.join("a"))?;
    make(BOB, d.join("b"))?;
    as_user(BOB, || refused(sys::rename(d.join("b"), d.join("a")), libc::EPERM))?;
    as_user(BOB, || refused(sys::rename2(d.join("b"), d.join("a"), libc::RENAME_EXCHANGE), libc::EPERM))?;
    make(BOB, d.join("c"))?;
    as_user(BOB, || Ok(sys::rename(d.join("b"), d.join("c"))?))
}

fn owner_of_directory_may(p: &Place) -> Outcome {
    let d = shared(p, BOB)?;
    make(ALICE, d.join("a"))?;
    make(ALICE, d.join("b"))?;
    as_user(BOB, || {
        sys::rename(d.join("a"), d.join("c"))?;
        sys::unlink(d.join("b"))?;
        Ok(sys::unlink(d.join("c"))?)
    })
}

fn without_it_anyone_may(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    make(ALICE, d.join("a"))?;
    as_user(BOB, || {
        sys::rename(d.join("a"), d.join("b"))?;
        Ok(sys::unlink(d.join("b"))?)
    })
}
