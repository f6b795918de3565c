//! The suite proves itself on native ext4: there everything passes, and a planted difference is found.

use crate::suite::{passes, suite};
use std::path::PathBuf;
use std::process::Command;

/// A new ext4 in a loop image, unmounted when dropped.
struct Ext4 {
    directory: PathBuf,
}

impl Ext4 {
    /// `None`, with the reason printed, where one cannot be had.
    fn new(name: &str) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("posix-suite-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("mount")).unwrap();
        let script = "truncate -s 1G image && mkfs.ext4 -q -F image && mount -o loop image mount && chmod 755 . mount";
        let output = Command::new("/bin/sh").args(["-c", script]).current_dir(&directory).output().unwrap();
        let ext4 = Self { directory };
        if output.status.success() {
            return Some(ext4);
        }
        eprintln!("skipped: no loop image with ext4: {}", String::from_utf8_lossy(&output.stderr).trim());
        None
    }

    fn path(&self) -> PathBuf {
        self.directory.join("mount")
    }

    fn make(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).output();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn every_check_passes() {
    if let Some(ext4) = Ext4::new("checks") {
        passes(&[], &[&ext4.path()]);
    }
}

#[test]
fn generated_operations_find_no_difference() {
    let Some(ext4) = Ext4::new("generated") else { return };
    for seed in ["1", "2", "3"] {
        passes(&["--fuzz", "--ops", "2000", "--seed", seed], &[&ext4.path()]);
    }
    let (a, b) = (ext4.make("a"), ext4.make("b"));
    for seed in ["1", "2", "3"] {
        passes(&["--ops", "3000", "--seed", seed, "--lockstep"], &[&a, &b]);
    }
}

#[test]
fn a_planted_difference_is_found() {
    let Some(ext4) = Ext4::new("canary") else { return };
    let (a, b) = (ext4.make("a"), ext4.make("b"));
    // One side is on another file system, where only a few files fit.
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755,nr_inodes=40", "none"]).arg(&b).status();
    assert!(tmpfs.unwrap().success());
    let output = suite(&["--ops", "2000", "--lockstep"], &[&a, &b]);
    assert!(Command::new("umount").arg(&b).status().unwrap().success());
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("differs"));
}
