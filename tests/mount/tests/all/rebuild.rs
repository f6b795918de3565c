//! `ullage rebuild`: what comes back from pools alone, and what does not.

use crate::turns::every_second;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// Two pools, taken in turns.
pub fn two() -> Space {
    let mut space = Space::new();
    space.down();
    fs::remove_dir_all(&space.state).unwrap();
    let disk = space.pool().parent().unwrap().to_owned();
    space.pools = ["a", "b"]
        .map(|name| {
            fs::create_dir(disk.join(name)).unwrap();
            format!("{name}={}", disk.join(name).display())
        })
        .to_vec();
    space.flags = ["--spread", "round-robin"].iter().map(Into::into).collect();
    space.up();
    space.flags.clear();
    space
}

pub fn pools(space: &Space) -> Vec<PathBuf> {
    space.pools.iter().map(|pool| pool.split_once('=').unwrap().1.into()).collect()
}

pub fn fill(space: &Space, from: u32, count: u32) {
    fs::create_dir_all(space.path("dir")).unwrap();
    for n in from..from + count {
        let name = space.path(format!("dir/file-{n}"));
        fs::write(&name, format!("content {n}")).unwrap();
        chown(&name, Some(2000 + n), Some(7)).unwrap();
    }
}

pub fn run(space: &mut Space, name: &str, given: &[String], flags: &[&str]) -> Outcome {
    let new = space.ground.join(name);
    let mut words = vec!["rebuild".into(), space.mount.clone(), "--state".into(), new.clone(), "--json".into()];
    for pool in given {
        words.extend(["--pool".into(), pool.into()]);
    }
    words.extend(flags.iter().map(PathBuf::from));
    let outcome = ullage(words);
    if new.join("space.toml").exists() {
        space.state = new;
    }
    outcome
}

/// What was rebuilt, but not from whole copies.
#[track_caller]
pub fn partly(outcome: Outcome) -> serde_json::Value {
    assert_eq!(outcome.code, Some(1), "{}{}", outcome.out, outcome.err);
    serde_json::from_str(&outcome.out).unwrap()
}

/// The state is lost; rebuilds it and brings the space up.
#[track_caller]
pub fn rebuild(space: &mut Space, flags: &[&str]) -> serde_json::Value {
    fs::remove_dir_all(&space.state).unwrap();
    let all = space.pools.clone();
    let report = run(space, "state-new", &all, flags).json();
    space.check();
    space.up();
    report
}

