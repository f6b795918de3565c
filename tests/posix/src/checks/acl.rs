//! POSIX ACLs, as the attributes `system.posix_acl_access` and `system.posix_acl_default`.

use crate::check::*;
use crate::sys;
use std::path::Path;

checks!("acl": named_user_and_mask, chmod_changes_mask, minimal_acl_is_mode, default_is_inherited, default_replaces_umask,
    named_group, only_owner_sets, default_only_on_directories, malformed, removed, acl_write_sets_mode_and_ctime,
    the_same_acl_is_no_change, a_whiteout_inherits, none_taken_away);

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NONE: u32 = u32::MAX;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn encode(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str, entries: &[(u16, u16, u32)]) -> Outcome {
    supported(sys::setxattr(path, name, &encode(entries), 0), "ACL")
}

/// What has no ACL can be told to have none.
fn none_taken_away(p: &Place) -> Outcome {
    set(&p.file("other", b"")?, ACCESS, &[])?;
    for path in [p.file("f", b"")?, p.dir("d", 0o755)?] {
        let changed = || sys::stat(&path).map(|stat| (stat.st_ctime, stat.st_ctime_nsec));
        let before = changed()?;
        std::thread::sleep(std::time::Duration::from_millis(30));
        for name in [ACCESS, DEFAULT] {
            sys::removexattr(&path, name)?;
            for flags in [0, libc::XATTR_CREATE, libc::XATTR_REPLACE] {
                sys::setxattr(&path, name, &encode(&[]), flags)?;
            }
        }
        equal(changed()?, before)?;
    }
    Ok(())
}

fn can(user: User, path: &Path) -> Result<String, Failure> {
    as_user(user, || {
        let letters = [(libc::R_OK, 'r'), (libc::W_OK, 'w'), (libc::X_OK, 'x')];
        Ok(letters.iter().filter(|(bit, _)| sys::access(path, *bit).is_ok()).map(|(_, letter)| letter).collect())
    })
}

fn named_user_and_mask(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chmod(&file, 0o640)?;
    let entries = [(USER_OBJ, 6, NONE), (USER, 7, ALICE.uid), (GROUP_OBJ, 4, NONE), (MASK, 6, NONE), (OTHER, 0, NONE)];
    set(&file, ACCESS, &entries)?;
    equal(can(ALICE, &file)?, "rw".to_owned())?;
    equal(can(BOB, &file)?, String::new())?;
    as_user(ALICE, || Ok(sys::open(&file, libc::O_RDWR, 0).map(drop)?))?;
    // The group bits of the mode are the mask.
    equal_mode(mode(&file)?, 0o660)?;
    equal(sys::getxattr(&file, ACCESS, 1000)?, encode(&entries))
}

fn chmod_changes_mask(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let entries = [(USER_OBJ, 6, NONE), (USER, 7, ALICE.uid), (GROUP_OBJ, 4, NONE), (MASK, 7, NONE), (OTHER, 0, NONE)];
    set(&file, ACCESS, &entries)?;
    // Not 0: without any group bit Linux does not look at the ACL.
    sys::chmod(&file, 0o614)?;
    equal(can(ALICE, &file)?, "x".to_owned())?;
    equal(can(BOB, &file)?, "r".to_owned())?;
    let after = [(USER_OBJ, 6, NONE), (USER, 7, ALICE.uid), (GROUP_OBJ, 4, NONE), (MASK, 1, NONE), (OTHER, 4, NONE)];
    equal(sys::getxattr(&file, ACCESS, 1000)?, encode(&after))?;
    sys::chmod(&file, 0o670)?;
    equal(can(ALICE, &file)?, "rwx".to_owned())
}

fn minimal_acl_is_mode(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    set(&file, ACCESS, &[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)])?;
    equal_mode(mode(&file)?, 0o751)?;
    refused(sys::getxattr(&file, ACCESS, 1000), libc::ENODATA)
}

fn default_is_inherited(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    let entries = [(USER_OBJ, 7, NONE), (USER, 6, ALICE.uid), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHER, 0, NONE)];
    set(&d, DEFAULT, &entries)?;
    equal_mode(mode(&d)?, 0o777)?;
    drop(sys::open(d.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o666)?);
    // The requested mode takes away: no execute for the owner, and the mask loses it.
    let on_file = [(USER_OBJ, 6, NONE), (USER, 6, ALICE.uid), (GROUP_OBJ, 5, NONE), (MASK, 6, NONE), (OTHER, 0, NONE)];
    equal(sys::getxattr(d.join("f"), ACCESS, 1000)?, encode(&on_file))?;
    equal_mode(mode(d.join("f"))?, 0o660)?;
    refused(sys::getxattr(d.join("f"), DEFAULT, 1000), libc::ENODATA)?;
    equal(can(ALICE, &d.join("f"))?, "rw".to_owned())?;
    sys::mkdir(d.join("e"), 0o750)?;
    equal(sys::getxattr(d.join("e"), DEFAULT, 1000)?, encode(&entries))?;
    let on_directory =
        [(USER_OBJ, 7, NONE), (USER, 6, ALICE.uid), (GROUP_OBJ, 5, NONE), (MASK, 5, NONE), (OTHER, 0, NONE)];
    equal(sys::getxattr(d.join("e"), ACCESS, 1000)?, encode(&on_directory))?;
    sys::mknod(d.join("fifo"), libc::S_IFIFO | 0o666, 0)?;
    equal_mode(mode(d.join("fifo"))?, 0o660)?;
    sys::symlink("x", d.join("l"))?;
    equal_mode(mode(d.join("l"))?, 0o777)
}

