//! Bad input gets one clear line and harms nothing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, listing};
use ullage_mount_tests::process;
use ullage_mount_tests::run::{program, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// A space that is not up and was never.
fn unused() -> Space {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    Space::on(ground, &disk)
}

/// A space that is up, with a file in it that is on the disk.
fn used() -> Space {
    let space = unused();
    space.up();
    fs::write(space.path("file"), "content").unwrap();
    space.sync();
    space
}

/// `up` is refused with this text, and what lies on the ground is as before, but for the daemon's log.
#[track_caller]
fn refused_harmlessly(space: &Space, text: &str) {
    let look = || {
        let mut all = listing(space.ground.path());
        all.retain(|(path, _)| !path.ends_with("ullage.log"));
        all
    };
    let before = look();
    space.try_up().refused(text);
    assert!(!is_mounted(&space.mount));
    // What was never used may have been made as an empty state, and no more.
    let after: Vec<_> = look().into_iter().filter(|(path, _)| *path != space.state && *path != space.mount).collect();
    let before: Vec<_> = before.into_iter().filter(|(path, _)| *path != space.state && *path != space.mount).collect();
    assert_eq!(before, after, "something was changed");
}

#[test]
fn a_first_use_needs_a_pool() {
    let mut space = unused();
    space.pools.clear();
    refused_harmlessly(&space, "say where its data goes");
}

#[test]
fn a_pool_that_is_missing_is_refused() {
    let space = unused();
    fs::remove_dir(space.pool()).unwrap();
    refused_harmlessly(&space, "does not exist");
    assert!(!space.state.join("space.toml").exists());
    fs::create_dir(space.pool()).unwrap();
    space.up();
    space.down();
    fs::rename(space.pool(), space.ground.join("away")).unwrap();
    refused_harmlessly(&space, "does not exist");
    fs::rename(space.ground.join("away"), space.pool()).unwrap();
    space.up();
    space.down_and_check();
}

#[test]
fn a_pool_that_is_no_directory_is_refused() {
    let space = unused();
    fs::remove_dir(space.pool()).unwrap();
    fs::write(space.pool(), "a file").unwrap();
    refused_harmlessly(&space, "not a directory");
    assert_eq!(fs::read(space.pool()).unwrap(), b"a file");
}

#[test]
fn a_pool_that_is_not_empty_is_refused_at_first_use_and_the_next_try_succeeds() {
    let space = unused();
    fs::write(space.pool().join("precious"), "data").unwrap();
    space.try_up().refused("is not empty");
    assert_eq!(fs::read(space.pool().join("precious")).unwrap(), b"data");
    fs::remove_file(space.pool().join("precious")).unwrap();
    space.up();
    space.down_and_check();
}

/// The first pool was made one of a space that did not come to be, and the corrected command was refused.
#[test]
fn a_first_use_that_is_refused_for_its_last_pool_leaves_the_others_as_they_were() {
    let mut space = unused();
    let (a, b, c) = (space.ground.directory("a"), space.ground.directory("b"), space.ground.directory("c"));
    fs::write(b.join("precious"), "data").unwrap();
    for layout in ["sparse", "mirror"] {
        for last in ["sparse", "mirror"] {
            space.pools =
                vec![format!("a={},layout={layout}", a.display()), format!("b={},layout={last}", b.display())];
            refused_harmlessly(&space, "is not empty");
        }
    }
    space.pools = vec![format!("a={}", a.display()), format!("b={}", c.display())];
    space.up();
    space.down_and_check();
}

/// The first pool carries the space's uuid, and no settings say so: what nobody can foresee, or a crash.
#[test]
fn a_first_use_that_ended_half_way_is_taken_up_with_other_pools() {
    let mut ground = Ground::new();
    let small = ground.tmpfs("small", 64);
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    let (a, c) = (space.ground.directory("a"), space.ground.directory("c"));
    fs::create_dir(small.join("b")).unwrap();
    let full = fs::write(small.join("fill"), vec![1; 1 << 20]);
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    space.pools = vec![format!("a={}", a.display()), format!("b={}", small.join("b").display())];
    space.try_up().refused("No space left");
    assert!(a.join(".ullage-pool.toml").exists() && !space.state.join("space.toml").exists());
    space.pools[1] = format!("b={}", c.display());
    space.up();
    assert!(!space.state.join("uuid").exists());
    fs::write(space.path("file"), "content").unwrap();
    space.down_and_check();
}

#[test]
fn a_pool_of_another_space_is_refused() {
    let one = unused();
    one.up();
    fs::write(one.path("file"), "content").unwrap();
    let mut other = unused();
    other.pools.clone_from(&one.pools);
    other.try_up().refused("in use by");
    one.down();
    other.try_up().refused("in use by another space");
    one.up();
    assert_eq!(fs::read(one.path("file")).unwrap(), b"content");
    one.down_and_check();
}

#[test]
fn swapped_pools_are_refused() {
    let mut space = unused();
    let (a, b) = (space.ground.directory("a"), space.ground.directory("b"));
    space.pools = vec![format!("a={}", a.display()), format!("b={}", b.display())];
    space.up();
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    let away = space.ground.join("away");
    let swap = || {
        fs::rename(&a, &away).unwrap();
        fs::rename(&b, &a).unwrap();
        fs::rename(&away, &b).unwrap();
    };
    swap();
    refused_harmlessly(&space, "was swapped");
    swap();
    // An empty directory in a pool's place: the disk is not mounted.
    fs::rename(&a, &away).unwrap();
    fs::create_dir(&a).unwrap();
    refused_harmlessly(&space, "is not the pool");
    // Regression: it named no mount point, and could not be followed.
    let without = format!("ullage up --without a {}", space.mount.display());
    refused_harmlessly(&space, &format!("or start without it: `{without}`"));
    assert_eq!(fs::read_dir(&a).unwrap().count(), 0);
    fs::remove_dir(&a).unwrap();
    fs::rename(&away, &a).unwrap();
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    space.down_and_check();
}

#[test]
fn a_pool_on_a_read_only_file_system_is_refused() {
    let mut ground = Ground::new();
    let small = ground.tmpfs("small", 65536);
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    fs::create_dir(small.join("pool")).unwrap();
    space.pools = vec![format!("main={}", small.join("pool").display())];
    space.up();
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    program("mount", ["-o".as_ref(), "remount,ro".as_ref(), small.as_os_str()]).ok();
    refused_harmlessly(&space, "read-only");
    program("mount", ["-o".as_ref(), "remount,rw".as_ref(), small.as_os_str()]).ok();
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    space.down_and_check();
}

#[test]
fn a_second_up_is_refused_and_the_first_goes_on() {
    let space = unused();
    space.up();
    let pid = space.pid();
    space.try_up().refused("is up already");
    // The same state at another place.
    let elsewhere = space.ground.directory("elsewhere");
    ullage(["up".as_ref(), elsewhere.as_os_str(), "--state".as_ref(), space.state.as_os_str()])
        .refused("is up already");
    assert_eq!(space.pid(), pid);
    fs::write(space.path("file"), "content").unwrap();
    space.down_and_check();
}

#[test]
fn a_catalog_that_another_process_holds_is_refused() {
    let space = unused();
    space.up();
    space.down();
    let lock = File::open(space.state.join("catalog/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // The test's own.
    let why = format!("in use by another process, number {}", std::process::id());
    refused_harmlessly(&space, &why);
    ullage(["check".as_ref(), space.mount.as_os_str()]).refused(&why);
    drop(lock);
    space.up();
    space.down_and_check();
}

#[test]
fn wrong_flags_on_a_later_up_are_refused() {
    let mut space = unused();
    space.up();
    space.down();
    let pool = space.pools[0].clone();
    for flags in [
        &["--pool", "other=/nonexistent"][..],
        &["--spread", "first-fit"],
        &["--pool", &format!("{pool},reserve=1G")],
        &["--pool", &format!("{pool},layout=mirror")],
        &["--pool", &pool, "--pool", "other=/nonexistent"],
        &["--pool", &pool, "--import"],
    ] {
        space.flags = flags.iter().map(Into::into).collect();
        refused_harmlessly(&space, "exists already");
    }
    // What made it may be said again.
    for flags in [&["--pool", &pool][..], &["--spread", "most-free"], &[]] {
        space.flags = flags.iter().map(Into::into).collect();
        space.up();
        space.down_and_check();
    }
}

/// Regression: it had made the space by then, and its pools were those of that one.
#[test]
fn a_space_that_cannot_be_mounted_as_asked_for_is_not_made() {
    let mut space = unused();
    let switched_off =
        fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value.trim() == "N");
    space.flags = ["--transport", "fuser", "-o", "nosymfollow"].map(Into::into).to_vec();
    refused_harmlessly(&space, "leave it out");
    if switched_off {
        space.flags = ["--transport", "io-uring"].map(Into::into).to_vec();
        refused_harmlessly(&space, "enable_uring of fuse is off");
    }
    // Another pool than was asked for then.
    let other = space.ground.directory("other");
    space.pools = vec![format!("other={}", other.display())];
    space.flags.clear();
    space.up();
    space.down_and_check();
}

#[test]
fn misuse_says_so_and_exits_with_two() {
    for arguments in [
        &[][..],
        &["fly"],
        &["up"],
        &["up", "/mnt/x", "--pool", "nopath"],
        &["up", "/mnt/x", "--pool", "a=/x,kind=tape"],
        &["up", "/mnt/x", "--spread", "thin"],
        &["up", "/mnt/x", "--transport", "pigeon"],
        &["up", "/mnt/x", "--transport", "device", "--enable-uring"],
        &["up", "/mnt/x", "--transport=fuser", "--enable-uring"],
        &["simulate", "--plan", "x.toml", "--figure", "figure-06"],
        &["bank", "serve", "--pki", "x", "--name", "b", "--engine", "etcd://x:1", "--directory", "y"],
        &["down"],
        &["stat"],
        &["du"],
        &["pool"],
        &["check", "--wrong"],
        &["completions", "nosuchshell"],
    ] {
        ullage(arguments).misused();
    }
}

#[test]
fn colliding_pools_are_refused() {
    let mut space = unused();
    let pool = space.pool();
    let inside = space.mount.join("pool");
    for (pools, text) in [
        (vec![format!("a={}", pool.display()), format!("a={}x", pool.display())], "called 'a'"),
        (vec![format!("a={0}", pool.display()), format!("b={0}", pool.display())], "lie at"),
        (vec![format!("a={}", inside.display())], "below the mount point"),
    ] {
        space.pools = pools;
        refused_harmlessly(&space, text);
    }
}

/// Regression: the state of a mount point that was named with a slash lay in it, and later commands did not find the space.
#[test]
fn a_mount_point_has_one_name_however_it_is_written() {
    let mut space = unused();
    space.state = space.mount.with_file_name("mnt.ullage");
    let mut slash = space.mount.clone().into_os_string();
    slash.push("/");
    ullage(["up".as_ref(), slash.as_os_str(), "--pool".as_ref(), space.pools[0].as_ref()]).ok();
    assert!(is_mounted(&space.mount) && space.state.join("space.toml").exists());
    ullage(["status".as_ref(), slash.as_os_str()]).ok();
    ullage(["down".as_ref(), slash.as_os_str()]).ok();
    let link = space.ground.join("link");
    std::os::unix::fs::symlink(&space.mount, &link).unwrap();
    for name in [slash.as_os_str(), link.as_os_str()] {
        ullage(["check".as_ref(), name]).ok();
        for command in ["status", "down"] {
            ullage([command.as_ref(), name]).refused("is not up");
        }
        ullage(["up".as_ref(), name]).ok();
        assert!(is_mounted(&space.mount));
        ullage(["down".as_ref(), name]).ok();
    }
    space.check();
}

/// Regression: the mount hid its own state, after the pool had been given to a space that was never there.
#[test]
fn a_state_that_the_mount_would_hide_is_refused() {
    let mut space = unused();
    let real = space.state.clone();
    std::os::unix::fs::symlink(&space.mount, space.ground.join("link")).unwrap();
    for state in [space.mount.clone(), space.mount.join("state"), space.ground.join("link/state")] {
        space.state = state;
        for flags in [&[][..], &["--foreground"]] {
            space.flags = flags.iter().map(Into::into).collect();
            refused_harmlessly(&space, "would hide the state");
        }
        // Now the link leads somewhere.
        fs::create_dir_all(&space.mount).unwrap();
    }
    (space.state, space.flags) = (real, Vec::new());
    space.up();
    space.down_and_check();
}

/// Regression: only the first mount point was compared with the pools.
#[test]
fn a_later_mount_point_in_a_plain_tree_is_refused() {
    let mut space = unused();
    space.pools[0].push_str(",layout=mirror");
    space.up();
    space.down();
    let inside = space.pool().join("inside");
    let usual = std::mem::replace(&mut space.mount, inside);
    refused_harmlessly(&space, "lies in the plain tree of pool 'main'");
    space.mount = usual;
    space.up();
    space.down_and_check();
}

/// Regression: no pools at all ended the daemon, a check of them was clean, and pools of one name were served.
#[test]
fn settings_with_pools_that_no_space_can_have_are_refused() {
    let space = unused();
    space.up();
    space.down();
    let path = space.state.join("space.toml");
    let good = fs::read_to_string(&path).unwrap();
    let (head, pool) = good.split_at(good.find("[[pool]]").unwrap());
    let second = pool.replace("id = 0", "id = 1");
    for (text, why) in [
        (format!("pool = []\n{head}"), "names no pool"),
        (good.replace("name = \"main\"", "name = \"\""), "is no name for a pool"),
        (good.replace("name = \"main\"", "name = \"a\\nb,c\""), "is no name for a pool"),
        (format!("{good}\n{second}"), "two pools are called 'main'"),
        (format!("{head}{}", pool.replace("uuid = \"", "uuid = \"x")), "the uuid of the pool 'main'"),
        (good.replace("most-free", "thin"), "no way to spread files"),
    ] {
        fs::write(&path, text).unwrap();
        refused_harmlessly(&space, why);
        space.try_check(&[]).refused(why);
    }
    fs::write(&path, good).unwrap();
    space.up();
    space.down_and_check();
}

#[test]
fn a_mount_point_that_is_not_free_is_refused() {
    let space = unused();
    fs::create_dir(&space.mount).unwrap();
    fs::write(space.mount.join("precious"), "data").unwrap();
    refused_harmlessly(&space, "is not empty");
    fs::remove_dir_all(&space.mount).unwrap();
    fs::write(&space.mount, "a file").unwrap();
    refused_harmlessly(&space, "is not a directory");
    fs::remove_file(&space.mount).unwrap();
    space.up();
    space.down_and_check();
}

#[test]
fn a_dead_mount_is_cleared_by_the_next_up_or_down() {
    let space = used();
    let inside = File::open(&space.mount).unwrap();
    for round in 0..3 {
        space.kill();
        assert!(is_mounted(&space.mount));
        // Never from the kernel's memory, as attributes may be.
        let errno = rustix::fs::statfs(&space.mount).unwrap_err();
        assert!(matches!(errno.raw_os_error(), libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED), "{errno}");
        // Commands say what to do instead of hanging.
        for command in ["status", "du", "stat", "limit"] {
            ullage([command.as_ref(), space.mount.as_os_str()]).refused("is not up");
        }
        ullage(["stat".as_ref(), space.path("file").as_os_str()]).refused("is not up");
        if round == 1 {
            ullage(["down".as_ref(), space.path("file").as_os_str()]).refused("is no mount point");
            ullage(["down".as_ref(), space.mount.as_os_str()]).ok();
            assert!(!is_mounted(&space.mount), "down takes a dead mount away");
            ullage(["down".as_ref(), space.mount.as_os_str()]).refused("is not up");
        }
        space.up();
        assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    }
    drop(inside);
    space.down_and_check();
}

/// What is in the kernel's memory of a dead mount looks like a directory with files in it.
#[test]
fn a_dead_mount_whose_attributes_and_listing_are_cached_is_cleared() {
    let space = used();
    for _ in 0..3 {
        let listed = || fs::read_dir(&space.mount).unwrap().count();
        // The first listing is remembered, the next ones are served from that.
        assert_eq!([listed(), listed(), listed()], [1; 3]);
        assert!(fs::metadata(&space.mount).unwrap().is_dir());
        space.kill();
        space.up();
        assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    }
    space.down_and_check();
}

/// Regression: how limited files can be written is tried in the mount, and until that was known it was in use.
#[test]
fn a_space_with_limits_is_taken_down_as_soon_as_it_is_up() {
    let space = unused();
    space.up();
    let limited = space.path("limited");
    fs::create_dir(&limited).unwrap();
    ullage(["limit".as_ref(), limited.as_os_str(), "1G".as_ref()]).ok();
    space.down();
    for wait in 0..12 {
        space.up();
        std::thread::sleep(Duration::from_millis(3 * wait));
        unmount(&space.mount);
    }
    space.up();
    space.down_and_check();
}

#[test]
fn down_of_a_busy_space_is_refused_and_lazy_takes_it_away() {
    let space = unused();
    space.up();
    let file = File::create(space.path("file")).unwrap();
    let pid = space.pid();
    space.try_down().refused(&format!("`ullage down --lazy {}`", space.mount.display()));
    assert!(is_mounted(&space.mount));
    let status = |more: &[&str]| {
        let words = ["status".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
        ullage(words.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    assert!(status(&[]).ok().starts_with("mounted at"));
    assert_eq!(status(&["--json"]).json()["detached"], false);
    fs::write(space.path("other"), "it still works").unwrap();
    let lazily = || ullage(["down".as_ref(), space.mount.as_os_str(), "--lazy".as_ref(), "--json".as_ref()]).json();
    // Regression: it said that it was down.
    let said = lazily();
    assert_eq!((&said["down"], &said["detached"], &said["pid"]), (&false.into(), &true.into(), &pid.into()), "{said}");
    assert!(!is_mounted(&space.mount));
    let [shown, json] = [status(&[]).ok(), status(&["--json"]).json().to_string()];
    assert!(shown.starts_with("taken away") && !shown.contains("mounted at"), "{shown}");
    assert!(json.contains(r#""detached":true"#) && json.contains(r#""still_mounted_at":[]"#), "{json}");
    std::os::unix::fs::FileExt::write_all_at(&file, b"last", 0).unwrap();
    assert!(process::runs(pid));
    drop(file);
    process::wait(pid);
    space.check();
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"last");
    assert_eq!(fs::read(space.path("other")).unwrap(), b"it still works");
    assert_eq!(lazily()["down"], true);
    space.check();
}

#[test]
fn names_of_any_bytes_and_of_full_length_work_and_longer_ones_are_refused() {
    let space = unused();
    space.up();
    let odd: Vec<Vec<u8>> = vec![
        vec![b'n'; 255],
        vec![0xFF; 255],
        b"\xC3\x28 not utf-8 \x80".to_vec(),
        (1..=255).filter(|byte| *byte != b'/').collect(),
        b"\n".to_vec(),
        b"-rf".to_vec(),
        "\u{1F9CA}".repeat(63).into_bytes(),
    ];
    for name in &odd {
        let path = space.path(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        ullage(["stat".as_ref(), "--".as_ref(), path.as_os_str()]).ok();
        ullage(["stat".as_ref(), "--json".as_ref(), path.as_os_str()]).json();
    }
    let error = fs::write(space.path("n".repeat(256)), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    space.down();
    space.up();
    for name in &odd {
        assert_eq!(fs::read(space.path(OsStr::from_bytes(name))).unwrap(), *name);
    }
    let mut listed: Vec<Vec<u8>> =
        fs::read_dir(&space.mount).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
    let mut odd = odd;
    odd.sort();
    listed.sort();
    assert!(listed == odd);
    space.down_and_check();
}

/// Flips bytes in the middle of a file, where there is something.
fn flip(path: &Path) {
    let mut content = fs::read(path).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    for at in [end / 4, end / 2, end * 3 / 4] {
        content[at] ^= 0x5A;
    }
    fs::write(path, content).unwrap();
}

#[test]
fn a_damaged_catalog_is_never_served_as_if_it_were_whole() {
    let space = unused();
    space.up();
    for n in 0..300 {
        fs::write(space.path(format!("file-{n}")), format!("content {n}")).unwrap();
    }
    space.down();
    let good = space.ground.join("good");
    program("cp", ["-a".as_ref(), space.state.as_os_str(), good.as_os_str()]).ok();
    let (mut refused, mut served) = (0, 0);
    let files: Vec<_> = listing(&space.state.join("catalog")).into_iter().filter(|(_, length)| *length > 0).collect();
    for (path, _) in files {
        if path.ends_with("lock") {
            continue;
        }
        flip(&path);
        let outcome = space.try_up();
        if outcome.code == Some(0) {
            served += 1;
            for n in 0..300 {
                let name = space.path(format!("file-{n}"));
                // An error is honest; other bytes, or a file that is simply gone, are not.
                match fs::read(&name) {
                    Ok(content) => assert_eq!(content, format!("content {n}").into_bytes(), "{}", path.display()),
                    Err(error) => assert_ne!(
                        error.kind(),
                        std::io::ErrorKind::NotFound,
                        "{} is damaged, and file-{n} is gone without a word",
                        path.display()
                    ),
                }
            }
            space.down();
        } else {
            let said = outcome.err.clone();
            outcome.refused("catalog");
            assert!(["ullage rebuild", "newer"].iter().any(|what| said.contains(what)), "{}: {said}", path.display());
            refused += 1;
        }
        fs::remove_dir_all(&space.state).unwrap();
        program("cp", ["-a".as_ref(), good.as_os_str(), space.state.as_os_str()]).ok();
        // Nothing was made meanwhile: it is not too old.
        let _ = fs::remove_file(space.pool().join(".ullage-turns"));
    }
    eprintln!("{refused} damaged files refused, {served} served with every file right");
    assert!(refused > 0, "no damage was noticed");
    space.up();
    space.down_and_check();
}

#[test]
fn a_space_from_a_newer_version_is_refused() {
    let space = unused();
    space.up();
    space.down();
    for (name, old, new) in [("catalog/format", "version 1", "version 99"), ("space.toml", "format = 1", "format = 99")]
    {
        let path = space.state.join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{text}");
        // What the newer one has more of is not what is wrong.
        fs::write(&path, text.replace(old, new).replace("format = 99", "format = 99\nof_later = true")).unwrap();
        refused_harmlessly(&space, "newer than the 1");
        fs::write(&path, text).unwrap();
    }
    let marker = space.pool().join(".ullage-pool.toml");
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("format = 1", "format = 99")).unwrap();
    refused_harmlessly(&space, "use a newer version");
    fs::write(&marker, "nonsense").unwrap();
    refused_harmlessly(&space, "is damaged");
    fs::write(&marker, text).unwrap();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, "nonsense").unwrap();
    assert_eq!(space.try_up().code, Some(1));
    fs::write(&settings, text).unwrap();
    space.up();
    space.down_and_check();
}

#[test]
fn termination_by_signal_is_clean() {
    let space = unused();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        space.up();
        fs::write(space.path("file"), signal.as_raw().to_string()).unwrap();
        let pid = space.pid();
        process::signal(pid, signal);
        process::wait(pid);
        assert!(!is_mounted(&space.mount));
        space.check();
        space.up();
        assert_eq!(fs::read_to_string(space.path("file")).unwrap(), signal.as_raw().to_string());
        std::thread::sleep(Duration::from_millis(10));
        space.down_and_check();
    }
}
