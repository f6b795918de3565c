//! Starts that follow an end at once, or come in twos.

use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// Regression: as `systemctl restart` does it. The daemon still answered while it wrote, was taken for one that serves, and `up` was
/// refused; a moment later the catalog was in use.
#[test]
fn a_start_right_after_umount_waits_for_the_end() {
    let space = Space::plain();
    for round in 0..6 {
        let pid = space.pid();
        fs::write(space.path("file"), format!("round {round}")).unwrap();
        unmount(&space.mount);
        space.up();
        assert_ne!(space.pid(), pid);
        assert_eq!(fs::read_to_string(space.path("file")).unwrap(), format!("round {round}"));
    }
    space.down_and_check();
}

/// The mount is gone from the tree, and whoever had it open goes on for a while.
#[test]
fn a_start_waits_for_the_last_user_of_a_mount_that_was_taken_away() {
    let space = Space::plain();
    let file = File::create(space.path("file")).unwrap();
    ullage(["down".as_ref(), space.mount.as_os_str(), "--lazy".as_ref()]).ok();
    let last = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        file.write_all_at(b"last", 0).unwrap();
    });
    space.up();
    last.join().unwrap();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"last");
    space.down_and_check();
}

/// Regression: it had read the settings before the pool left with the end it waited for, and was refused since there was no such pool.
#[test]
fn a_start_that_waits_for_an_end_knows_of_the_pool_that_left_with_it() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.add_beside();
    space.up();
    (0..4).for_each(|n| fs::write(space.path(format!("file-{n}")), "content").unwrap());
    space.pool_command("remove", &["beside"]).ok();
    let file = File::create(space.path("last")).unwrap();
    ullage(["down".as_ref(), space.mount.as_os_str(), "--lazy".as_ref()]).ok();
    let last = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        drop(file);
    });
    space.up();
    last.join().unwrap();
    let settings = fs::read_to_string(space.state.join("space.toml")).unwrap();
    assert!(!settings.contains("\"beside\""), "{settings}");
    (0..4).for_each(|n| assert_eq!(fs::read(space.path(format!("file-{n}"))).unwrap(), b"content"));
    space.down_and_check();
}

/// Regression: what `pool add` wrote while it had the catalog was written over by a start that had read the settings before.
#[test]
fn a_pool_that_comes_while_a_start_waits_for_the_catalog_stays_in_the_space() {
    let space = Space::plain();
    space.down();
    let (settings, place) = (space.state.join("space.toml"), space.pool().with_file_name("more"));
    fs::create_dir(&place).unwrap();
    // As `pool add` holds it.
    let lock = File::open(space.state.join("catalog/lock")).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let up = scope.spawn(|| space.try_up());
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!up.is_finished(), "it did not wait: nothing was tested");
        let text = fs::read_to_string(&settings).unwrap();
        let more = format!("\n[[pool]]\nname = \"more\"\nid = 1\npath = \"{}\"\n", place.display());
        fs::write(&settings, text + &more).unwrap();
        drop(lock);
        up.join().unwrap().ok();
    });
    let listed = space.pool_command("list", &["--json"]).json();
    assert_eq!(listed["pools"].as_array().unwrap().len(), 2, "{listed}");
    assert!(fs::read_to_string(&settings).unwrap().contains("\"more\""));
    space.down_and_check();
}

/// Regression: the one that came second to the catalog removed the mount point on which the first was about to mount, and said that
/// the catalog was in use.
#[test]
fn of_two_starts_at_one_time_one_succeeds_and_the_other_says_that_it_is_up() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    for _ in 0..5 {
        let both = std::thread::scope(|scope| {
            let ups = [(); 2].map(|()| scope.spawn(|| space.try_up()));
            ups.map(|up| up.join().unwrap())
        });
        let (done, refused): (Vec<_>, Vec<_>) = both.into_iter().partition(|outcome| outcome.code == Some(0));
        assert_eq!(done.len(), 1, "{done:?} {refused:?}");
        for outcome in refused {
            outcome.refused("is up already");
        }
        assert!(is_mounted(&space.mount));
        space.down_and_check();
        fs::remove_dir(&space.mount).unwrap();
    }
}

/// The kernel throws away what it had still to say of them: they stayed until the next start, which spoke of an unclean end.
#[test]
fn what_was_removed_right_before_the_end_is_gone_with_it() {
    let space = Space::plain();
    for round in 0..20 {
        let dir = space.path(format!("dir-{round}"));
        fs::create_dir(&dir).unwrap();
        for n in 0..200 {
            fs::write(dir.join(n.to_string()), [7; 4096]).unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
        // By ourselves: until a program had started, all would have been said.
        let unmount = || rustix::mount::unmount(&space.mount, UnmountFlags::empty()).is_ok();
        eventually("it is unmounted", Duration::from_secs(20), unmount);
        space.up();
        assert!(!space.log().contains("unclean"), "round {round}: {}", space.log());
    }
    space.down_and_check();
}

/// Its mount point was dead: what comes after the mount could not be made, and nobody took that away.
#[test]
fn a_start_that_fails_after_the_mount_leaves_none() {
    for transport in ["device", "fuser"] {
        let mut space = Space::plain();
        space.down();
        space.flags = vec!["--transport".into(), transport.into()];
        // In the place of the socket there is something that cannot be removed.
        let blocked = space.state.join("control.sock");
        fs::create_dir_all(blocked.join("file")).unwrap();
        let refused = space.try_up();
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(!is_mounted(&space.mount), "{transport}");
        fs::remove_dir_all(&blocked).unwrap();
        space.up();
        space.down_and_check();
    }
}
