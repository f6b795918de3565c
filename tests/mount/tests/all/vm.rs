//! Tests of this program that need what few kernels have, on one that has it, under QEMU (`crates/cli/tests/vm`): `make new-kernel`.

#[path = "../../../../crates/cli/tests/vm/machine.rs"]
mod machine;

use machine::{Parts, boot};
use std::path::Path;
use ullage_mount_tests::binary;

/// Project quotas, and passthrough beside them.
#[test]
fn limits_are_kept_by_the_kernels_own_quota_where_it_has_one() {
    let this = std::env::current_exe().unwrap();
    let programs = &[
        ("ullage", binary::path().as_path()),
        ("tests", this.as_path()),
        ("mount", Path::new("/usr/bin/mount")),
        ("umount", Path::new("/usr/bin/umount")),
        ("mkfs.xfs", Path::new("/usr/sbin/mkfs.xfs")),
        ("mkfs.ext4", Path::new("/usr/sbin/mkfs.ext4")),
        ("tune2fs", Path::new("/usr/sbin/tune2fs")),
    ];
    let parts = Parts { programs, modules: "fuse loop xfs quota_tree quota_v2" };
    // For looking closer: TESTS=… and LOG=… say which of them, and how much the daemon tells; MORE=--ignored runs what only measures.
    let words = format!("SCRIPTS=fence/* {}", std::env::var("ULLAGE_VM_WORDS").unwrap_or_default());
    let Some(told) = boot("vm-new", "new-kernel", &words, &parts) else { return };
    let (said, console) = (told.said("fence"), &told.console);
    println!("{console}");
    assert!(!console.contains("skipped: "), "{console}");
    assert!(said.starts_with("0 ") && !said.ends_with(" 0"), "{said}: {console}");
}
