//! A stranger's write clears setuid, also where the server never sees it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

fn as_nobody(script: &str, name: &Path) {
    let words = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script, "sh"];
    program("setpriv", words.iter().map(|word| (*word).as_ref()).chain([name.as_os_str()])).ok();
}

#[test]
fn a_strangers_passthrough_write_clears_setuid_and_setgid() {
    let space = Space::new();
    for (n, script) in [
        "echo x >> \"$1\"",
        "echo x > \"$1\"",
        "truncate -s 3 \"$1\"",
        "echo y | dd of=\"$1\" conv=notrunc status=none",
    ]
    .iter()
    .enumerate()
    {
        let name = space.path(format!("file-{n}"));
        fs::write(&name, "content").unwrap();
        // Opened before, so that the kernel has its attributes.
        let open = OpenOptions::new().read(true).write(true).open(&name).unwrap();
        fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o6777);
        as_nobody(script, &name);
        assert_eq!(fs::metadata(&name).unwrap().mode() & 0o7777, 0o777, "after {script}");
        // Root's own writes leave it.
        fs::set_permissions(&name, Permissions::from_mode(0o4777)).unwrap();
        open.write_all_at(b"root", 0).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o4777);
    }
    space.down_and_check();
}

#[test]
fn a_strangers_write_stays_cleared_over_a_restart() {
    let space = Space::new();
    let name = space.path("file");
    File::create(&name).unwrap();
    fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
    as_nobody("echo x >> \"$1\"", &name);
    space.down();
    space.up();
    assert_eq!(fs::metadata(&name).unwrap().mode() & 0o7777, 0o777);
    space.down_and_check();
}
