//! What is at a mount point before we mount on it.

use crate::error::io_error;
use crate::{Client, Error, Result, State};
use rustix::mount::UnmountFlags;
use std::path::Path;
use std::process::Command;

/// Makes a mount point ready: creates it, clears what a killed daemon left, refuses what is in use.
pub(crate) fn prepare(mountpoint: &Path, state: &State) -> Result<()> {
    if Client::connect(state)?.is_some() {
        return Err(Error::Refused(format!("{} is up already; see `ullage status {0}`", mountpoint.display())));
    }
    match std::fs::metadata(mountpoint) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(Error::Refused(format!("{} is not a directory", mountpoint.display()))),
        Err(error) if is_dead(&error) => {
            tracing::info!("clearing the dead mount at {}", mountpoint.display());
            clear(mountpoint)?;
            return prepare(mountpoint, state);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(mountpoint).map_err(io_error("create", mountpoint))?;
        }
        Err(error) => return Err(io_error("look at", mountpoint)(error)),
    }
    let mut entries = std::fs::read_dir(mountpoint).map_err(io_error("list", mountpoint))?;
    if entries.next().is_some() {
        return Err(Error::Refused(format!(
            "{} is not empty, and what is in it would be hidden; mount elsewhere, or empty it",
            mountpoint.display()
        )));
    }
    Ok(())
}

/// What a mount says whose server is gone: not connected, or over io_uring that the request was aborted.
fn is_dead(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOTCONN, Errno::CONNABORTED].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Takes away a mount that nobody serves.
fn clear(mountpoint: &Path) -> Result<()> {
    let direct = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
    if direct == Err(rustix::io::Errno::PERM) {
        let helper = Command::new("fusermount3").args(["-u", "-z"]).arg(mountpoint).status();
        if helper.is_ok_and(|status| status.success()) {
            return Ok(());
        }
    }
    direct.map_err(|errno| io_error("unmount", mountpoint)(errno.into()))
}
