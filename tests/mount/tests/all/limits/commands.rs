//! `limit`, `df`, `up --size` and `--reserve`, and statfs(2) below a limit.

use super::bed::{Below, is_full, limit, set};
use std::fs;
use std::time::Duration;
use ullage_mount_tests::binary;
use ullage_mount_tests::run::{by_user, eventually, ullage};
use ullage_mount_tests::space::Space;

#[test]
fn the_size_of_a_space_is_set_shown_and_kept() {
    let mut space = Space::new();
    space.down();
    space.flags = vec!["--size".into(), "2M".into()];
    space.up();
    space.flags.clear();
    let statfs = rustix::fs::statvfs(&space.mount).unwrap();
    assert_eq!(statfs.f_blocks * statfs.f_frsize, 2 << 20);
    assert_eq!(statfs.f_bavail * statfs.f_frsize, (2 << 20) - 4096);
    fs::write(space.path("file"), vec![1; 1 << 20]).unwrap();
    space.compare_du(&space.mount);
    let df = || ullage(["df".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    eventually("nothing is held for what the disk has", Duration::from_secs(20), || df()["held"] == 0);
    let df = df();
    assert_eq!((&df["size"], &df["used"]), (&(2u64 << 20).into(), &((1u64 << 20) + 4096).into()), "{df}");
    assert_eq!(df["free"], (1u64 << 20) - 4096);
    let table = ullage(["df".as_ref(), space.mount.as_os_str()]).ok();
    for name in ["total", "free", "used", "held", "reclaimable", "guaranteed", "reserve", "limit"] {
        assert!(df[if name == "limit" { "size" } else { name }].is_u64(), "{name}: {df}");
        assert!(table.lines().any(|line| line.starts_with(name)), "{name}: {table}");
    }
    assert!(is_full(&fs::write(space.path("more"), vec![1; 2 << 20])));
    fs::remove_file(space.path("more")).unwrap();
    space.down();
    space.up();
    assert!(is_full(&fs::write(space.path("more"), vec![1; 2 << 20])));
    limit(&["none"], &space.mount);
    fs::write(space.path("more"), vec![1; 2 << 20]).unwrap();
    space.down_and_check();
}

#[test]
fn a_limited_directory_looks_like_a_small_file_system() {
    let space = Below::Tmpfs.space();
    let dir = space.path("a");
    fs::create_dir_all(dir.join("b/c")).unwrap();
    limit(&["1M", "--inodes", "10"], &dir);
    limit(&["512K"], &dir.join("b"));
    let shown = |path: &std::path::Path| {
        let now = rustix::fs::statvfs(path).unwrap();
        (now.f_blocks * now.f_frsize, now.f_bavail * now.f_frsize, now.f_files, now.f_ffree)
    };
    assert_eq!(shown(&dir), (1 << 20, (1 << 20) - 3 * 4096, 10, 7));
    assert_eq!(shown(&dir.join("b/c")), (512 << 10, (512 << 10) - 2 * 4096, 10, 7));
    assert!(shown(&space.mount).0 > 64 << 20);
    for n in 0..7 {
        fs::write(dir.join(format!("file-{n}")), "").unwrap();
    }
    assert!(is_full(&fs::write(dir.join("one-more"), "")));
    space.down_and_check();
}

#[test]
fn limits_are_listed_with_what_they_bound() {
    let space = Below::Tmpfs.space();
    fs::create_dir(space.path("dir")).unwrap();
    limit(&["10M"], &space.path("dir"));
    limit(&["--user", "root", "1G", "--inodes", "5000"], &space.mount);
    limit(&["--user", "4711", "1M"], &space.mount);
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let all = all["limits"].as_array().unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!((&all[0]["subject"]["user"], &all[0]["inodes"]), (&0.into(), &2.into()));
    assert_eq!((&all[0]["limit"], &all[0]["limit_inodes"]), (&(1u64 << 30).into(), &5000.into()));
    assert_eq!(all[2]["path"], space.path("dir").to_str().unwrap());
    let table = ullage(["limit".as_ref(), space.mount.as_os_str()]).ok();
    assert!(table.contains("10 MiB") && table.contains("user 4711"), "{table}");
    let pools = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str()]).ok();
    assert!(pools.contains("limits: exact"), "{pools}");
    limit(&["--user", "4711", "none"], &space.mount);
    let one =
        ullage(["limit".as_ref(), space.mount.as_os_str(), "--user".as_ref(), "4711".as_ref(), "--json".as_ref()]);
    let one = one.json()["limits"].take();
    assert_eq!((one.as_array().map(Vec::len), &one[0]["limit"]), (Some(1), &serde_json::Value::Null), "{one}");
    space.down_and_check();
}

