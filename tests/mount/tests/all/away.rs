//! What is unmounted at the end of a space: its own mount, wherever that is, and nothing else.

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

const SOON: Duration = Duration::from_secs(10);

fn down(space: &Space, point: &Path, more: &[&str]) -> Outcome {
    let own = ["down".as_ref(), point.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    ullage(own.into_iter().chain(more.iter().map(AsRef::as_ref)))
}

fn mount_over(point: &Path) -> u64 {
    program("mount", ["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), point.as_os_str()]).ok();
    point.metadata().unwrap().dev()
}

/// Whoever asked waited for two minutes, and was told that the daemon was still writing.
#[test]
fn what_is_mounted_over_a_space_is_not_unmounted_instead() {
    let space = Space::plain();
    let pid = space.pid();
    let over = mount_over(&space.mount);
    for more in [&[][..], &["--lazy"]] {
        down(&space, &space.mount, more).refused("is mounted over it");
    }
    process::signal(pid, Signal::TERM);
    eventually("the signal is answered", SOON, || space.log().contains("is mounted over it"));
    assert_eq!(space.mount.metadata().unwrap().dev(), over);
    unmount(&space.mount);
    fs::write(space.path("file"), "it still works").unwrap();
    space.down_and_check();
}

/// It was said not to be up, and that `ullage up` would start it, which says that it is up already.
#[test]
fn who_asks_of_a_space_that_something_is_mounted_over_is_told_so() {
    let mut space = Space::plain();
    mount_over(&space.mount);
    space.ground.will_unmount(&space.mount);
    fs::create_dir(space.path("elsewhere")).unwrap();
    for path in [space.mount.clone(), space.path("elsewhere")] {
        for command in ["limit", "du", "stat"] {
            let told = ullage([command.as_ref(), path.as_os_str()]);
            told.refused(&format!("(tmpfs) is mounted over the space at {}", space.mount.display()));
        }
    }
    unmount(&space.mount);
    ullage(["du".as_ref(), space.mount.as_os_str()]).ok();
    space.down_and_check();
}

/// It was said not to be up, and that `ullage up` would start it, which waits for its end.
#[test]
fn who_asks_of_a_space_that_was_taken_away_and_is_used_is_told_so() {
    let space = Space::plain();
    let user = File::create(space.path("file")).unwrap();
    down(&space, &space.mount, &["--lazy"]).ok();
    for command in ["limit", "du"] {
        ullage([command.as_ref(), space.mount.as_os_str()]).refused("is up, but not to be seen there");
    }
    drop(user);
    space.up();
    space.down_and_check();
}

/// Regression: the space was found by its path, though the path led elsewhere, and whatever of it has the same number got the limit.
#[test]
fn what_is_mounted_over_a_directory_above_a_space_is_not_taken_for_the_space() {
    let mut space = Space::plain();
    space.down();
    let above = space.ground.directory("above").canonicalize().unwrap();
    space.mount = above.join("mnt");
    space.limit(Duration::from_secs(60));
    space.up();
    fs::create_dir(space.path("directory")).unwrap();
    mount_over(&above);
    space.ground.will_unmount(&above);
    let elsewhere = space.path("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    for words in [&["limit"][..], &["du"], &["stat"]] {
        ullage(words.iter().map(AsRef::as_ref).chain([elsewhere.as_os_str()])).refused("is not in a mounted space");
    }
    ullage(["limit".as_ref(), elsewhere.as_os_str(), "1M".as_ref()]).refused("is not in a mounted space");
    ullage(["down".as_ref(), space.mount.as_os_str()]).refused("there is no space at");
    down(&space, &space.mount, &[]).refused("is mounted over it");
    unmount(&above);
    let limits = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert!(!limits.to_string().contains(&(1 << 20).to_string()), "{limits}");
    fs::write(space.path("directory/file"), "it still works").unwrap();
    space.down_and_check();
}

/// Regression: the space itself was taken down, which had not been named; and whoever asked then waited for two minutes.
#[test]
fn who_names_a_bind_mount_is_told_where_the_space_is_mounted() {
    let mut space = Space::plain();
    fs::create_dir(space.path("directory")).unwrap();
    for part in ["directory", ""] {
        let bound = space.ground.directory("bound").canonicalize().unwrap();
        program("mount", ["--bind".as_ref(), space.path(part).as_os_str(), bound.as_os_str()]).ok();
        space.ground.will_unmount(&bound);
        let at = format!("mounted at {}, not at {}", space.mount.display(), bound.display());
        for more in [&[][..], &["--lazy"]] {
            down(&space, &bound, more).refused(&at);
        }
        ullage(["down".as_ref(), bound.as_os_str()]).refused(&at);
        assert!(is_mounted(&space.mount) && is_mounted(&bound));
        // Who names the space itself is told what holds it.
        down(&space, &space.mount, &[]).refused(&format!("still mounted at {}", bound.display()));
        assert!(!is_mounted(&space.mount));
        let pid = pid_of(&space);
        unmount(&bound);
        process::wait(pid);
        space.check();
        space.up();
    }
    space.down_and_check();
}

/// Regression: nothing was mounted at its place, and it was said to be mounted there; and `up` said that files were open.
#[test]
fn a_space_that_is_left_in_a_bind_mount_is_said_to_be_there() {
    let mut space = Space::plain();
    fs::create_dir(space.path("directory")).unwrap();
    let bound = space.ground.directory("bound").canonicalize().unwrap();
    program("mount", ["--bind".as_ref(), space.path("directory").as_os_str(), bound.as_os_str()]).ok();
    space.ground.will_unmount(&bound);
    let pid = space.pid();
    unmount(&space.mount);
    let status = |more: &[&str]| {
        let own = ["status".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
        ullage(own.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let json = status(&["--json"]).json();
    let places = serde_json::json!([bound.to_str().unwrap()]);
    assert_eq!((&json["detached"], &json["still_mounted_at"]), (&true.into(), &places), "{json}");
    let said = status(&[]).ok();
    assert!(said.contains("taken away") && said.contains(&format!("still mounted at {}", bound.display())), "{said}");
    space
        .try_up()
        .refused(&format!("still mounted at {0}, and its daemon ends with that: `umount {0}`", bound.display()));
    unmount(&bound);
    process::wait(pid);
    space.up();
    space.down_and_check();
}

/// Regression: `down` waited for half a minute and more, and nobody knew for what.
#[test]
fn who_waits_for_a_mount_in_another_namespace_is_told_so() {
    let space = Space::plain();
    // A copy of this mount alone: a whole namespace would hold those of all tests.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let beside = open_tree(CWD, &space.mount, flags).unwrap();
    let waits = std::thread::scope(|scope| {
        let down = scope.spawn(|| space.try_down());
        std::thread::sleep(Duration::from_secs(8));
        drop(beside);
        down.join().unwrap()
    });
    assert_eq!(waits.code, Some(0), "{}", waits.err);
    assert_eq!(waits.err.lines().count(), 1, "{}", waits.err);
    assert!(waits.err.contains("in another mount namespace"), "{}", waits.err);
    space.check();
}

/// Regression: all but one of those who took a space down at the same time, or while a signal did, were told that it is in use, or that
/// its daemon had ended before it answered; as where a service is stopped by an administrator and by the end of the machine.
#[test]
fn who_takes_a_space_down_beside_others_waits_for_its_end_too() {
    let space = Space::plain();
    for signal in [false, true, false, true] {
        let pid = space.pid();
        fs::write(space.path("file"), "there").unwrap();
        if signal {
            process::signal(pid, Signal::TERM);
        }
        std::thread::scope(|scope| {
            let downs: Vec<_> = (0..4).map(|_| scope.spawn(|| down(&space, &space.mount, &[]))).collect();
            for down in downs.into_iter().map(|down| down.join().unwrap()) {
                // Some come when it is down already.
                assert!(down.code == Some(0) || down.err.contains("is not up; start it"), "{}", down.err);
                assert!(down.code != Some(0) || !process::runs(pid));
            }
        });
        space.up();
    }
    space.down_and_check();
}

/// The daemon's process, where the space's own mount point does not lead to it.
fn pid_of(space: &Space) -> u32 {
    let own = ["status".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    ullage(own.into_iter().chain(["--json".as_ref()])).json()["pid"].as_u64().unwrap() as u32
}

/// Regression: what only shares the state was unmounted, or called up.
#[test]
fn a_space_that_is_up_elsewhere_is_not_taken_for_one_that_is_up_here() {
    let mut space = Space::plain();
    space.down();
    let usual = space.mount.clone();
    space.mount = space.ground.path().canonicalize().unwrap().join("elsewhere");
    space.limit(Duration::from_secs(60));
    space.up();
    let at = space.mount.display().to_string();
    ullage(["up".as_ref(), usual.as_os_str()]).refused(&format!("is up already, at {at};"));
    ullage(["down".as_ref(), usual.as_os_str()]).refused(&format!("mounted at {at}, not at"));
    down(&space, &usual, &[]).refused(&format!("mounted at {at}, not at"));
    space.down_and_check();
}

/// Regression: it was said to be still mounted at the place that had been left dead, and its end was not waited for.
#[test]
fn a_space_that_left_a_dead_mount_elsewhere_goes_down_as_any() {
    let mut space = Space::plain();
    space.kill();
    let dead = space.mount.clone();
    space.ground.will_unmount(&dead);
    space.mount = space.ground.path().canonicalize().unwrap().join("elsewhere");
    space.up();
    space.down_and_check();
}

#[test]
fn what_took_the_place_of_a_space_that_went_lazily_is_not_unmounted() {
    let space = Space::plain();
    let file = File::create(space.path("file")).unwrap();
    let pid = space.pid();
    down(&space, &space.mount, &["--lazy"]).ok();
    let over = mount_over(&space.mount);
    process::signal(pid, Signal::TERM);
    eventually("the signal is answered", SOON, || space.log().contains("taken away"));
    for more in [&[][..], &["--lazy"]] {
        down(&space, &space.mount, more).refused("ends with its last user");
    }
    assert_eq!(space.mount.metadata().unwrap().dev(), over);
    unmount(&space.mount);
    drop(file);
    process::wait(pid);
    space.check();
}

/// A space in a directory that is renamed then; gives back where it is mounted, and its daemon.
fn moved() -> (Space, PathBuf, u32) {
    let mut space = Space::plain();
    space.down();
    let (before, after) = (space.ground.directory("before"), space.ground.join("after"));
    space.mount = before.canonicalize().unwrap().join("mnt");
    space.limit(Duration::from_secs(60));
    space.up();
    let pid = space.pid();
    fs::rename(before, &after).unwrap();
    (space, after.canonicalize().unwrap().join("mnt"), pid)
}

/// Neither of these could end it.
#[test]
fn a_space_whose_parent_was_renamed_is_taken_down() {
    let (space, point, _) = moved();
    down(&space, &point, &[]).ok();
    assert!(!is_mounted(&point));
    space.check();

    let (space, point, pid) = moved();
    let file = File::create(point.join("file")).unwrap();
    process::signal(pid, Signal::TERM);
    eventually("the mount is gone", SOON, || !is_mounted(&point));
    drop(file);
    process::wait(pid);
    space.check();
}

/// Regression: whoever asked of a space that was down was answered for the one around it, or told to take that down.
#[test]
fn a_space_within_another_one_is_found_though_it_is_down() {
    let space = Space::plain();
    let pool = space.ground.directory("inner-pool");
    let inner = space.path("inner");
    let up =
        |more: &[&str]| ullage(["up".as_ref(), inner.as_os_str()].into_iter().chain(more.iter().map(AsRef::as_ref)));
    up(&["--pool", &format!("main={}", pool.display())]).ok();
    fs::write(inner.join("file"), "content").unwrap();
    down_at(&inner);
    for words in [&["status"][..], &["df"], &["pool", "list"]] {
        let said = ullage(words.iter().map(AsRef::as_ref).chain([inner.as_os_str()]));
        said.refused(&format!("{0} is not up; start it with `ullage up {0}`", inner.display()));
    }
    let found = ullage(["check".as_ref(), inner.as_os_str(), "--json".as_ref()]).json();
    assert_eq!((&found["files"], &found["findings"]), (&2.into(), &serde_json::json!([])), "{found}");
    // Where there is none the one around answers, but is not checked instead.
    fs::create_dir(space.path("other")).unwrap();
    ullage(["status".as_ref(), space.path("other").as_os_str()]).ok();
    ullage(["check".as_ref(), space.path("other").as_os_str()]).refused("there is no space at");
    space.down_and_check();
}

fn down_at(point: &Path) {
    eventually("it goes down", SOON, || ullage(["down".as_ref(), point.as_os_str()]).code == Some(0));
}
