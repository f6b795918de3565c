//! Rights that follow capabilities, and not the number of the user: root may lack some, and others have some.

use crate::check::*;
use crate::sys;
use std::path::PathBuf;

checks!("capable": trusted_names_are_listed, set_id_stays, set_gid_without_execution_stays, set_id_stays_where_a_capability_goes);

const FSETID: u64 = 1 << 4;
const SYS_ADMIN: u64 = 1 << 21;
/// Every one that there is.
const ALL: u64 = (1 << 38) - 1;
const ROOT: (u32, u32) = (0, 0);
const SOMEBODY: (u32, u32) = (BOB.uid, BOB.gid);
/// A file capability: revision 2, effective, net_raw.
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Runs a part of a check as a user with these capabilities, on a thread of its own.
#[track_caller]
fn with<T: Send>(
    (uid, gid): (u32, u32),
    capabilities: u64,
    part: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    as_other(|| sys::become_capable(uid, gid, capabilities), part)
}

/// A file of Alice's and of a group that nobody here is in.
fn file(p: &Place, name: &str, bits: u32) -> sys::Sys<PathBuf> {
    let file = p.file(name, b"some content")?;
    sys::chown(&file, ALICE.uid, TEAM)?;
    sys::chmod(&file, bits)?;
    Ok(file)
}

fn trusted_names_are_listed(p: &Place) -> Outcome {
    let f = file(p, "f", 0o666)?;
    supported(sys::setxattr(&f, "trusted.it", b"1", 0), "trusted attributes")?;
    for (who, capabilities) in
        [(ROOT, ALL), (ROOT, ALL & !SYS_ADMIN), (SOMEBODY, SYS_ADMIN), (SOMEBODY, ALL & !SYS_ADMIN)]
    {
        let listed = with(who, capabilities, || Ok(sys::listxattr(&f)?.contains(&"trusted.it".to_owned())))?;
        equal((who, capabilities, listed), (who, capabilities, capabilities & SYS_ADMIN != 0))?;
    }
    Ok(())
}

type Change = fn(&std::path::Path) -> Outcome;

const CHANGES: [(&str, Change); 5] = [
    ("write", |file| write_all(&sys::open(file, libc::O_WRONLY, 0)?, b"x").map_err(Failure::from)),
    ("truncate", |file| Ok(sys::truncate(file, 3)?)),
    ("ftruncate", |file| Ok(sys::ftruncate(&sys::open(file, libc::O_WRONLY, 0)?, 5).map(drop)?)),
    ("open and truncate", |file| Ok(sys::open(file, libc::O_WRONLY | libc::O_TRUNC, 0).map(drop)?)),
    ("fallocate", |file| {
        supported(sys::fallocate(&sys::open(file, libc::O_WRONLY, 0)?, 0, 0, 8192).map(drop), "fallocate")
    }),
];

const WHO: [((u32, u32), u64, bool); 4] =
    [(ROOT, ALL, true), (ROOT, ALL & !FSETID, false), (SOMEBODY, FSETID, true), (SOMEBODY, 0, false)];

/// Each change by each of them: the mode after it.
fn after_each(p: &Place, before: u32, kept: u32, cleared: u32) -> Outcome {
    for (what, change) in CHANGES {
        for (index, (who, capabilities, keeps)) in WHO.into_iter().enumerate() {
            let f = file(p, &format!("{what} {index} {before:o}"), before)?;
            with(who, capabilities, || change(&f))?;
            let now = mode(&f)?;
            let expected = if keeps { kept } else { cleared };
            ensure(now == expected, &format!("{what} by {who:?} with {capabilities:x}: {before:o} became {now:o}"))?;
        }
    }
    Ok(())
}

fn set_id_stays(p: &Place) -> Outcome {
    after_each(p, 0o6777, 0o6777, 0o777)
}

fn set_gid_without_execution_stays(p: &Place) -> Outcome {
    after_each(p, 0o2666, 0o2666, 0o666)
}

/// What is asked of a file system then is about the file's capability alone.
fn set_id_stays_where_a_capability_goes(p: &Place) -> Outcome {
    for (index, (who, capabilities, keeps)) in WHO.into_iter().enumerate() {
        let f = file(p, &format!("f{index}"), 0o6777)?;
        supported(sys::setxattr(&f, "security.capability", CAPABILITY, 0), "file capabilities")?;
        with(who, capabilities, || (CHANGES[0].1)(&f))?;
        refused(sys::getxattr(&f, "security.capability", 100), libc::ENODATA)?;
        equal_mode(mode(&f)?, if keeps { 0o6777 } else { 0o777 })?;
    }
    Ok(())
}
