//! The suite on mounted spaces: all that is checked on native ext4, over each transport, in each mode of moving data.

use crate::suite::passes;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// A space, not yet up, and a directory on the same native ext4; none where that takes rights that are not there.
fn bed() -> Option<(Space, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 1024);
    let model = ground.directory("disk/model");
    let mut space = Space::on(ground, &disk);
    space.limit(Duration::from_secs(300));
    Some((space, model))
}

/// Everything on a space with these flags.
fn checked(flags: &[&str], size: Option<&str>) {
    let Some((mut space, model)) = bed() else { return };
    space.flags = flags.iter().map(Into::into).collect();
    space.up();
    if let Some(size) = size {
        ullage(["limit".as_ref(), space.mount.as_os_str(), OsStr::new(size)]).ok();
    }
    passes(&[], &[&space.mount]);
    passes(&["--fuzz", "--ops", "2000"], &[&space.mount]);
    // The crate has no unnamed files, which generated operations make.
    if !flags.contains(&"fuser") {
        passes(&["--ops", "1500", "--lockstep"], &[&model, &space.mount]);
    }
    space.down_and_check();
}

/// The kernel's parameter is for the whole machine: it is put back, whatever became of the test.
struct Parameter(String);

impl Drop for Parameter {
    fn drop(&mut self) {
        // Nobody but root has changed it.
        let _ = std::fs::write(PARAMETER, self.0.trim());
    }
}

#[test]
fn every_check_passes_over_io_uring() {
    let Ok(before) = std::fs::read_to_string(PARAMETER) else {
        eprintln!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    let _parameter = Parameter(before);
    checked(&["--transport", "io-uring", "--enable-uring"], None);
}

#[test]
fn every_check_passes_over_dev_fuse() {
    checked(&["--transport", "device"], None);
}

#[test]
fn every_check_passes_over_the_crate() {
    checked(&["--transport", "fuser"], None);
}

#[test]
fn every_check_passes_through_the_server() {
    checked(&["--transport", "device", "--no-passthrough"], None);
}

#[test]
fn every_check_passes_below_a_limit() {
    checked(&["--transport", "device"], Some("900M"));
}

#[test]
fn every_check_passes_where_room_is_lent() {
    checked(&["--transport", "device"], Some("60G"));
}

/// What an administrator does meanwhile nobody notices: limits far off come and go, and files go from one pool to the other and back.
#[test]
fn operations_end_as_natively_while_limits_and_pools_come_and_go() {
    let Some((mut space, model)) = bed() else { return };
    space.add_beside();
    space.up();
    let (over, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(100));
    let administer = || {
        let limit = |size: &str| ullage(["limit".as_ref(), space.mount.as_os_str(), OsStr::new(size)]).ok();
        let rest = || std::thread::sleep(Duration::from_millis(200));
        for pool in ["main", "beside"].into_iter().cycle() {
            limit("60G");
            space.pool_command("remove", &[pool, "--no-wait"]).ok();
            rest();
            limit("none");
            rest();
            space.pool_command("remove", &[pool, "--cancel"]).ok();
            if over.load(Ordering::Relaxed) || Instant::now() > until {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(administer);
        passes(&["--ops", "1000", "--lockstep"], &[&model, &space.mount]);
        over.store(true, Ordering::Relaxed);
    });
    space.down_and_check();
}
