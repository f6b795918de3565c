//! When set-user-id, set-group-id and capabilities go away by themselves.

use crate::check::*;
use crate::sys;

checks!("set_id": write_by_others_clears, write_by_root_keeps, truncate_by_others_clears, chown_clears,
    chown_of_directory_keeps, chmod_outside_group_drops_set_gid, sticky_on_file, append_and_map_clear,
    fallocate_clears, open_truncate_clears, write_by_owner_clears, set_gid_without_execution_stays_with_members,
    strangers_clear_nothing_by_chown);

const EXECUTABLE: u32 = 0o6777;

fn open_to_all(p: &Place, name: &str) -> sys::Sys<std::path::PathBuf> {
    let file = p.file(name, b"some content")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    sys::chmod(&file, EXECUTABLE)?;
    Ok(file)
}

fn write_by_others_clears(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(BOB, || {
        let fd = sys::open(&file, libc::O_WRONLY, 0)?;
        equal_mode(mode(&file)?, EXECUTABLE)?;
        write_all(&fd, b"x")?;
        equal_mode(sys::fstat(&fd)?.st_mode & 0o7777, 0o777)
    })?;
    equal_mode(mode(&file)?, 0o777)
}

fn write_by_owner_clears(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(ALICE, || {
        let fd = sys::open(&file, libc::O_RDWR, 0)?;
        sys::pwrite(&fd, b"x", 3)?;
        equal_mode(mode(&file)?, 0o777)
    })
}

fn write_by_root_keeps(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    let fd = sys::open(&file, libc::O_WRONLY, 0)?;
    write_all(&fd, b"x")?;
    sys::ftruncate(&fd, 3)?;
    equal_mode(mode(&file)?, EXECUTABLE)
}

fn truncate_by_others_clears(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(BOB, || Ok(sys::truncate(&file, 3)?))?;
    equal_mode(mode(&file)?, 0o777)?;
    sys::chmod(&file, EXECUTABLE)?;
    as_user(BOB, || Ok(sys::ftruncate(&sys::open(&file, libc::O_WRONLY, 0)?, 100).map(drop)?))?;
    equal_mode(mode(&file)?, 0o777)
}

fn open_truncate_clears(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(BOB, || Ok(sys::open(&file, libc::O_WRONLY | libc::O_TRUNC, 0).map(drop)?))?;
    equal_mode(mode(&file)?, 0o777)
}

fn append_and_map_clear(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(BOB, || write_all(&sys::open(&file, libc::O_WRONLY | libc::O_APPEND, 0)?, b"x").map_err(Failure::from))?;
    equal_mode(mode(&file)?, 0o777)
}

fn fallocate_clears(p: &Place) -> Outcome {
    let file = open_to_all(p, "f")?;
    as_user(BOB, || {
        let fd = sys::open(&file, libc::O_WRONLY, 0)?;
        supported(sys::fallocate(&fd, 0, 0, 8192), "fallocate")?;
        Ok(())
    })?;
    equal_mode(mode(&file)?, 0o777)
}

fn chown_clears(p: &Place) -> Outcome {
    for (index, (uid, gid)) in [(BOB.uid, KEEP), (KEEP, BOB.gid), (0, 0)].into_iter().enumerate() {
        let file = open_to_all(p, &format!("f{index}"))?;
        sys::chown(&file, uid, gid)?;
        equal_mode(mode(&file)?, 0o777)?;
    }
    // Set-gid without group execute is not set-gid: it stays.
    let file = open_to_all(p, "locking")?;
    sys::chmod(&file, 0o6745)?;
    sys::chown(&file, BOB.uid, KEEP)?;
    equal_mode(mode(&file)?, 0o2745)?;
    let file = open_to_all(p, "by-owner")?;
    as_user(ALICE_IN_TEAM, || Ok(sys::chown(&file, KEEP, TEAM)?))?;
    equal_mode(mode(&file)?, 0o777)
}

fn chown_of_directory_keeps(p: &Place) -> Outcome {
    let d = p.dir("d", 0o6755)?;
    sys::chown(&d, ALICE.uid, ALICE.gid)?;
    equal_mode(mode(&d)?, 0o6755)
}

