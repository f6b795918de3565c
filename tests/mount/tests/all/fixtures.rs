//! Spaces as earlier versions left them are opened: one of each format on disk is kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{program, ullage};
use ullage_mount_tests::space::Space;

/// A space out of an archive whose paths begin with `/fixture/`; not yet up.
fn unpacked(archive: &str) -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let archive = format!("{}/fixtures/{archive}", env!("CARGO_MANIFEST_DIR"));
    let flags = ["--zstd", "--xattrs", "--xattrs-include=user.*", "--acls", "-xpf", &archive, "-C"];
    program("tar", flags.iter().map(AsRef::as_ref).chain([disk.as_os_str()])).ok();
    let settings = disk.join("state/space.toml");
    let text = fs::read_to_string(&settings).unwrap().replace("/fixture/", &format!("{}/", disk.display()));
    fs::write(&settings, text).unwrap();
    Space::on(ground, &disk)
}

#[test]
fn a_space_of_format_1_opens_with_all_that_is_in_it() {
    let space = unpacked("format-1.tar.zst");
    space.check();
    space.up();
    assert_eq!(fs::read_to_string(space.path("dir/hello")).unwrap(), "hello, world\n");
    assert_eq!(space.path("dir/hello").metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read_link(space.path("symlink")).unwrap().to_str(), Some("dir/hello"));
    assert_eq!(space.path("big").metadata().unwrap().len(), 300_000);
    assert_eq!(fs::read(space.path("big")).unwrap(), vec![b'x'; 300_000]);
    let owned = space.path("owned").metadata().unwrap();
    assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (1234, 5678, 0o640));
    let value = program("getfattr", ["--only-values", "-n", "user.note", space.path("owned").to_str().unwrap()]).ok();
    assert_eq!(value, "a note");
    fs::write(space.path("new"), "made by this version").unwrap();
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Version 0.2's daemon was killed: a sparse pool and a mirror one, limits on the space, on a directory and on a user.
#[test]
fn a_space_that_version_0_2_left_when_it_was_killed_opens_with_all_that_is_in_it() {
    let space = unpacked("version-0.2.tar.zst");
    space.up();
    let text = |name: &str| fs::read_to_string(space.path(name)).unwrap();
    assert_eq!((text("dir/hello").as_str(), text("dir/later").as_str()), ("hello, world\n", "later\n"));
    assert_eq!(space.path("dir/second").metadata().unwrap().nlink(), 2);
    assert!((1..=40).all(|n| n == 7 || text(&format!("dir/n-{n}")) == format!("{n}\n")));
    assert!(!space.path("dir/n-7").exists());
    assert_eq!(fs::read(space.path("big")).unwrap(), vec![b'x'; 300_000]);
    assert_eq!(fs::read(space.path("sparse")).unwrap()[5 << 20..], *b"end");
    assert_eq!(fs::read_link(space.path("symlink")).unwrap().to_str(), Some("dir/hello"));
    let owned = space.path("owned").metadata().unwrap();
    assert_eq!((owned.uid(), owned.gid(), owned.mode() & 0o7777), (1234, 5678, 0o640));
    let acl = program("getfacl", ["-cpn", space.path("acl/file").to_str().unwrap()]).ok();
    assert!(acl.contains("user:1234:rw"), "{acl}");
    let limits = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let of: Vec<u64> = limits["limits"].as_array().unwrap().iter().filter_map(|it| it["limit"].as_u64()).collect();
    assert_eq!(of.iter().sum::<u64>(), (200 + 5 + 6) << 20, "{limits}");
    assert!(fs::write(space.path("limited/more"), vec![1; 6 << 20]).is_err());
    space.compare_du(&space.mount);
    space.down_and_check();
    // In the plain tree of the mirror pool every name is there once.
    space.up();
    fs::write(space.path("dir/hello"), "hello again\n").unwrap();
    space.down_and_check();
    let plain = space.ground.path().join("disk/plain");
    let found =
        program("find", [plain.to_str().unwrap(), "-path", "*/.ullage", "-prune", "-o", "-type", "f", "-print"]).ok();
    let names: Vec<&str> = found.lines().filter_map(|it| it.rsplit('/').next()).collect();
    let known = |name: &&str| {
        ["hello", "second", "later", "sparse", "big", "owned", "file", "in", "more"].contains(name)
            || name.starts_with("n-")
    };
    assert!(names.iter().all(known) && names.iter().any(|it| it.starts_with("n-")), "{names:?}");
}
