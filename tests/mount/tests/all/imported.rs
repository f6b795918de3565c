//! `up --import`: what is neither a regular file nor a directory.

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, mknodat};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::run;
use ullage_mount_tests::space::Space;

/// A tree to be imported, on a disk of its own.
fn bed() -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={},layout=mirror", space.pool().display())];
    space.flags = vec!["--import".into()];
    let tree = space.pool();
    (space, tree)
}

fn pipe(at: &Path) {
    mknodat(CWD, at, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
}

/// They were left behind without a word: of a pipe whose ACL let one user write, the whole group could.
#[test]
fn what_is_imported_keeps_its_acl_and_attributes_whatever_it_is() {
    let (mut space, tree) = bed();
    pipe(&tree.join("pipe"));
    run(Command::new("setfacl").args(["-m", "u:1234:rw"]).arg(tree.join("pipe"))).ok();
    symlink("somewhere", tree.join("link")).unwrap();
    for name in ["pipe", "link"] {
        lsetxattr(tree.join(name), "trusted.note", name.as_bytes(), XattrFlags::empty()).unwrap();
    }
    let acl = |root: &Path| run(Command::new("getfacl").args(["-pcn"]).arg(root.join("pipe"))).ok();
    let before = acl(&tree);
    assert!(before.contains("user:1234:rw-"), "{before}");
    space.up();
    space.flags.clear();
    assert_eq!(acl(&space.mount), before);
    for name in ["pipe", "link"] {
        let mut value = [0; 8];
        let length = lgetxattr(space.path(name), "trusted.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], name.as_bytes());
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}