pub fn generations(pool: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(pool.join(".ullage-mirror"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    found.sort();
    found
}

pub fn expect(space: &Space, n: u32) {
    let name = space.path(format!("dir/file-{n}"));
    assert_eq!(fs::read_to_string(&name).unwrap(), format!("content {n}"), "{}", name.display());
    assert_eq!((name.metadata().unwrap().uid(), name.metadata().unwrap().gid()), (2000 + n, 7));
}

#[test]
fn after_a_clean_end_everything_comes_back() {
    let mut space = two();
    fill(&space, 0, 10);
    fs::hard_link(space.path("dir/file-1"), space.path("link")).unwrap();
    std::os::unix::fs::symlink("dir/file-2", space.path("symlink")).unwrap();
    fs::set_permissions(space.path("dir/file-3"), fs::Permissions::from_mode(0o4711)).unwrap();
    space.down_and_check();
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    for n in 0..10 {
        expect(&space, n);
    }
    assert_eq!(space.path("link").metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read_to_string(space.path("symlink")).unwrap(), "content 2");
    assert_eq!(space.path("dir/file-3").metadata().unwrap().mode() & 0o7777, 0o4711);
    space.compare_du(&space.mount);
    // It goes on: new files get new numbers, and the space is its own again.
    fill(&space, 10, 5);
    space.down_and_check();
    let all = space.pools.clone();
    let again = run(&mut space, "state-new", &all, &[]);
    again.refused("holds a space already");
}

/// It took files again: the next ones on a disk that was to be taken away.
#[test]
fn a_pool_that_was_being_emptied_is_so_after_a_rebuild() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down_and_check();
    // As a start has it copied that goes on with that.
    for pool in pools(&space) {
        let copy = pool.join(".ullage-mirror/space.toml");
        let text = fs::read_to_string(&copy).unwrap();
        fs::write(&copy, text.replace("name = \"b\"", "name = \"b\"\ndraining = true")).unwrap();
    }
    let all = space.pools.clone();
    let drains = |space: &Space| fs::read_to_string(space.state.join("space.toml")).unwrap().contains("draining");
    run(&mut space, "alone", &all[1..], &["--without", "a"]).ok();
    assert!(!drains(&space), "there is no other pool that takes files");
    run(&mut space, "both", &all, &[]).ok();
    assert!(drains(&space));
    space.up();
    fill(&space, 4, 4);
    (0..8).for_each(|n| expect(&space, n));
    (4..8).for_each(|n| assert!(space.backing(&space.path(format!("dir/file-{n}"))).starts_with(&pools(&space)[0])));
    space.down_and_check();
}

/// The copies of the settings said what was so at the start.
#[test]
fn a_pool_that_is_emptied_since_the_start_is_so_after_a_rebuild_and_one_that_stays_is_not() {
    let mut space = two();
    every_second(&space);
    fill(&space, 0, 4);
    let copy = pools(&space)[0].join(".ullage-mirror/space.toml");
    let says = |what: &str| fs::read_to_string(&copy).is_ok_and(|text| text.contains(what));
    let soon = Duration::from_secs(20);
    space.pool_command("remove", &["b", "--no-wait"]).ok();
    eventually("the copy says that it is being emptied", soon, || says("draining = true"));
    space.pool_command("remove", &["b", "--cancel"]).ok();
    eventually("the copy says that it stays", soon, || !says("draining"));
    space.pool_command("remove", &["b", "--no-wait"]).ok();
    let c = format!("c={}", pools(&space)[0].with_file_name("c").display());
    fs::create_dir(pools(&space)[0].with_file_name("c")).unwrap();
    space.pool_command("add", &[&c]).ok();
    space.pools.push(c);
    eventually("the copy names the new pool", soon, || says("\"c\""));
    assert!(says("draining = true"), "what has come after it took away that it is being emptied");
    space.kill();
    rebuild(&mut space, &[]);
    assert!(fs::read_to_string(space.state.join("space.toml")).unwrap().contains("draining"));
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// As the one before, without a turn of the mirror between.
#[test]
fn copies_of_the_settings_say_which_pool_is_emptied_when_that_is_changed_at_an_end_or_after_it() {
    let mut space = two();
    fill(&space, 0, 4);
    let says = |space: &Space, drains: bool| {
        for pool in pools(space) {
            let text = fs::read_to_string(pool.join(".ullage-mirror/space.toml")).unwrap();
            assert_eq!(text.contains("draining = true"), drains, "{}", pool.display());
        }
    };
    space.down();
    space.pool_command("remove", &["b"]).ok();
    says(&space, true);
    space.pool_command("remove", &["b", "--cancel"]).ok();
    says(&space, false);
    space.pool_command("remove", &["b"]).ok();
    space.up();
    space.pool_command("remove", &["b", "--cancel"]).ok();
    space.down();
    says(&space, false);
    rebuild(&mut space, &[]);
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// `rebuild` said that there is a space already, and `up` that there is none.
#[test]
fn a_rebuild_that_was_interrupted_at_its_end_is_done_again() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down_and_check();
    fs::remove_dir_all(&space.state).unwrap();
    let all = space.pools.clone();
    run(&mut space, "state-new", &all, &[]).ok();
    let (catalog, draft) = (space.state.join("catalog"), space.state.join("catalog.rebuilding"));
    // The last that it does.
    fs::rename(&catalog, &draft).unwrap();
    space.try_up().refused("the catalog of this space is gone");
    run(&mut space, "state-new", &all, &[]).ok();
    assert!(!draft.exists());
    space.check();
    space.up();
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
    run(&mut space, "state-new", &all, &[]).refused("holds a space already");
    // Where only a part of a space is there, nobody knows that a rebuild left it.
    fs::rename(&catalog, space.ground.join("elsewhere")).unwrap();
    run(&mut space, "state-new", &all, &[]).refused("holds a space already");
}

/// It was refused, though nothing is written there: so no disk that fails, which its file system makes read-only, could be rebuilt from.
#[test]
fn a_pool_whose_file_system_is_read_only_is_checked_and_rebuilt_from() {
    let mut ground = Ground::new();
    let (disk, small) = (ground.directory("disk"), ground.tmpfs("small", 64 << 10));
    let mut space = Space::on(ground, &disk);
    let pool = small.join("pool");
    fs::create_dir(&pool).unwrap();
    space.pools = vec![format!("main={}", pool.display())];
    space.up();
    fill(&space, 0, 3);
    space.down_and_check();
    let remount = |how: &str| program("mount", ["-o".as_ref(), how.as_ref(), small.as_os_str()]).ok();
    remount("remount,ro");
    space.check();
    space.try_up().refused("mounted read-only");
    let all = space.pools.clone();
    let report = run(&mut space, "state-new", &all, &[]).json();
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    remount("remount,rw");
    space.up();
    (0..3).for_each(|n| expect(&space, n));
    space.down_and_check();
}

#[test]
fn what_changed_after_the_snapshot_is_read_from_the_files_themselves() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down();
    let mirrors: Vec<PathBuf> = pools(&space).iter().map(|pool| pool.join(".ullage-mirror")).collect();
    let keep = space.ground.directory("keep");
    for (n, mirror) in mirrors.iter().enumerate() {
        program("cp", ["-a".as_ref(), mirror.as_os_str(), keep.join(n.to_string()).as_os_str()]).ok();
    }
    space.up();
    fill(&space, 4, 2);
    fs::remove_file(space.path("dir/file-0")).unwrap();
    fs::write(space.path("dir/file-1"), "content 1, and more").unwrap();
    space.down_and_check();
    for (n, mirror) in mirrors.iter().enumerate() {
        fs::remove_dir_all(mirror).unwrap();
        fs::rename(keep.join(n.to_string()), mirror).unwrap_or_else(|_| {
            program("cp", ["-a".as_ref(), keep.join(n.to_string()).as_os_str(), mirror.as_os_str()]).ok();
        });
    }
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&2.into(), &1.into()), "{report}");
    assert!(!space.path("dir/file-0").exists());
    assert_eq!(fs::read_to_string(space.path("dir/file-1")).unwrap(), "content 1, and more");
    for n in 2..4 {
        expect(&space, n);
    }
    let mut adopted: Vec<(u32, String)> = fs::read_dir(space.path("lost+found"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.metadata().unwrap().uid(), fs::read_to_string(&path).unwrap()))
        .collect();
    adopted.sort();
    assert_eq!(adopted, [(2004, "content 4".to_owned()), (2005, "content 5".to_owned())]);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn after_a_kill_names_come_from_the_mirror_and_newer_files_to_lost_and_found() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down();
    space.up();
    fill(&space, 4, 4);
    space.sync();
    space.kill();
    let report = rebuild(&mut space, &[]);
    for n in 0..4 {
        expect(&space, n);
    }
    let there = (4..8).filter(|n| space.path(format!("dir/file-{n}")).exists()).count();
    assert_eq!(report["adopted"].as_u64().unwrap() as usize + there, 4, "{report}");
    let adopted = fs::read_dir(space.path("lost+found")).into_iter().flatten().map(|entry| entry.unwrap().path());
    assert!(adopted.into_iter().all(|path| fs::read_to_string(path).unwrap().starts_with("content ")));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_pool_from_last_week_brings_its_old_files_and_the_other_pool_the_names() {
    let mut space = two();
    fill(&space, 0, 6);
    space.down();
    let old = pools(&space)[0].clone();
    let kept = old.with_extension("kept");
    program("cp", ["-a".as_ref(), old.as_os_str(), kept.as_os_str()]).ok();
    space.up();
    fill(&space, 6, 6);
    let in_old: Vec<u32> =
        (6..12).filter(|n| space.backing(&space.path(format!("dir/file-{n}"))).starts_with(&old)).collect();
    assert_eq!(in_old.len(), 3);
    space.down();
    fs::remove_dir_all(&old).unwrap();
    fs::rename(&kept, &old).unwrap();
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &3.into()), "{report}");
    for n in 0..6 {
        expect(&space, n);
    }
    for n in 6..12 {
        if in_old.contains(&n) {
            assert!(!space.path(format!("dir/file-{n}")).exists());
        } else {
            expect(&space, n);
        }
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_missing_pool_is_named_and_given_up_only_when_asked() {
    let mut space = two();
    fill(&space, 0, 6);
    let a = pools(&space)[0].clone();
    let in_a: Vec<u32> =
        (0..6).filter(|n| space.backing(&space.path(format!("dir/file-{n}"))).starts_with(&a)).collect();
    space.down();
    fs::remove_dir_all(&space.state).unwrap();
    let given = vec![space.pools[0].clone()];
    run(&mut space, "one", &given, &[]).refused("has a pool 'b' too");
    assert!(!space.ground.join("one").join("space.toml").exists());
    run(&mut space, "none", &["a=/nonexistent".to_owned()], &[]).refused("is none, or not mounted");
    let report = run(&mut space, "two", &given, &["--without", "b"]).json();
    assert_eq!(report["dropped"], 3, "{report}");
    space.check();
    space.up();
    for n in 0..6 {
        if in_a.contains(&n) {
            expect(&space, n);
        } else {
            assert!(!space.path(format!("dir/file-{n}")).exists());
        }
    }
    space.down_and_check();
}

#[test]
fn damaged_snapshots_are_passed_over_and_without_any_all_files_are_kept() {
    let mut space = two();
    fill(&space, 0, 6);
    space.down();
    space.up();
    fill(&space, 6, 2);
    space.down();
    let (both, all) = (pools(&space), space.pools.clone());
    let newest = generations(&both[0], ".snapshot").pop().unwrap();
    let spoil = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    // Whole in the other pool.
    spoil(&newest);
    fs::remove_dir_all(&space.state).unwrap();
    let report = partly(run(&mut space, "second", &all, &[]));
    space.check();
    space.up();
    assert_eq!((report["damaged"].as_array().unwrap().len(), &report["adopted"]), (1, &0.into()), "{report}");
    for n in 0..8 {
        expect(&space, n);
    }
    space.down();
    // In none: the one before.
    for pool in &both {
        spoil(&generations(pool, ".snapshot").pop().unwrap());
    }
    fs::remove_dir_all(&space.state).unwrap();
    let report = partly(run(&mut space, "third", &all, &[]));
    assert!(report["damaged"].as_array().unwrap().len() >= 2, "{report}");
    assert!(report["snapshot_age_seconds"].is_u64());
    space.check();
    // Nothing at all: only what the files say.
    fs::remove_dir_all(&space.state).unwrap();
    for pool in &both {
        fs::remove_dir_all(pool.join(".ullage-mirror")).unwrap();
    }
    let report = partly(run(&mut space, "fourth", &all, &[]));
    assert_eq!(
        (&report["adopted"], &report["snapshot_age_seconds"]),
        (&8.into(), &serde_json::Value::Null),
        "{report}"
    );
    space.check();
    space.up();
    let mut owners: Vec<u32> = fs::read_dir(space.path("lost+found"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let uid = path.metadata().unwrap().uid();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("content {}", uid - 2000));
            uid
        })
        .collect();
    owners.sort_unstable();
    assert_eq!(owners, (2000..2008).collect::<Vec<_>>());
    space.down_and_check();
}

