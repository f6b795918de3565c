//! Every command, as a person and as a program use it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use ullage_mount_tests::binary;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{program, ullage};
use ullage_mount_tests::space::Space;

#[test]
fn every_command_speaks_json_and_tables() {
    let space = Space::plain();
    let file = space.path("file");
    fs::write(&file, vec![1; 10_000]).unwrap();
    let status = ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert!(process::runs(status["pid"].as_u64().unwrap() as u32));
    assert_eq!(status["mountpoint"], space.mount.to_str().unwrap());
    assert_eq!(status["used"]["inodes"], 2);
    let pools = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(pools["pools"][0]["name"], "main");
    assert_eq!(pools["pools"][0]["path"], space.pool().to_str().unwrap());
    let stat = space.stat(&file);
    assert_eq!((&stat["class"], &stat["pool"], &stat["size"]), (&"persistent".into(), &"main".into(), &10_000.into()));
    assert_eq!(stat["ino"], file.metadata().unwrap().ino());
    let backing = space.backing(&file);
    assert!(backing.starts_with(space.pool()));
    assert!(fs::read(backing).unwrap() == vec![1; 10_000]);
    for words in [&["status"][..], &["pool", "list"], &["du"], &["stat"]] {
        let text = ullage(words.iter().map(AsRef::as_ref).chain([space.mount.as_os_str()])).ok();
        assert!(!text.trim().is_empty(), "{words:?} says nothing");
    }
    ullage(["check".as_ref(), space.mount.as_os_str()]).refused("is up");
    let down = ullage(["down".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(down["down"], true);
    let check = ullage(["check".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!((&check["files"], &check["backing_files"]), (&2.into(), &1.into()), "{check}");
    assert_eq!(check["findings"].as_array().map(Vec::len), Some(0));
    let up = ullage(["up".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(up["pid"], space.pid());
    space.down();
    for words in [&["status"][..], &["pool", "list"], &["down"], &["df"], &["du"], &["stat"], &["limit"]] {
        ullage(words.iter().map(AsRef::as_ref).chain([space.mount.as_os_str()])).refused("is not up");
    }
}

#[test]
fn du_is_what_counting_says() {
    let space = Space::plain();
    for d in 0..5 {
        let dir = space.path(format!("a/b{d}/c"));
        fs::create_dir_all(&dir).unwrap();
        for n in 0..10usize {
            fs::write(dir.join(format!("file-{n}")), vec![1; n * n * 500]).unwrap();
        }
        std::os::unix::fs::symlink("target".repeat(d + 1), dir.join("symlink")).unwrap();
    }
    fs::hard_link(space.path("a/b0/c/file-9"), space.path("a/b0/c/link")).unwrap();
    fs::rename(space.path("a/b1"), space.path("moved")).unwrap();
    fs::remove_dir_all(space.path("a/b2")).unwrap();
    for name in ["", "a", "a/b0", "a/b0/c", "moved"] {
        space.compare_du(&space.path(name));
    }
    space.down();
    space.up();
    for name in ["", "a", "a/b0", "a/b0/c", "moved"] {
        space.compare_du(&space.path(name));
    }
    space.down_and_check();
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(ullage(["completions", shell]).ok().contains("ullage"));
    }
    let dir = tempfile::tempdir().unwrap();
    ullage(["man".as_ref(), dir.path().as_os_str()]).ok();
    let pages: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for page in ["ullage.1", "ullage-up.1", "ullage-check.1", "mount.fuse.ullage.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} is not among {pages:?}");
    }
    for command in ["up", "down", "status", "stat", "du", "pool", "check", "completions", "man"] {
        assert!(ullage([command, "--help"]).ok().contains("Usage"));
    }
    let list = ullage(["pool", "list", "--help"]).ok();
    for (command, help) in [("up", ullage(["up", "--help"]).ok()), ("pool list", list)] {
        assert!(help.contains("Example"), "{command} --help has no example");
    }
}

/// Regression: an administrator whose umask is 077 installed what nobody else could read.
#[test]
fn what_is_installed_is_for_all_users_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = "umask 077 && exec make -s -C \"$1\" -o build install ULLAGE=\"$2\" DESTDIR=\"$3\"";
    program(
        "sh",
        [
            "-c".as_ref(),
            script.as_ref(),
            "sh".as_ref(),
            top.as_ref(),
            binary::path().as_os_str(),
            dir.path().as_os_str(),
        ],
    )
    .ok();
    let mut places = vec![dir.path().join("usr")];
    let mut files = 0;
    while let Some(place) = places.pop() {
        let mode = place.symlink_metadata().unwrap();
        assert!(mode.is_symlink() || mode.mode() & 0o044 == 0o044, "{} has mode {:o}", place.display(), mode.mode());
        if mode.is_dir() {
            places.extend(fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files += 1;
        }
    }
    assert!(files > 20, "{files}");
}

/// Regression: one that is not there was all that was said of many.
#[test]
fn stat_and_du_tell_of_all_that_can_be_told_of() {
    let space = Space::plain();
    let names: Vec<_> = ["one", "two"].map(|name| space.path(name)).to_vec();
    for name in &names {
        std::fs::write(name, "content").unwrap();
    }
    let all = [names[0].as_os_str(), space.pools[0].as_ref(), "/proc/version".as_ref(), names[1].as_os_str()];
    let told = ullage(["stat".as_ref(), "--json".as_ref()].into_iter().chain(all));
    assert_eq!((told.code, told.err.lines().count()), (Some(1), 2), "{}", told.err);
    let report: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let paths = report["files"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap().to_owned());
    assert_eq!(paths.collect::<Vec<_>>(), names.iter().map(|it| it.display().to_string()).collect::<Vec<_>>());
    let below = space.path("below");
    fs::create_dir(&below).unwrap();
    let all = [space.mount.as_os_str(), names[0].as_os_str(), "/proc".as_ref(), below.as_os_str()];
    let told = ullage(["du".as_ref(), "--json".as_ref()].into_iter().chain(all));
    assert_eq!((told.code, told.err.lines().count()), (Some(1), 2), "{}", told.err);
    let report: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let paths = report["directories"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap().to_owned());
    assert_eq!(paths.collect::<Vec<_>>(), [&space.mount, &below].map(|it| it.display().to_string()));
    let told = ullage(["du".as_ref()].into_iter().chain(all));
    assert_eq!((told.code, told.out.lines().count()), (Some(1), 3), "{}", told.out);
    space.down_and_check();
}

/// Regression: with a umask of 0 anybody could write to the settings, and with any usual one read in the log which names others have.
#[test]
fn what_a_state_holds_is_for_its_owner_alone_whatever_the_umask() {
    let space = Space::plain();
    space.down();
    // As versions before this one left it.
    fs::set_permissions(space.state.join("ullage.log"), fs::Permissions::from_mode(0o644)).unwrap();
    let new = space.ground.directory("new");
    let (mount, state, pool) = (new.join("mnt"), new.join("state"), new.join("pool"));
    fs::create_dir(&pool).unwrap();
    let script = "umask 0; ullage=$1; shift; \"$ullage\" up \"$@\" && \"$ullage\" down \"$1\"";
    let up = |mount: &Path, state: &Path, more: &[String]| {
        let own = binary::path().as_os_str().to_owned();
        let words = ["-c".into(), script.into(), "sh".into(), own, mount.into(), "--state".into(), state.into()];
        program("sh", words.into_iter().chain(more.iter().map(std::ffi::OsString::from))).ok();
    };
    up(&mount, &state, &["--pool".into(), format!("main={}", pool.display())]);
    up(&space.mount, &space.state, &[]);
    for state in [&state, &space.state] {
        assert_eq!(state.metadata().unwrap().mode() & 0o7777, 0o711, "{}", state.display());
        // Others' commands find by this one which mount is the space's.
        let entries =
            fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path()).filter(|it| !it.ends_with("mounted-as"));
        let open: Vec<PathBuf> = entries.filter(|path| path.metadata().unwrap().mode() & 0o077 != 0).collect();
        // What an earlier start wrote stays, but for the log.
        assert!(open.is_empty(), "{open:?}");
        assert!(state.join("space.toml").exists() && state.join("turns").exists());
    }
    assert_eq!(pool.join(".ullage-turns").metadata().unwrap().mode() & 0o7777, 0o600);
}