fn chmod_outside_group_drops_set_gid(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, TEAM)?;
    as_user(ALICE, || Ok(sys::chmod(&file, 0o2755)?))?;
    equal_mode(mode(&file)?, 0o755)?;
    as_user(ALICE_IN_TEAM, || Ok(sys::chmod(&file, 0o2755)?))?;
    equal_mode(mode(&file)?, 0o2755)?;
    as_user(ALICE, || Ok(sys::chmod(&file, 0o4755)?))?;
    equal_mode(mode(&file)?, 0o4755)
}

fn sticky_on_file(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || Ok(sys::chmod(&file, 0o1644)?))?;
    equal_mode(mode(&file)?, 0o1644)
}

/// Where the group may not execute, set-gid goes when a stranger to the group changes the file, and stays when a member does.
fn set_gid_without_execution_stays_with_members(p: &Place) -> Outcome {
    type Change = fn(&std::path::Path) -> Outcome;
    let changes: [(&str, Change); 6] = [
        ("write", |file| write_all(&sys::open(file, libc::O_WRONLY, 0)?, b"x").map_err(Failure::from)),
        ("append", |file| {
            write_all(&sys::open(file, libc::O_WRONLY | libc::O_APPEND, 0)?, b"x").map_err(Failure::from)
        }),
        ("truncate", |file| Ok(sys::truncate(file, 3)?)),
        ("ftruncate", |file| Ok(sys::ftruncate(&sys::open(file, libc::O_WRONLY, 0)?, 5).map(drop)?)),
        ("open and truncate", |file| Ok(sys::open(file, libc::O_WRONLY | libc::O_TRUNC, 0).map(drop)?)),
        ("fallocate", |file| {
            supported(sys::fallocate(&sys::open(file, libc::O_WRONLY, 0)?, 0, 0, 8192).map(drop), "fallocate")
        }),
    ];
    for (what, change) in changes {
        for (user, before, after) in [
            (BOB, 0o2666, 0o666),
            (BOB, 0o6666, 0o666),
            (ALICE, 0o2666, 0o666),
            (ALICE_IN_TEAM, 0o2666, 0o2666),
            (ALICE_IN_TEAM, 0o6666, 0o2666),
            (ALICE_IN_TEAM, 0o6676, 0o676),
        ] {
            let file = p.file(&format!("{what} {} {before:o} {:?}", user.uid, user.groups), b"some content")?;
            sys::chown(&file, ALICE.uid, TEAM)?;
            sys::chmod(&file, before)?;
            as_user(user, || change(&file))?;
            let now = mode(&file)?;
            ensure(now == after, &format!("{what} by {} of {:?}: {before:o} became {now:o}", user.uid, user.groups))?;
        }
    }
    for (user, kept) in [(ALICE, 0), (ALICE_IN_TEAM, 0o2000)] {
        let file = p.file(&format!("given away {kept:o}"), b"")?;
        sys::chown(&file, ALICE.uid, TEAM)?;
        sys::chmod(&file, 0o2666)?;
        as_user(user, || Ok(sys::chown(&file, KEEP, ALICE.gid)?))?;
        equal_mode(mode(&file)?, kept | 0o666)?;
    }
    Ok(())
}

fn strangers_clear_nothing_by_chown(p: &Place) -> Outcome {
    for (bits, writer) in [0o4755, 0o2755, 0o6755, 0o2644].into_iter().flat_map(|bits| [(bits, false), (bits, true)]) {
        let file = p.file(&format!("{bits:o} {writer}"), b"")?;
        // Who writes may void them, and somebody else not.
        let _open = writer.then(|| sys::open(&file, libc::O_WRONLY, 0)).transpose()?;
        sys::chown(&file, ALICE.uid, ALICE.gid)?;
        sys::chmod(&file, bits)?;
        refused(as_user(BOB, || Ok(sys::chown(&file, KEEP, KEEP)))?, libc::EPERM)?;
        equal_mode(mode(&file)?, bits)?;
        as_user(ALICE, || Ok(sys::chown(&file, KEEP, KEEP)?))?;
        equal_mode(mode(&file)?, if bits == 0o2644 { bits } else { 0o755 })?;
    }
    let file = p.file("plain", b"")?;
    as_user(BOB, || Ok(sys::chown(&file, KEEP, KEEP)?))
}
