//! What users of a machine on which a store or a bank runs cannot read there.

use crate::site::{Plan, Process, Site, ULLAGE, ullage};
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// What was missing above the state of a bank or a store was closed to everybody else, with all that others keep there: /var/lib/ullage.
#[test]
fn directories_made_above_a_state_are_as_open_as_any_and_only_the_state_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (pki, limits) = (at("pki").display().to_string(), at("limits.toml"));
    ullage(&["pki", "init", &pki]);
    ullage(&["pki", "issue", &pki, "bank0", "--role", "bank", "--host", "127.0.0.1"]);
    ullage(&["pki", "issue", &pki, "store-1", "--role", "store", "--host", "127.0.0.1"]);
    fs::write(&limits, "stores = [1]\n[limits]\n").unwrap();
    fs::create_dir(at("ordinary")).unwrap();
    let start = |line: String| {
        let line = format!("{line} --json --pki {pki} --listen 127.0.0.1:0");
        Process::start(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    };
    let (bank, store, rebuilt) = (at("banks/new/bank"), at("stores/new/store"), at("rebuilt/new/bank"));
    let served = start(format!("bank serve --name bank0 --directory {}", bank.display()));
    let _stored = start(format!("store {} --name store-1 --bank {}", store.display(), served.address));
    ullage(&["bank", "rebuild", limits.to_str().unwrap(), "--directory", rebuilt.to_str().unwrap()]);
    for state in [&bank, &store, &rebuilt] {
        assert_eq!(mode(state), 0o700, "{}", state.display());
        for above in state.ancestors().skip(1).take(2) {
            assert_eq!(mode(above), mode(&at("ordinary")), "{}", above.display());
        }
    }
}

/// The space was said not to be up, and to be started.
#[test]
fn who_may_not_reach_the_state_of_a_space_is_told_so_and_not_that_it_is_down() {
    if !is_root() {
        return println!("skipped: only root can ask as somebody else");
    }
    let directory = tempfile::tempdir().unwrap();
    let (closed, point) = (directory.path().join("closed"), directory.path().join("space"));
    let state = closed.join("state");
    fs::create_dir_all(&state).unwrap();
    fs::create_dir(&point).unwrap();
    fs::write(state.join("space.toml"), "").unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(directory.path(), 0o755);
    open(&closed, 0o700);
    // The binary may lie where others do not come.
    let binary = directory.path().join("ullage");
    fs::copy(ULLAGE, &binary).unwrap();
    open(&binary, 0o755);
    let mut status = Command::new(&binary);
    status.arg("status").arg(&point).arg("--state").arg(&state).current_dir("/").uid(65534).gid(65534);
    let output = status.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("ermission denied") && said.contains(state.to_str().unwrap()), "{said}");
    assert!(!said.contains("is not up"), "{said}");
}
