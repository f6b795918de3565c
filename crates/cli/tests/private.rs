//! What users of a machine on which a store or a bank runs cannot read there.

#![allow(missing_docs, clippy::unwrap_used, clippy::format_collect, clippy::format_push_string)]

mod site;

use site::{Plan, Site, ullage};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const SECRET: &str = "what only alice may read";

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The files with the secret that another user finds below a directory.
fn found(directory: &Path) -> String {
    let mut grep = Command::new("grep");
    let output = grep.args(["-ralF", SECRET]).arg(directory).uid(65534).gid(65534).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Everything below a directory that is open to others.
fn open_files(directory: &Path) -> Vec<String> {
    let mut open = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if meta.mode() & 0o077 != 0 {
            open.push(format!("{:o} {}", meta.mode(), entry.path().display()));
        }
        if meta.is_dir() {
            open.extend(open_files(&entry.path()));
        }
    }
    open
}

/// Chunks, journals and vouchers were files of mode 0644 in directories of mode 0755.
#[test]
fn nobody_else_reads_what_a_store_or_a_bank_keeps() {
    let mut site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    fs::set_permissions(site.directory.path(), Permissions::from_mode(0o755)).unwrap();
    site.user("alice", 1 << 30);
    let (file, config) = (site.directory.path().join("file"), site.config("alice"));
    fs::write(&file, SECRET).unwrap();
    ullage(&["put", file.to_str().unwrap(), "secret", "--config", config.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    let (store, bank) = (site.store_directory(1), site.directory.path().join("bank0"));
    for directory in [&store, &bank] {
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o077, 0, "{}", directory.display());
        assert_eq!(open_files(directory), Vec::<String>::new());
    }
    // One that an older version made is closed at the next start.
    site.stores[0].kill();
    fs::set_permissions(&store, Permissions::from_mode(0o755)).unwrap();
    site.stores[0].restart();
    assert_eq!(fs::metadata(&store).unwrap().mode() & 0o077, 0);
    if !is_root() {
        return println!("skipped: only root can look as somebody else");
    }
    assert_eq!((found(&store), found(&bank)), (String::new(), String::new()));
}
