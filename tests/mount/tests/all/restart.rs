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