/// Where one was missing all that followed was passed over as well, and the rebuild was said to be of whole copies.
#[test]
fn a_piece_of_the_copies_that_is_missing_is_told_of() {
    let mut space = Space::new();
    space.down();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap().replace("mirror_seconds = 30", "mirror_seconds = 1");
    fs::write(&settings, text).unwrap();
    space.up();
    let tails = || generations(&space.pool(), ".tail");
    for n in 0.. {
        fill(&space, n, 1);
        std::thread::sleep(Duration::from_millis(200));
        if tails().len() == 3 {
            break;
        }
        assert!(n < 100, "there are no tails");
    }
    fs::remove_file(&tails()[0]).unwrap();
    space.down_and_check();
    fs::remove_dir_all(&space.state).unwrap();
    let all = space.pools.clone();
    let report = partly(run(&mut space, "state-new", &all, &[]));
    assert!(report["damaged"][0].as_str().unwrap().contains("is whole in none of the pools"), "{report}");
    space.check();
}

pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    program("cp", ["-a".as_ref(), from.as_os_str(), to.as_os_str()]).ok();
}

/// A state that was put back from a copy of before took what was made since for nobody's and dropped it, and gave numbers out a second
/// time; so did the one that a rebuilt one had taken the place of.
#[test]
fn a_state_that_is_older_than_its_pools_is_refused_and_drops_nothing() {
    let mut space = two();
    fill(&space, 0, 4);
    let (kept, newer) = (space.ground.join("kept"), space.ground.join("newer"));
    // Of a space that is up, as a backup takes it.
    space.sync();
    copy(&space.state, &kept);
    fill(&space, 4, 8);
    space.down();
    let back = |space: &Space, state: &Path| {
        copy(&space.state, &newer);
        copy(state, &space.state);
        space.try_up().refused("older than the pool 'a'");
        assert!(space.try_check(&[]).out.contains("older than the pool"), "a check says that it is clean");
        assert_ne!(space.try_check(&["--repair"]).code, Some(0));
        copy(&newer, &space.state);
        space.up();
        assert_eq!(fs::read_dir(space.path("dir")).unwrap().count(), 12);
        assert_eq!(fs::read(space.path("dir/file-11")).unwrap(), b"content 11");
    };
    back(&space, &kept);
    space.down();
    // Of a space that is down.
    copy(&space.state, &kept);
    space.up();
    space.kill();
    back(&space, &kept);
    space.kill();
    // Killed, and what a rebuilt one takes the place of.
    let (old, all) = (space.state.clone(), space.pools.clone());
    run(&mut space, "state-new", &all, &[]).ok();
    space.up();
    space.down();
    let rebuilt = std::mem::replace(&mut space.state, old);
    space.try_up().refused("older than the pool");
    space.state = rebuilt;
    space.up();
    space.down_and_check();
    // Who means it goes on with the old one.
    copy(&kept, &space.state);
    for pool in pools(&space) {
        fs::remove_file(pool.join(".ullage-turns")).unwrap();
    }
    space.up();
    space.down_and_check();
}

