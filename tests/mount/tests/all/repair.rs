//! `ullage check --repair` on real spaces with damage made on purpose. Every record of every kind, every byte: in the
//! catalog's own tests; here, what a user sees.

use crate::last_name::lose_backing_files;
use crate::unborn::is_in_step;
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::edit;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// Some files, all closed and on disk, and the space down.
fn filled() -> Space {
    let mut space = Space::new();
    space.flags = vec!["--linger-ms".into(), "20".into()];
    fs::create_dir_all(space.path("a/b")).unwrap();
    for n in 0..4 {
        fs::write(space.path(format!("a/file-{n}")), format!("content {n}")).unwrap();
        chown(space.path(format!("a/file-{n}")), Some(1000 + n), Some(1000)).unwrap();
    }
    fs::hard_link(space.path("a/file-3"), space.path("a/b/link")).unwrap();
    space.down_and_check();
    space
}

fn look(space: &Space) {
    for n in 0..4 {
        let name = space.path(format!("a/file-{n}"));
        assert_eq!(fs::read_to_string(&name).unwrap(), format!("content {n}"));
        assert_eq!(name.metadata().unwrap().uid(), 1000 + n);
    }
    assert_eq!(space.path("a/b/link").metadata().unwrap().ino(), space.path("a/file-3").metadata().unwrap().ino());
    assert_eq!(space.path("a/file-3").metadata().unwrap().nlink(), 2);
}

#[track_caller]
fn findings(outcome: Outcome) -> Vec<String> {
    assert_eq!(outcome.code, Some(1), "{}{}", outcome.out, outcome.err);
    let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let found = report["findings"].as_array().unwrap();
    found.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_record_of_each_kind_deleted_is_found_and_comes_back() {
    let space = filled();
    for kind in *b"SNditun" {
        let (key, _) = edit::records(&space.state).into_iter().rfind(|(key, _)| key[0] == kind).unwrap();
        edit::set(&space.state, &key, None);
        let found = findings(space.try_check(&[]));
        assert!(!found.is_empty(), "kind {}", kind as char);
        let outcome = space.try_check(&["--repair"]);
        // Only an inode's record has its permission bits.
        assert_eq!(outcome.code, Some(i32::from(kind == b'i')), "kind {}: {}", kind as char, outcome.out);
        let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
        let repair = &report["repair"];
        let lost = repair["lost"].as_array().unwrap().len();
        assert_eq!(lost, usize::from(kind == b'i'), "kind {}: {repair}", kind as char);
        assert!(!repair["done"].as_array().unwrap().is_empty());
        assert!(std::path::Path::new(repair["saved"].as_str().unwrap()).join("format").exists());
        let again = space.try_check(&["--repair"]).json();
        assert!(again["repair"].is_null(), "a second repair finds something: {again}");
    }
    space.up();
    look(&space);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_file_without_record_and_name_comes_to_lost_and_found_with_its_owner() {
    let space = filled();
    let records = edit::records(&space.state);
    let (entry, value) = records.iter().find(|(key, _)| key.ends_with(b"file-2") && key[0] == b'd').unwrap();
    let id: Vec<u8> = value[..8].iter().rev().copied().collect();
    edit::set(&space.state, entry, None);
    edit::set(&space.state, &[b"i".as_slice(), &id[..]].concat(), None);
    assert!(findings(space.try_check(&[])).iter().any(|text| text.contains("no file is bound to")));
    space.try_check(&["--repair"]).ok();
    space.up();
    let names: Vec<_> = fs::read_dir(space.path("lost+found")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read_to_string(&names[0]).unwrap(), "content 2");
    let meta = names[0].metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1002, 1000, 0o600));
    assert!(!space.path("a/file-2").exists());
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn lost_data_is_said_and_the_rest_stays() {
    let space = filled();
    space.up();
    let backing = space.backing(&space.path("a/file-1"));
    space.down();
    fs::remove_file(&backing).unwrap();
    assert!(findings(space.try_check(&[])).iter().any(|text| text.contains("is missing")));
    // The catalog as it was is kept, and can be put back.
    let before = edit::records(&space.state);
    let outcome = space.try_check(&["--repair"]);
    assert_eq!(outcome.code, Some(1), "a loss is no success");
    let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let lost = report["repair"]["lost"].to_string();
    assert!(lost.contains("file-1") && lost.contains("its data with it"), "{lost}");
    space.check();
    space.up();
    assert!(!space.path("a/file-1").exists());
    assert_eq!(fs::read_to_string(space.path("a/file-0")).unwrap(), "content 0");
    space.down_and_check();
    let catalog = space.state.join("catalog");
    fs::remove_dir_all(&catalog).unwrap();
    fs::rename(report["repair"]["saved"].as_str().unwrap(), &catalog).unwrap();
    assert_eq!(edit::records(&space.state), before);
}

/// It said that nothing was lost, and a limit, an ACL or who may read a file was.
#[test]
fn what_only_one_record_says_is_told_to_be_lost() {
    let space = filled();
    space.up();
    let (file, dir) = (space.path("a/file-0"), space.path("a"));
    rustix::fs::setxattr(&file, "user.kept", b"1", XattrFlags::empty()).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "1G".as_ref()]).ok();
    ullage(["limit".as_ref(), space.mount.as_os_str(), "--user".as_ref(), "1001".as_ref(), "1G".as_ref()]).ok();
    let id = dir.metadata().unwrap().ino();
    space.down_and_check();
    let damage: [(u8, Option<&[u8]>, String); 3] = [
        (b'x', None, "extended attributes".into()),
        (b'l', Some(b"not one"), "the limit of user 1001 cannot be read and was dropped".into()),
        (b'l', Some(b"not one"), format!("the limit of directory {id} cannot be read and was dropped")),
    ];
    for (kind, value, lost) in damage {
        let (key, _) = edit::records(&space.state).into_iter().rfind(|(key, _)| key[0] == kind).unwrap();
        edit::set(&space.state, &key, value);
        findings(space.try_check(&[]));
        let outcome = space.try_check(&["--repair"]);
        assert!(outcome.code == Some(1) && outcome.out.contains(&lost), "{lost}: {}", outcome.out);
        space.check();
    }
}