fn default_replaces_umask(p: &Place) -> Outcome {
    sys::umask(0o077);
    let d = p.dir("d", 0o777)?;
    drop(sys::open(d.join("before"), libc::O_CREAT | libc::O_WRONLY, 0o666)?);
    equal_mode(mode(d.join("before"))?, 0o600)?;
    set(&d, DEFAULT, &[(USER_OBJ, 7, NONE), (GROUP_OBJ, 7, NONE), (OTHER, 7, NONE)])?;
    drop(sys::open(d.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o664)?);
    sys::mkdir(d.join("e"), 0o775)?;
    equal_mode(mode(d.join("f"))?, 0o664)?;
    equal_mode(mode(d.join("e"))?, 0o775)
}

fn named_group(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chmod(&file, 0o600)?;
    let entries = [(USER_OBJ, 6, NONE), (GROUP_OBJ, 0, NONE), (GROUP, 4, TEAM), (MASK, 7, NONE), (OTHER, 0, NONE)];
    set(&file, ACCESS, &entries)?;
    equal(can(ALICE_IN_TEAM, &file)?, "r".to_owned())?;
    equal(can(ALICE, &file)?, String::new())
}

fn only_owner_sets(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    sys::chmod(&file, 0o666)?;
    let entries = encode(&[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)]);
    supported(sys::setxattr(&file, ACCESS, &entries, 0), "ACL")?;
    as_user(BOB, || refused(sys::setxattr(&file, ACCESS, &entries, 0), libc::EPERM))?;
    as_user(ALICE, || Ok(sys::setxattr(&file, ACCESS, &entries, 0)?))
}

fn default_only_on_directories(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let entries = encode(&[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)]);
    supported(sys::setxattr(&file, ACCESS, &entries, 0), "ACL")?;
    refused(sys::setxattr(&file, DEFAULT, &entries, 0), libc::EACCES)
}

fn malformed(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    set(&file, ACCESS, &[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)])?;
    for entries in [
        &[(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE)][..],
        &[(USER_OBJ, 7, NONE), (USER, 7, 5), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)],
        &[(USER_OBJ, 8, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)],
        &[(OTHER, 7, NONE), (GROUP_OBJ, 5, NONE), (USER_OBJ, 1, NONE)],
    ] {
        refused(sys::setxattr(&file, ACCESS, &encode(entries), 0), libc::EINVAL)?;
    }
    refused(sys::setxattr(&file, ACCESS, b"\x02\0\0", 0), libc::EINVAL)?;
    equal_mode(mode(&file)?, 0o751)
}

fn removed(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let entries = [(USER_OBJ, 7, NONE), (USER, 7, ALICE.uid), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHER, 0, NONE)];
    set(&d, ACCESS, &entries)?;
    set(&d, DEFAULT, &entries)?;
    equal(can(ALICE, &d)?, "rwx".to_owned())?;
    sys::removexattr(&d, ACCESS)?;
    sys::removexattr(&d, DEFAULT)?;
    equal(can(ALICE, &d)?, String::new())?;
    p.file("d/f", b"")?;
    refused(sys::getxattr(d.join("f"), ACCESS, 100), libc::ENODATA)?;
    let names = sys::listxattr(&d)?;
    ensure(!names.iter().any(|name| name.contains("acl")), "no ACL is listed")
}

fn acl_write_sets_mode_and_ctime(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let before = sys::lstat(&file)?;
    std::thread::sleep(std::time::Duration::from_millis(12));
    set(&file, ACCESS, &[(USER_OBJ, 4, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 0, NONE)])?;
    let after = sys::lstat(&file)?;
    equal_mode(after.st_mode & 0o7777, 0o440)?;
    ensure((after.st_ctime, after.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec), "ctime advances")
}

fn the_same_acl_is_no_change(p: &Place) -> Outcome {
    let extended = [(USER_OBJ, 6, NONE), (USER, 4, BOB.uid), (GROUP_OBJ, 4, NONE), (MASK, 4, NONE), (OTHER, 0, NONE)];
    let minimal = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE)];
    let changed = |path: &Path| sys::lstat(path).map(|stat| (stat.st_ctime, stat.st_ctime_nsec));
    let d = p.dir("d", 0o755)?;
    for (name, entries) in [(ACCESS, &extended[..]), (ACCESS, &minimal[..]), (DEFAULT, &extended[..])] {
        set(&d, name, entries)?;
        let before = changed(&d)?;
        std::thread::sleep(std::time::Duration::from_millis(30));
        set(&d, name, entries)?;
        equal(changed(&d)?, before)?;
    }
    Ok(())
}

fn a_whiteout_inherits(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let inherited = [(USER_OBJ, 7, NONE), (USER, 4, BOB.uid), (GROUP_OBJ, 4, NONE), (MASK, 4, NONE), (OTHER, 0, NONE)];
    set(&d, DEFAULT, &inherited)?;
    p.file("d/a", b"")?;
    supported(sys::rename2(p.at("d/a"), p.at("d/b"), libc::RENAME_WHITEOUT), "RENAME_WHITEOUT")?;
    equal_mode(mode(p.at("d/a"))?, 0)?;
    let closed = [(USER_OBJ, 0, NONE), (USER, 4, BOB.uid), (GROUP_OBJ, 4, NONE), (MASK, 0, NONE), (OTHER, 0, NONE)];
    equal(sys::getxattr(p.at("d/a"), ACCESS, 100)?, encode(&closed))
}
