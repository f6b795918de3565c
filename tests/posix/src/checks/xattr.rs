//! Extended attributes.

use crate::check::*;
use crate::sys;

checks!("xattr": set_get_list_remove, create_and_replace, sizes, missing, user_needs_permission, trusted_is_roots,
    security, not_on_specials, kept_by_rename_and_link, limits, capability_goes_with_a_write, the_same_value_is_no_change);

fn set_get_list_remove(p: &Place) -> Outcome {
    for path in [p.file("f", b"")?, p.dir("d", 0o755)?] {
        supported(sys::setxattr(&path, "user.a", b"1", 0), "user attributes")?;
        sys::setxattr(&path, "user.b", b"\0\xff\n", 0)?;
        sys::setxattr(&path, "user.empty", b"", 0)?;
        equal(sys::getxattr(&path, "user.b", 100)?, b"\0\xff\n".to_vec())?;
        equal(sys::getxattr(&path, "user.empty", 100)?, vec![])?;
        let mut names = sys::listxattr(&path)?;
        names.retain(|name| name.starts_with("user."));
        names.sort();
        equal(names, vec!["user.a".to_owned(), "user.b".to_owned(), "user.empty".to_owned()])?;
        sys::setxattr(&path, "user.a", b"another, longer", 0)?;
        equal(sys::getxattr(&path, "user.a", 100)?, b"another, longer".to_vec())?;
        sys::removexattr(&path, "user.a")?;
        refused(sys::getxattr(&path, "user.a", 100), libc::ENODATA)?;
    }
    Ok(())
}

fn create_and_replace(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    refused(sys::setxattr(&file, "user.a", b"1", libc::XATTR_REPLACE), libc::ENODATA)?;
    sys::setxattr(&file, "user.a", b"1", libc::XATTR_CREATE)?;
    refused(sys::setxattr(&file, "user.a", b"2", libc::XATTR_CREATE), libc::EEXIST)?;
    sys::setxattr(&file, "user.a", b"3", libc::XATTR_REPLACE)?;
    let neither = libc::XATTR_CREATE | libc::XATTR_REPLACE;
    refused(sys::setxattr(&file, "user.a", b"4", neither), libc::EEXIST)?;
    refused(sys::setxattr(&file, "user.b", b"4", neither), libc::ENODATA)?;
    refused(sys::setxattr(&file, "user.a", b"4", 4), libc::EINVAL)?;
    equal(sys::getxattr(&file, "user.a", 10)?, b"3".to_vec())
}

fn sizes(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::setxattr(&file, "user.a", &[b'v'; 1000], 0)?;
    equal(sys::getxattr(&file, "user.a", 0)?.len(), 1000)?;
    refused(sys::getxattr(&file, "user.a", 999), libc::ERANGE)?;
    equal(sys::getxattr(&file, "user.a", 1000)?.len(), 1000)
}

fn missing(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    refused(sys::getxattr(&file, "user.none", 10), libc::ENODATA)?;
    refused(sys::removexattr(&file, "user.none"), libc::ENODATA)?;
    refused(sys::getxattr(p.at("missing"), "user.a", 10), libc::ENOENT)?;
    refused(sys::setxattr(&file, "nospace.a", b"", 0), libc::EOPNOTSUPP)?;
    refused_any(sys::setxattr(&file, "user.", b"", 0), &[libc::EINVAL])
}

fn user_needs_permission(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::setxattr(&file, "user.a", b"1", 0)?;
    as_user(ALICE, || {
        equal(sys::getxattr(&file, "user.a", 10)?, b"1".to_vec())?;
        refused(sys::setxattr(&file, "user.a", b"2", 0), libc::EACCES)?;
        refused(sys::removexattr(&file, "user.a"), libc::EACCES)
    })?;
    sys::chmod(&file, 0o622)?;
    as_user(ALICE, || {
        sys::setxattr(&file, "user.a", b"2", 0)?;
        refused(sys::getxattr(&file, "user.a", 10), libc::EACCES)
    })?;
    let sticky = p.dir("sticky", 0o1777)?;
    as_user(ALICE, || refused(sys::setxattr(&sticky, "user.a", b"1", 0), libc::EPERM))
}