/// It took what was damaged out of the catalog first, and mended that with the next commit: interrupted in between it left one that was started
/// without them. Numbers were given out again, files were nobody's.
#[test]
fn a_repair_that_was_interrupted_is_gone_on_with_before_anybody_uses_the_space() {
    let space = filled();
    for kind in *b"Ni" {
        let records = edit::records(&space.state);
        let (key, _) = records.iter().rfind(|(key, _)| key[0] == kind).unwrap();
        edit::set(&space.state, key, None);
        edit::set(&space.state, b"R", Some(b"what was lost"));
        space.try_up().refused("check --repair");
        assert!(findings(space.try_check(&[])).iter().any(|text| text.contains("a repair that is not over")));
        let outcome = space.try_check(&["--repair"]);
        assert!(outcome.code == Some(1) && outcome.out.contains("what was lost"), "{}", outcome.out);
        space.check();
    }
    space.up();
    look(&space);
    space.down_and_check();
    // Of a version that left no word.
    edit::set(&space.state, b"N", None);
    space.try_up().refused("the number counter is missing");
    space.try_check(&["--repair"]).ok();
    space.up();
    look(&space);
    space.down_and_check();
}

/// The pool is put back from a copy that was made without extended attributes.
pub fn without_attributes(pool: &Path) {
    let copy = pool.with_extension("copy");
    let keep = "--preserve=mode,ownership,timestamps,links";
    program("cp", ["-r".as_ref(), keep.as_ref(), pool.as_os_str(), copy.as_os_str()]).ok();
    fs::remove_dir_all(pool).unwrap();
    fs::rename(copy, pool).unwrap();
}

