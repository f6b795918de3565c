//! Spaces as lines of fstab(5): mount(8) runs the program by its other name.

use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use ullage_mount_tests::binary;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// Where mount(8) looks for helpers, and nowhere else.
const HELPER: &str = "/usr/sbin/mount.fuse.ullage";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Takes the helper away again, if it was not there before.
struct Helper {
    ours: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Helper {
    fn install() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Self { ours: std::os::unix::fs::symlink(binary::path(), HELPER).is_ok(), _turn: turn }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(HELPER);
        }
    }
}

/// A table with one line for the space.
fn table(space: &Space, options: &str) -> PathBuf {
    let table = space.ground.path().join("fstab");
    let line = format!("{} {} fuse.ullage {options} 0 0\n", space.state.display(), space.mount.display());
    fs::write(&table, line).unwrap();
    table
}

fn mount(table: &Path, arguments: &[&str]) -> Outcome {
    let table = ["-T".as_ref(), table.as_os_str()];
    program("mount", table.into_iter().chain(arguments.iter().map(AsRef::as_ref)))
}

/// The options that a mount shows of itself.
fn shown(space: &Space) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = space.mount.to_str().unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place)).unwrap();
    line.split(' ').nth(3).unwrap().to_owned()
}

#[test]
fn a_line_in_fstab_is_mounted_remounted_and_unmounted() {
    let _helper = Helper::install();
    let space = Space::plain();
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    let place = space.mount.to_str().unwrap();
    let table = table(&space, "ro,nosuid,nofail,x-test.of=this,transport=device");
    mount(&table, &[place]).ok();
    assert!(is_mounted(&space.mount));
    let pid = space.pid();
    assert!(shown(&space).starts_with("ro,nosuid,relatime"), "{}", shown(&space));
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    let refused = fs::write(space.path("other"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));

    // What is mounted stays as it is.
    mount(&table, &["-a"]).ok();
    assert_eq!(space.pid(), pid);

    mount(&table, &["-o", "remount,rw", place]).ok();
    assert!(shown(&space).starts_with("rw,nosuid"), "{}", shown(&space));
    fs::write(space.path("other"), "content").unwrap();
    mount(&table, &["-o", "remount,ro", place]).ok();
    assert!(fs::write(space.path("third"), "").is_err());
    // Regression: that was done, shown as such, and changed nothing.
    for options in ["remount,rw,sync", "remount,rw,dirsync"] {
        let outcome = mount(&table, &["-o", options, place]);
        assert!(outcome.code != Some(0) && outcome.err.contains("fsync(2)"), "{options}: {}", outcome.err);
        assert!(shown(&space).starts_with("ro,nosuid"), "{}", shown(&space));
    }

    unmount(&space.mount);
    process::wait(pid);
    space.check();
}

/// Regression: mount(8) knows what is mounted by its source, which no line has that says `none`: every further `mount -a` failed.
#[test]
fn a_line_that_names_no_state_is_mounted_once() {
    let _helper = Helper::install();
    let space = Space::plain();
    space.down();
    let table = space.ground.path().join("fstab");
    fs::write(&table, format!("none {} fuse.ullage defaults 0 0\n", space.mount.display())).unwrap();
    mount(&table, &["-a"]).ok();
    let pid = space.pid();
    mount(&table, &["-a"]).ok();
    assert_eq!(space.pid(), pid);
    // What a killed daemon left is no mount.
    space.kill();
    mount(&table, &["-a"]).ok();
    assert_ne!(space.pid(), pid);
    space.down_and_check();
}

