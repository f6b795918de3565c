//! Spaces as earlier versions left them are opened: one of each format on disk is kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

#[test]
fn a_space_of_format_1_opens_with_all_that_is_in_it() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/format-1.tar.zst");
    let flags = ["--zstd", "--xattrs", "--xattrs-include=user.*", "-xpf", archive, "-C"];
    program("tar", flags.iter().map(AsRef::as_ref).chain([disk.as_os_str()])).ok();
    let settings = disk.join("state/space.toml");
    let text = fs::read_to_string(&settings).unwrap().replace("/fixture/", &format!("{}/", disk.display()));
    fs::write(&settings, text).unwrap();
    let space = Space::on(ground, &disk);
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
