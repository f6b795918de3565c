//! Who is told what a file takes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use ullage_mount_tests::binary;
use ullage_mount_tests::run::{Outcome, by_user};
use ullage_mount_tests::space::Space;

/// Who owns nothing there.
const GUEST: u32 = 65_201;
const OWNER: u32 = 65_202;

fn ask(user: u32, command: &str, path: &Path) -> Outcome {
    by_user(user, [binary::path().as_os_str(), command.as_ref(), "--json".as_ref(), path.as_os_str()])
}

/// Nobody but its owner and root was, though an attribute of ours told all who may read it.
#[test]
fn who_may_read_a_file_is_told_what_it_takes_and_nobody_else_is() {
    let space = Space::plain();
    fs::set_permissions(space.ground.path(), Permissions::from_mode(0o755)).unwrap();
    let [open, closed, below] = ["open", "closed", "closed/file"].map(|name| space.path(name));
    for dir in [&open, &closed] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(open.join("file"), [1; 5000]).unwrap();
    fs::write(open.join("secret"), [1; 5000]).unwrap();
    fs::write(&below, [1; 5000]).unwrap();
    fs::set_permissions(open.join("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o711)).unwrap();
    chown(open.join("secret"), Some(OWNER), Some(OWNER)).unwrap();
    let told: serde_json::Value = ask(GUEST, "stat", &open.join("file")).json();
    let file = &told["files"][0]["file"];
    assert_eq!((&file["size"], &file["backing"]), (&5000.into(), &serde_json::Value::Null));
    ask(GUEST, "stat", &below).ok();
    ask(GUEST, "du", &open).ok();
    ask(GUEST, "du", &closed).refused("who may read it");
    ask(GUEST, "stat", &open.join("secret")).refused("who may read it");
    let told: serde_json::Value = ask(OWNER, "stat", &open.join("secret")).json();
    assert!(told["files"][0]["file"]["backing"].is_string());
    // What is said of one file counts for no other.
    let proof = |path: &Path| {
        let mut value = [0; 20];
        let length = rustix::fs::getxattr(path, "user.ullage.proof", &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    assert_ne!(proof(&open.join("file")), proof(&open.join("secret")));
    space.down_and_check();
}