/// Everything was dropped: a file without its attribute was none.
#[test]
fn a_pool_that_was_copied_without_attributes_loses_nothing() {
    let space = filled();
    without_attributes(&space.pool());
    let found = findings(space.try_check(&[]));
    assert!(found.len() == 4 && found.iter().all(|text| text.contains("has lost its attribute")), "{found:?}");
    let report = space.try_check(&["--repair"]).json();
    assert_eq!(report["repair"]["lost"].as_array().unwrap().len(), 0, "{report}");
    space.check();
    space.up();
    look(&space);
    let backing = space.backing(&space.path("a/file-1"));
    program("getfattr", ["-n".as_ref(), "user.ullage".as_ref(), backing.as_os_str()]).ok();
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// A repair took a file whose attribute is damaged for lost, and the next start took it away.
#[test]
fn data_of_which_nobody_can_say_whose_it_is_is_named_and_stops_a_repair() {
    let space = filled();
    space.up();
    let backing = space.backing(&space.path("a/file-1"));
    space.down();
    let attribute = |words: &[&str]| {
        program("setfattr", words.iter().map(AsRef::as_ref).chain([backing.as_os_str()])).ok();
    };
    attribute(&["-n", "user.ullage", "-v", "damaged"]);
    let shown = backing.display().to_string();
    assert!(findings(space.try_check(&[])).iter().any(|text| text.contains(&shown) && text.contains("setfattr -x")));
    let before = edit::records(&space.state);
    space.try_check(&["--repair"]).refused("setfattr -x user.ullage");
    assert_eq!(edit::records(&space.state), before);
    attribute(&["-x", "user.ullage"]);
    // What is no backing file is nobody's business.
    fs::write(backing.with_file_name("notes.txt"), "of somebody").unwrap();
    // A copy beside the file is not taken for it.
    let copy = backing.parent().unwrap().parent().unwrap().join("copies");
    fs::create_dir(&copy).unwrap();
    fs::copy(&backing, copy.join(backing.file_name().unwrap())).unwrap();
    space.try_check(&["--repair"]).refused("has the number of another");
    fs::remove_dir_all(copy).unwrap();
    space.try_check(&["--repair"]).ok();
    space.up();
    look(&space);
    space.down_and_check();
}

/// Regression: the copy was 0755, its name could be guessed, and everybody could read the names and attributes of all files in it.
#[test]
fn the_copy_of_the_catalog_is_as_private_as_the_catalog() {
    let space = filled();
    let (key, _) = edit::records(&space.state).into_iter().rfind(|(key, _)| key[0] == b'd').unwrap();
    edit::set(&space.state, &key, None);
    let report = space.try_check(&["--repair"]).json();
    let saved = PathBuf::from(report["repair"]["saved"].as_str().unwrap());
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!(mode(&saved), 0o700);
    // Put back in its place by a copy that took no care, it is private from the next start on.
    let catalog = space.state.join("catalog");
    fs::set_permissions(&catalog, fs::Permissions::from_mode(0o755)).unwrap();
    space.up();
    assert_eq!(mode(&catalog), 0o700);
    space.down_and_check();
}

#[test]
fn a_space_that_is_up_is_not_repaired() {
    let space = Space::plain();
    ullage(["check".as_ref(), "--repair".as_ref(), space.mount.as_os_str()]).refused("is up");
}

/// A power cut may leave a file in the catalog whose backing file was never flushed: opening it failed for good.
#[test]
fn a_file_that_was_never_flushed_is_there_and_empty_after_the_power_went() {
    let space = Space::new();
    fs::write(space.path("flushed"), "kept").unwrap();
    fs::write(space.path("unflushed"), "gone").unwrap();
    let backing = space.backing(&space.path("unflushed"));
    space.sync();
    space.kill();
    fs::remove_file(backing).unwrap();
    space.up();
    assert_eq!(fs::read_to_string(space.path("unflushed")).unwrap(), "");
    assert_eq!(fs::read_to_string(space.path("flushed")).unwrap(), "kept");
    fs::write(space.path("unflushed"), "again").unwrap();
    assert_eq!(fs::read_to_string(space.path("unflushed")).unwrap(), "again");
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// ext4 without `filetype`, xfs with `ftype=0` and some of NFS say of no entry what it is: a repair saw no backing file, and dropped all.
#[test]
fn files_are_seen_where_directories_do_not_say_what_is_in_them() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-O", "^filetype"], "loop");
    let mut space = Space::on(ground, &disk);
    space.up();
    fs::create_dir(space.path("dir")).unwrap();
    (0..6).for_each(|n| fs::write(space.path(format!("dir/file-{n}")), format!("content {n}")).unwrap());
    space.down_and_check();
    // So that there is something to be mended.
    let records = edit::records(&space.state);
    let (key, _) = records.into_iter().rfind(|(key, _)| key[0] == b't').unwrap();
    edit::set(&space.state, &key, None);
    let report = space.try_check(&["--repair"]).json();
    assert_eq!(report["repair"]["lost"].as_array().unwrap().len(), 0, "{report}");
    space.up();
    fs::write(space.path("dir/file-6"), "content 6").unwrap();
    space.sync();
    space.kill();
    space.up();
    assert!(!space.log().contains("left alone"), "{}", space.log());
    (0..7).for_each(|n| {
        assert_eq!(fs::read_to_string(space.path(format!("dir/file-{n}"))).unwrap(), format!("content {n}"));
    });
    space.down_and_check();
    let state = space.ground.join("rebuilt");
    let arguments: [&std::ffi::OsStr; 6] = [
        "rebuild".as_ref(),
        space.mount.as_os_str(),
        "--state".as_ref(),
        state.as_os_str(),
        "--pool".as_ref(),
        space.pools[0].as_ref(),
    ];
    ullage(arguments).ok();
    space.state = state;
    space.up();
    assert_eq!(fs::read_to_string(space.path("dir/file-3")).unwrap(), "content 3");
    space.down_and_check();
}

#[test]
fn a_pool_without_one_of_its_files_is_repaired_when_they_are_given_up_only() {
    let space = filled();
    let away = space.ground.directory("away");
    let shape = fs::read_dir(space.pool()).unwrap().map(|entry| entry.unwrap().path());
    let shape = shape.into_iter().find(|path| path.file_name().is_some_and(|name| name == "2-512")).unwrap();
    program("mv", [&shape, &away]).ok();
    let refused = space.try_check(&["--repair"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains(&format!("`ullage check --repair --without main {}`", space.mount.display())),
        "{}",
        refused.err
    );
    program("mv", [&away.join("2-512"), &space.pool()]).ok();
    space.check();
    program("mv", [&shape, &away]).ok();
    let report = serde_json::from_str::<serde_json::Value>(&space.try_check(&["--repair", "--without", "main"]).out);
    assert_eq!(report.unwrap()["repair"]["lost"].as_array().unwrap().len(), 4);
    space.check();
}

/// Regression: the trees were taken to be in step, and showed names for good that the repair had dropped.
#[test]
fn plain_trees_show_what_a_repair_left() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 128);
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(",layout=mirror");
    space.up();
    fs::write(space.path("kept"), "kept").unwrap();
    symlink("kept", space.path("lost")).unwrap();
    let lost = space.path("lost").symlink_metadata().unwrap().ino();
    space.down_and_check();
    edit::set(&space.state, &[b"i".as_slice(), &lost.to_be_bytes()].concat(), None);
    let report: serde_json::Value = serde_json::from_str(&space.try_check(&["--repair"]).out).unwrap();
    assert!(report["repair"]["lost"][0].as_str().unwrap().contains(&format!("inode {lost} ")), "{report}");
    let tree = |name: &str| space.pool().join(name);
    assert!(tree("lost").is_symlink());
    space.up();
    eventually("the tree follows", Duration::from_secs(10), || !tree("lost").is_symlink());
    assert_eq!(fs::read_to_string(tree("kept")).unwrap(), "kept");
    space.down_and_check();
}

