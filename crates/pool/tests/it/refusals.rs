//! Every directory that is no good as a pool is refused, with a text that says what to do, and stays as it is.

use crate::common::{Mounted, SPACE, config, files, hint, is_root, mount, open};
use std::path::Path;
use ullage_pool::{DirPool, Error, Pool, PoolConfig, Uuid};

fn refusal(path: &Path, config: PoolConfig) -> String {
    match open(path, config.clone(), 1).err() {
        // What can be told beforehand is told in the same words, and changes nothing.
        Some(Error::Unusable(text)) => {
            let foreseen = DirPool::examine(path, config.space, config.pool).err().map(|error| error.to_string());
            assert!(foreseen.is_none_or(|foreseen| foreseen == text), "{text}");
            text
        }
        Some(error @ Error::Locked(_)) => error.to_string(),
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// A pool that was used once.
fn used() -> (tempfile::TempDir, Uuid) {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), config(), 1).unwrap();
    assert!(opened.pool.is_first_use());
    opened.pool.close().unwrap();
    (dir, opened.pool.uuid())
}

#[test]
fn what_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refusal(&dir.path().join("none"), config()).contains("does not exist"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(refusal(&dir.path().join("file"), config()).contains("is not a directory"));
}

#[test]
fn foreign_data() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis"), "years of work").unwrap();
    assert!(refusal(dir.path(), config()).contains("not empty (it holds 'thesis'"));
    assert_eq!(files(dir.path()).len(), 1);
    assert!(DirPool::examine(dir.path(), SPACE, None).is_err());
    let fresh = tempfile::tempdir().unwrap();
    std::fs::create_dir(fresh.path().join("lost+found")).unwrap();
    open(fresh.path(), config(), 1).unwrap();
}

#[test]
fn a_pool_of_another_space() {
    let (dir, pool) = used();
    let other = PoolConfig::new(Uuid([8; 16]), None);
    assert!(refusal(dir.path(), other.clone()).contains("in use by another space"));
    assert!(refusal(dir.path(), PoolConfig { pool: Some(pool), ..other }).contains("in use by another space"));
}

#[test]
fn a_pool_that_was_swapped() {
    let [(one, first), (two, _)] = [used(), used()];
    assert!(refusal(two.path(), PoolConfig { pool: Some(first), ..config() }).contains("was swapped"));
    let empty = tempfile::tempdir().unwrap();
    let text = refusal(empty.path(), PoolConfig { pool: Some(first), ..config() });
    assert!(text.contains("mount the right disk"), "{text}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
    let again = open(one.path(), PoolConfig { pool: Some(first), ..config() }, 1).unwrap();
    assert!(!again.pool.is_first_use());
}

#[test]
fn a_pool_in_use() {
    let (dir, _) = used();
    let _running = open(dir.path(), config(), 1).unwrap();
    assert!(refusal(dir.path(), config()).contains("in use by a running process"));
    // Whose it is matters more: to wait for its end would not help.
    assert!(refusal(dir.path(), PoolConfig::new(Uuid([8; 16]), None)).contains("in use by another space"));
}

#[test]
fn a_marker_that_is_newer_or_damaged() {
    let (dir, pool) = used();
    let marker = dir.path().join(".ullage-pool.toml");
    std::fs::write(&marker, "format = 2\nshape = \"unheard of\"\n").unwrap();
    assert!(refusal(dir.path(), config()).contains("use a newer version"));
    for text in ["", "format = 1\n", "\0\0\0", "format = 1\nspace = \"x\"\npool = \"y\"\ncreated = 1\n"] {
        std::fs::write(&marker, text).unwrap();
        assert!(refusal(dir.path(), config()).contains("is damaged"), "{text:?}");
    }
    std::fs::write(&marker, format!("format = 1\nspace = \"{SPACE}\"\npool = \"{pool}\"\ncreated = 1\n")).unwrap();
    open(dir.path(), config(), 1).unwrap();
}

#[test]
fn parameters_out_of_range() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = config();
    bad.sparse.depth = 0;
    assert!(refusal(dir.path(), bad).contains("depth must be"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_read_only_file_system_and_one_that_becomes_it() {
    let Some(mounted) = mount("ext4", 64) else { return };
    let path = mounted.path().join("pool");
    std::fs::create_dir(&path).unwrap();
    let opened = open(&path, config(), 1).unwrap();
    let fresh = opened.pool.create(hint(1)).unwrap();
    drop(fresh);
    opened.pool.close().unwrap();
    let remount = |how: &str| Mounted::run("mount", &["-o", how, mounted.path().to_str().unwrap()]);
    remount("remount,ro");
    let error = opened.pool.create(hint(9)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{error}");
    drop(opened);
    assert!(refusal(&path, config()).contains("mounted read-only"));
    remount("remount,rw");
    open(&path, config(), 1000).unwrap();
}

#[test]
fn another_users_directory_and_ones_own() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let [theirs, own] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    rustix::fs::chown(own.path(), Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    std::fs::set_permissions(theirs.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (theirs, own) = (theirs.path().to_owned(), own.path().to_owned());
    let text = std::thread::spawn(move || {
        // This thread only; std has no way to do so.
        rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(65534)).unwrap();
        let text = refusal(&theirs, config());
        let opened = open(&own, config(), 1).unwrap();
        for _ in 0..50 {
            let fresh = opened.pool.create(hint(1)).unwrap();
            let binding = fresh.binding.clone();
            drop(fresh);
            opened.pool.open(&binding, ullage_pool::Access::Write).unwrap();
            opened.pool.release(binding);
        }
        opened.pool.close().unwrap();
        assert!(files(&own).is_empty());
        assert!(opened.pool.describe().abilities.leases, "an owner may take leases");
        text
    });
    assert!(text.join().unwrap().contains("may not be written by this user"));
}
