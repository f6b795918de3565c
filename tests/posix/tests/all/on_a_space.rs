//! The suite on mounted spaces: all that is checked on native ext4, over each transport, in each mode of moving data.

use crate::suite::passes;
use std::ffi::OsStr;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// A space of its own with these flags, and a directory on the same native ext4.
fn checked(flags: &[&str], size: Option<&str>) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 1024);
    let model = ground.directory("disk/model");
    let mut space = Space::on(ground, &disk);
    space.limit(Duration::from_secs(300));
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