/// Regression: a pool that had been added after the newest copy of the catalog could not be named, in whatever order, once another one had
/// been taken away.
#[test]
fn a_pool_that_no_copy_of_the_catalog_knows_is_rebuilt_from_too() {
    let mut space = two();
    let disk = pools(&space)[0].parent().unwrap().to_owned();
    let place = |name: &str| {
        fs::create_dir(disk.join(name)).unwrap();
        format!("{name}={}", disk.join(name).display())
    };
    let [third, fourth] = ["c", "d"].map(place);
    space.pool_command("add", &[&third]).ok();
    space.pool_command("remove", &["b"]).ok();
    space.down();
    space.pools = vec![space.pools[0].clone(), third];
    space.up();
    fill(&space, 0, 10);
    // Its end is the last that goes to the copies.
    space.down_and_check();
    let copies: Vec<PathBuf> = pools(&space).iter().map(|pool| pool.join(".ullage-mirror")).collect();
    for copy in &copies {
        program("cp", ["-a".as_ref(), copy.as_os_str(), copy.with_extension("before").as_os_str()]).ok();
    }
    space.up();
    space.pool_command("add", &[&fourth]).ok();
    space.pools.push(fourth);
    fill(&space, 10, 30);
    let last = pools(&space).pop().unwrap();
    space.down_and_check();
    for copy in &copies {
        fs::remove_dir_all(copy).unwrap();
        fs::rename(copy.with_extension("before"), copy).unwrap();
    }
    fs::remove_dir_all(last.join(".ullage-mirror")).unwrap();
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&30.into(), &0.into()), "{report}");
    (0..10).for_each(|n| expect(&space, n));
    let found =
        fs::read_dir(space.path("lost+found")).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let mut found: Vec<String> = found.collect();
    found.sort();
    let mut made: Vec<String> = (10..40).map(|n| format!("content {n}")).collect();
    made.sort();
    assert_eq!(found, made);
    let settings = fs::read_to_string(space.state.join("space.toml")).unwrap();
    assert!(["id = 0\n", "id = 2\n", "id = 3\n"].iter().all(|id| settings.contains(id)), "{settings}");
    space.down_and_check();
}

#[test]
fn a_pool_that_is_named_twice_is_not_rebuilt_from() {
    let mut space = two();
    fill(&space, 0, 2);
    space.down_and_check();
    let twice = [space.pools[0].clone(), space.pools[1].clone(), format!("c={}", pools(&space)[0].display())];
    run(&mut space, "state-new", &twice, &[]).refused("the pool 'c' was named twice");
}