#[test]
fn what_cannot_be_mounted_is_said_and_leaves_nothing() {
    let _helper = Helper::install();
    let space = Space::plain();
    space.down();
    let place = space.mount.to_str().unwrap();
    // Regression: the last was mounted, shown as such, and did nothing.
    let wrong = [("quota", "'quota'"), ("size=much", "much"), ("transport=pigeon", "pigeon"), ("sync", "fsync(2)")];
    for (options, text) in wrong {
        let outcome = mount(&table(&space, options), &[place]);
        assert!(outcome.code.is_some_and(|code| code != 0), "{options}");
        assert!(outcome.err.contains(text), "{}", outcome.err);
        assert!(!is_mounted(&space.mount));
    }
    fs::rename(&space.state, space.state.with_extension("away")).unwrap();
    let outcome = mount(&table(&space, "defaults"), &[place]);
    assert_eq!(outcome.code, Some(32));
    assert!(outcome.err.contains("there is no space at"), "{}", outcome.err);
    assert!(!space.state.exists());
    fs::rename(space.state.with_extension("away"), &space.state).unwrap();
    // Regression: these three of mount(8)'s were refused.
    mount(&table(&space, "defaults,noatime,silent,mand,nosymfollow"), &[place]).ok();
    assert!(shown(&space).starts_with("rw,noatime,nosymfollow"), "{}", shown(&space));
    eventually("it is not in use", Duration::from_secs(5), || space.try_down().code == Some(0));
    space.check();
}

/// Regression: `mount -f`, which tries a line, found nothing wrong with options that the mount was refused for later; and of another namespace a
/// wrong usage was all that was said.
#[test]
fn a_line_is_tried_without_a_mount_and_another_namespace_is_refused_in_words() {
    let _helper = Helper::install();
    let space = Space::plain();
    space.down();
    let helper = |more: &[&str]| {
        let own = [space.state.as_os_str(), space.mount.as_os_str()];
        program(HELPER, own.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    for wrong in ["size=much", "transport=pigeon", "quota"] {
        let outcome = helper(&["-f", "-o", wrong]);
        assert_eq!(outcome.code, Some(32), "{wrong}: {}", outcome.err);
        assert!(outcome.err.contains(wrong.rsplit('=').next().unwrap()), "{}", outcome.err);
    }
    helper(&["-f", "-o", "size=1G,nousers,noowner,nogroup"]).ok();
    let outcome = helper(&["-N", "/proc/1/ns/mnt"]);
    assert_eq!(outcome.code, Some(32), "{}", outcome.err);
    assert!(outcome.err.contains("enter /proc/1/ns/mnt first"), "{}", outcome.err);
    assert!(!is_mounted(&space.mount));
    let table = table(&space, "size=1G,nousers,noowner,nogroup");
    mount(&table, &[space.mount.to_str().unwrap()]).ok();
    eventually("it is not in use", Duration::from_secs(5), || space.try_down().code == Some(0));
    space.check();
}

/// Regression: a remount said that it had set the size, and everything else, and had set nothing.
#[test]
fn a_remount_sets_the_size_and_says_what_only_the_next_mount_changes() {
    let _helper = Helper::install();
    let space = Space::plain();
    space.down();
    let place = space.mount.to_str().unwrap();
    let size = || ullage(["df".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json()["size"].as_u64();
    // What the remount says, which succeeds.
    let remount = |line: &str, more: &str| {
        let outcome = mount(&table(&space, line), &["-o", &format!("remount{more}"), place]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        outcome.err
    };
    mount(&table(&space, "size=64M,transport=device,enable_uring"), &[place]).ok();
    assert_eq!(size(), Some(64 << 20));
    assert_eq!(remount("size=64M,transport=device,reserve=0", ""), "", "all is so already");
    let said = remount("size=1G,transport=fuser,reserve=1M", "");
    assert_eq!(size(), Some(1 << 30));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("transport, reserve") && said.contains("unmount"), "{said}");
    assert_eq!(remount("size=1G", ",size=32M,nosuid"), "", "the last one counts");
    assert_eq!(size(), Some(32 << 20));
    assert!(shown(&space).starts_with("rw,nosuid"), "{}", shown(&space));
    assert_eq!(remount("defaults,transport=auto", ""), "");
    assert_eq!(size(), Some(32 << 20), "who names no size changes none");
    if space.uses_passthrough() {
        assert!(remount("no_passthrough", "").contains("no_passthrough"));
    }
    for (wrong, text) in [("size=much", "much"), ("size=8E", "too large")] {
        let outcome = mount(&table(&space, wrong), &["-o", "remount,ro", place]);
        assert_eq!(outcome.code, Some(32), "{wrong}: {}", outcome.err);
        assert!(outcome.err.contains(text), "{}", outcome.err);
        assert!(shown(&space).starts_with("rw"), "{wrong} changed what the mount allows");
    }
    assert_eq!(remount("size=none", ""), "");
    assert_eq!(size(), None);
    space.down_and_check();
}
