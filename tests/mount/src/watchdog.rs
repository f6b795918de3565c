//! A test that hangs on its mount is let go by ending the mount below it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Bites after a time, unless dropped before.
#[derive(Debug)]
pub struct Watchdog {
    _leash: Sender<()>,
}

impl Watchdog {
    /// After `limit`, ends the FUSE connection of whatever is mounted at `mount`, so that every call into it fails.
    pub fn new(mount: &Path, limit: Duration) -> Self {
        let (leash, done) = channel::<()>();
        let mount = mount.to_owned();
        std::thread::spawn(move || {
            if done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{} hangs after {limit:?}: its connection is ended", mount.display());
                end_connection(&mount);
            }
        });
        Self { _leash: leash }
    }
}

/// Ends the FUSE connection of a mount, from outside: the mount itself is not asked.
pub fn end_connection(mount: &Path) {
    if let Some(device) = device_of(mount) {
        let abort: PathBuf = format!("/sys/fs/fuse/connections/{device}/abort").into();
        let _ = std::fs::write(abort, "1");
    }
}

/// The minor number of the device of the file system mounted there, from the kernel's list of mounts.
fn device_of(mount: &Path) -> Option<u64> {
    let (table, mount) = (table(), mount.to_str()?);
    let line = table.lines().rev().find(|line| line.split(' ').nth(4) == Some(mount) && line.contains(" - fuse"))?;
    line.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// Whether something is mounted at a path.
pub fn is_mounted(mount: &Path) -> bool {
    let table = table();
    mount.to_str().is_some_and(|mount| table.lines().any(|line| line.split(' ').nth(4) == Some(mount)))
}

/// Whatever else is mounted on this machine may be no text.
fn table() -> String {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&table).into_owned()
}

/// Whether two paths are on one file system.
pub fn same_device(a: &Path, b: &Path) -> bool {
    matches!((a.metadata(), b.metadata()), (Ok(a), Ok(b)) if a.dev() == b.dev())
}