/// Regression: without a limit nothing was shown, though all of it was counted.
#[test]
fn what_a_user_uses_is_shown_without_a_limit_too() {
    let space = Below::Tmpfs.space();
    fs::write(space.path("file"), vec![1; 3 << 20]).unwrap();
    std::os::unix::fs::chown(space.path("file"), Some(4242), None).unwrap();
    space.compare_du(&space.mount);
    let of = |user: &str, more: &[&str]| {
        let own = ["limit".as_ref(), space.mount.as_os_str(), "--user".as_ref(), user.as_ref()];
        ullage(own.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let told = of("4242", &["--json"]).json()["limits"].take();
    assert_eq!((told.as_array().map(Vec::len), &told[0]["used"]), (Some(1), &(3u64 << 20).into()), "{told}");
    assert_eq!((&told[0]["inodes"], &told[0]["limit"]), (&1.into(), &serde_json::Value::Null), "{told}");
    let table = of("4242", &[]).ok();
    assert!(table.contains("3 MiB") && table.contains("none") && table.contains("user 4242"), "{table}");
    assert_eq!(of("4243", &["--json"]).json()["limits"][0]["used"], 0);
    // Others are told of themselves alone.
    let other = |user: &str| {
        let own = [binary::path().as_os_str(), "limit".as_ref(), space.mount.as_os_str()];
        by_user(4242, own.into_iter().chain(["--user", user, "--json"].map(AsRef::as_ref)))
    };
    assert_eq!(other("4242").json()["limits"][0]["used"], 3u64 << 20);
    other("0").refused("may ask of other users");
    space.down_and_check();
}

/// Regression: the directory was passed over, and all limits were shown.
#[test]
fn the_limit_on_one_directory_is_shown_to_its_owner_too() {
    let space = Below::Tmpfs.space();
    std::fs::set_permissions(space.ground.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["a", "b", "free"] {
        fs::create_dir(space.path(name)).unwrap();
        std::os::unix::fs::chown(space.path(name), Some(4242), None).unwrap();
        fs::write(space.path(name).join("file"), vec![1; 1 << 20]).unwrap();
    }
    space.compare_du(&space.mount);
    limit(&["10M"], &space.path("a"));
    limit(&["20M", "--inodes", "7"], &space.path("b"));
    let of = |user: u32, name: &str, more: &[&str]| {
        let path = space.path(name);
        let own = [binary::path().as_os_str(), "limit".as_ref(), path.as_os_str()];
        by_user(user, own.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    for user in [0, 4242] {
        let told = of(user, "a", &["--json"]).json()["limits"].take();
        assert_eq!((told.as_array().map(Vec::len), &told[0]["limit"]), (Some(1), &(10u64 << 20).into()), "{told}");
        assert_eq!(told[0]["path"], space.path("a").to_str().unwrap());
        let told = of(user, "free", &["--json"]).json()["limits"].take();
        assert_eq!((told.as_array().map(Vec::len), &told[0]["limit"]), (Some(1), &serde_json::Value::Null), "{told}");
        assert_eq!((&told[0]["inodes"], told[0]["used"].as_u64() >= Some(1 << 20)), (&2.into(), true), "{told}");
    }
    assert!(of(0, "free", &[]).ok().contains("none"));
    of(4243, "a", &[]).refused("belongs to somebody else");
    of(0, "a/file", &[]).refused("is no directory");
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(all["limits"].as_array().map(Vec::len), Some(2));
    space.down_and_check();
}

#[test]
fn wrong_limits_are_refused_and_change_nothing() {
    let space = Below::Tmpfs.space();
    fs::create_dir(space.path("dir")).unwrap();
    fs::write(space.path("dir/file"), "data").unwrap();
    fs::hard_link(space.path("dir/file"), space.path("link")).unwrap();
    set(&["much"], &space.mount).misused();
    set(&["--inodes", "-1"], &space.mount).misused();
    set(&["1G", "--inodes", "few"], &space.mount).misused();
    set(&["--user", "no such user", "1G"], &space.mount).refused("there is no user 'no such user'");
    set(&["--user", "4294967295", "1G"], &space.mount).refused("nobody's number");
    set(&["--user", "4711", "1G"], &space.path("dir")).refused("on the whole space");
    set(&["1G"], &space.path("dir/file")).refused("is no directory");
    set(&["1G"], &space.path("missing")).refused("missing");
    set(&["1G"], std::path::Path::new("/")).refused("not in a mounted space");
    set(&["15E"], &space.mount).refused("too large");
    set(&["1G"], &space.path("dir")).refused("names both inside and outside");
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(all["limits"].as_array().map(Vec::len), Some(0));
    fs::remove_file(space.path("link")).unwrap();
    limit(&["1G"], &space.path("dir"));
    space.down();
    set(&["1G"], &space.mount).refused("is not up; start it with");
    space.check();
}

/// It was told only once a limited file had been written.
#[test]
fn how_writes_are_kept_within_limits_is_known_before_anything_is_limited() {
    let space = Space::new();
    let listed = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let ways = listed["pools"][0]["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(names, ["kernel-quota", "mediated", "server"]);
    for way in ways {
        assert!(way["used"].is_boolean() && !way["why"].as_str().unwrap().is_empty(), "{way}");
    }
    let told = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str()]).ok();
    assert!(!told.contains("not tried yet"), "{told}");
    space.down_and_check();
}

#[test]
fn a_size_that_is_too_large_is_refused_in_words() {
    let mut space = Space::new();
    space.down();
    space.flags = vec!["--size".into(), "15EiB".into()];
    space.try_up().refused("the limit is too large");
    space.flags.clear();
    space.up();
    space.down_and_check();
}

/// Each said of the other's what it had been before: root was told that a limit was set, and it was not.
#[test]
fn who_limits_bytes_and_who_limits_inodes_at_one_time_both_do() {
    let space = Space::new();
    for user in 4000..4040 {
        let user = user.to_string();
        std::thread::scope(|scope| {
            for words in [&["1G"][..], &["--inodes", "1000"]] {
                let words: Vec<&str> = ["--user", &user].into_iter().chain(words.iter().copied()).collect();
                let mount = &space.mount;
                scope.spawn(move || limit(&words, mount));
            }
        });
        let now = set(&["--user", &user, "--json"], &space.mount).json()["limits"][0].take();
        assert_eq!((&now["limit"], &now["limit_inodes"]), (&(1u64 << 30).into(), &1000.into()), "{now}");
    }
    space.down_and_check();
}
