//! Paths that are not UTF-8, or hold what others take for a sign.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use ullage_mount_tests::binary;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{LIMIT, eventually, run, ullage};
use ullage_mount_tests::space::Space;

fn odd() -> &'static OsStr {
    OsStr::from_bytes(b"no-text-\xFF")
}

/// Regression: whoever may make a directory wrote to the terminal of who looked at it, and put lines into tables.
#[test]
fn names_reach_the_terminal_without_escape_sequences_and_lines_of_their_own() {
    let space = Space::plain();
    let dir = space.path(OsStr::from_bytes(b"a\n1.0M\x1b[2J\xFF"));
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "1G".as_ref()]).ok();
    for (command, lines) in [("limit", 2), ("du", 2), ("stat", 7)] {
        let said = ullage([command.as_ref(), dir.as_os_str()]).ok();
        assert!(said.contains(r"a\n1.0M\u{1b}[2J"), "{said:?}");
        assert_eq!(said.trim_end().lines().count(), lines, "{said:?}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    // Nor in errors.
    fs::remove_dir(&dir).unwrap();
    for command in ["limit", "du", "stat"] {
        let said = ullage([command.as_ref(), dir.as_os_str()]).err;
        assert!(said.contains(r"1.0M\u{1b}[2J") && !said.contains('\u{1b}'), "{said:?}");
        assert!(said.lines().skip(1).all(|line| line.starts_with(' ')), "{said:?}");
    }
    space.down_and_check();
}

/// Regression: `du`, `limit` and `stat` failed for everybody as long as anybody had anything mounted on such a path. Here in a namespace
/// of its own, so that no other test meets it.
#[test]
fn a_mount_on_a_path_that_is_no_text_is_in_nobodys_way() {
    let space = Space::plain();
    let place = space.ground.path().join(odd());
    fs::create_dir(&place).unwrap();
    for command in ["du", "limit", "stat"] {
        let mut beside = Command::new("unshare");
        beside.args(["-m", "sh", "-c", "mount -t tmpfs none \"$1\" && shift && exec \"$@\"", "sh"]);
        run(beside.arg(&place).arg(binary::path()).arg(command).arg(&space.mount)).ok();
    }
}

/// Regression: the answer could not be written, and who asked was told that the daemon had ended.
#[test]
fn names_that_are_no_text_are_shown_as_well_as_they_can_be() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(",layout=mirror");
    space.up();
    let (directory, file) = (space.path("directory"), space.path(odd()).join("file"));
    fs::create_dir(&directory).unwrap();
    ullage(["limit".as_ref(), directory.as_os_str(), "1G".as_ref()]).ok();
    fs::rename(directory, space.path(odd())).unwrap();
    let shown = "no-text-\u{FFFD}";
    assert!(ullage(["limit".as_ref(), space.mount.as_os_str()]).ok().contains(shown));
    let limits = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert!(limits["limits"].to_string().contains(shown), "{limits}");
    fs::write(&file, "content").unwrap();
    let backing = || space.stat(&file)["backing"].as_str().unwrap().to_owned();
    eventually("the file is in the plain tree", LIMIT, || backing().contains(shown));
    space.down_and_check();
}

/// Regression: the settings could not be written, after the pool had been given to a space that was never there.
#[test]
fn no_space_is_made_at_a_path_that_is_no_text() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    let (odd, pool) = (space.ground.path().join(odd()), space.pool());
    let up = |mount: &Path, state: &Path, pool: &Path, at: &Path| {
        let pool = format!("--pool=main={}", pool.display());
        run(Command::new(binary::path()).current_dir(at).arg("up").arg(mount).arg("--state").arg(state).arg(pool))
    };
    let untouched = || assert_eq!(fs::read_dir(&pool).unwrap().count(), 0);
    up(&odd, &space.state, &pool, Path::new("/")).refused("mount point");
    up(&space.mount, &odd, &pool, Path::new("/")).refused("state directory");
    assert!(!odd.exists() && !space.mount.exists() && !space.state.exists());
    untouched();
    fs::create_dir_all(odd.join("pool")).unwrap();
    up(&space.mount, &space.state, Path::new("pool"), &odd).refused("not UTF-8");
    assert_eq!(fs::read_dir(odd.join("pool")).unwrap().count(), 0);
    // The pool was not given to anybody.
    space.up();
    ullage(["down".as_ref(), space.mount.as_os_str()]).ok();
    up(&odd, &space.state, &pool, Path::new("/")).refused("mount point");
    space.up();
    space.down_and_check();
}

/// Regression: the helper of ordinary users takes commas for its own, so the mount says another source, and it was not found.
#[test]
fn a_state_directory_with_a_comma_is_found_by_the_mount_point() {
    let ground = Ground::new();
    let (disk, pool) = (ground.directory("disk,of,three"), ground.directory("pool"));
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={}", pool.display())];
    space.flags = vec!["--transport".into(), "fuser".into()];
    space.up();
    fs::create_dir(space.path("directory")).unwrap();
    for command in ["du", "stat", "limit"] {
        ullage([command.as_ref(), space.path("directory").as_os_str()]).ok();
    }
    space.down_and_check();
}

/// Regression: what ran in the background was given such a name as a word of its own, took it for a flag, and said so with a text about
/// flags that nobody had written.
#[test]
fn a_pool_whose_name_begins_with_a_dash_is_one_like_others() {
    let ground = Ground::new();
    let (disk, more) = (ground.directory("disk"), ground.directory("more"));
    let space = Space::on(ground, &disk);
    let up = |flags: &[String]| {
        let mut words = vec!["up".into(), space.mount.clone(), "--state".into(), space.state.clone()];
        words.extend(flags.iter().map(Into::into));
        ullage(words).ok();
    };
    up(&[format!("--pool=-x={}", space.pool().display()), format!("--pool=--more={}", more.display())]);
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    up(&["--without=--more".to_owned()]);
    space.down();
    up(&[]);
    space.down_and_check();
}