fn trusted_is_roots(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    supported(sys::setxattr(&file, "trusted.a", b"1", 0), "trusted attributes")?;
    equal(sys::getxattr(&file, "trusted.a", 10)?, b"1".to_vec())?;
    as_user(ALICE, || {
        refused(sys::getxattr(&file, "trusted.a", 10), libc::ENODATA)?;
        refused(sys::setxattr(&file, "trusted.a", b"2", 0), libc::EPERM)?;
        ensure(!sys::listxattr(&file)?.contains(&"trusted.a".to_owned()), "not listed for others")
    })?;
    ensure(sys::listxattr(&file)?.contains(&"trusted.a".to_owned()), "listed for root")
}

fn security(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    supported(sys::setxattr(&file, "security.test", b"label", 0), "security attributes")?;
    equal(sys::getxattr(&file, "security.test", 100)?, b"label".to_vec())?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || refused(sys::setxattr(&file, "security.test", b"x", 0), libc::EPERM))
}

fn not_on_specials(p: &Place) -> Outcome {
    for kind in [Kind::Fifo, Kind::Socket, Kind::Char, Kind::Symlink] {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::setxattr(&path, "user.a", b"1", 0), libc::EPERM)?;
    }
    supported(sys::setxattr(p.at("Symlink"), "trusted.a", b"1", 0), "trusted attributes")
}

fn kept_by_rename_and_link(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    sys::setxattr(&file, "user.a", b"kept", 0)?;
    sys::rename(&file, p.at("g"))?;
    sys::link(p.at("g"), p.at("h"))?;
    sys::unlink(p.at("g"))?;
    equal(sys::getxattr(p.at("h"), "user.a", 10)?, b"kept".to_vec())?;
    p.file("g", b"")?;
    refused(sys::getxattr(p.at("g"), "user.a", 10), libc::ENODATA)
}

fn limits(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let longest = format!("user.{}", "n".repeat(250));
    sys::setxattr(&file, &longest, b"x", 0)?;
    equal(sys::getxattr(&file, &longest, 10)?, b"x".to_vec())?;
    refused(sys::setxattr(&file, &format!("{longest}n"), b"x", 0), libc::ERANGE)?;
    refused(sys::setxattr(&file, "user.big", &vec![0; 65_537], 0), libc::E2BIG)?;
    for number in 0..20 {
        sys::setxattr(&file, &format!("user.many-{number}"), &[number; 40], 0)?;
    }
    for number in 0..20 {
        equal(sys::getxattr(&file, &format!("user.many-{number}"), 100)?, vec![number; 40])?;
    }
    Ok(())
}

fn capability_goes_with_a_write(p: &Place) -> Outcome {
    let file = p.file("f", b"program")?;
    sys::chmod(&file, 0o777)?;
    // Version 2, cap_net_raw permitted.
    let mut capability = vec![0; 20];
    capability[3] = 2;
    capability[5] = 0x20;
    supported(sys::setxattr(&file, "security.capability", &capability, 0), "file capabilities")?;
    as_user(ALICE, || write_all(&sys::open(&file, libc::O_WRONLY, 0)?, b"x").map_err(Failure::from))?;
    refused(sys::getxattr(&file, "security.capability", 100), libc::ENODATA)?;
    sys::setxattr(&file, "security.capability", &capability, 0)?;
    sys::chown(&file, ALICE.uid, KEEP)?;
    refused(sys::getxattr(&file, "security.capability", 100), libc::ENODATA)
}

fn the_same_value_is_no_change(p: &Place) -> Outcome {
    let changed = |path: &std::path::Path| sys::lstat(path).map(|stat| (stat.st_ctime, stat.st_ctime_nsec));
    for path in [p.file("f", b"")?, p.dir("d", 0o755)?] {
        supported(sys::setxattr(&path, "user.a", b"1", 0), "user attributes")?;
        let before = changed(&path)?;
        std::thread::sleep(std::time::Duration::from_millis(30));
        sys::setxattr(&path, "user.a", b"1", 0)?;
        sys::setxattr(&path, "user.a", b"1", libc::XATTR_REPLACE)?;
        refused(sys::setxattr(&path, "user.a", b"1", libc::XATTR_CREATE), libc::EEXIST)?;
        equal(changed(&path)?, before)?;
        sys::setxattr(&path, "user.a", b"2", 0)?;
        ensure(changed(&path)? > before, "another value is a change")?;
    }
    Ok(())
}