/// They were dropped, and the next start took them out of the tree too: there was the last name of their data.
#[test]
fn what_only_the_plain_tree_still_has_a_name_for_comes_back_by_a_repair() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 128);
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(",layout=mirror");
    space.up();
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    for name in ["one", "dir/sub/two", "removed"] {
        fs::write(space.path(name), name).unwrap();
    }
    fs::hard_link(space.path("one"), space.path("dir/again")).unwrap();
    space.down_and_check();
    lose_backing_files(&space);
    fs::remove_file(space.pool().join("removed")).unwrap();
    assert_eq!(findings(space.try_check(&[])).len(), 3);
    let report: serde_json::Value = serde_json::from_str(&space.try_check(&["--repair"]).out).unwrap();
    let lost = report["repair"]["lost"].as_array().unwrap();
    assert!(lost.len() == 1 && lost[0].as_str().unwrap().contains("'removed'"), "{report}");
    assert!(report["repair"]["done"].to_string().contains("the plain tree had it"), "{report}");
    space.check();
    space.up();
    for (name, content) in [("one", "one"), ("dir/again", "one"), ("dir/sub/two", "dir/sub/two")] {
        assert_eq!(fs::read_to_string(space.path(name)).unwrap(), content);
    }
    eventually("the tree is as it should be", Duration::from_secs(10), || is_in_step(&space));
    assert_eq!(fs::read_to_string(space.pool().join("dir/again")).unwrap(), "one");
    space.down_and_check();
}
