//! The place of a mount, and how it is taken away from there.

use crate::connection::mounted_at;
use crate::mounts::{Listed, list_mounts};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount that was made here.
#[derive(Debug)]
pub(crate) struct Point {
    path: PathBuf,
    device: Option<(u32, u32)>,
    /// Its number among mounts: what was bound from it is the same device.
    id: Option<u64>,
}

impl Point {
    /// The mount that was just put at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let device = mounted_at(path);
        let own = |line: &Listed| line.point == path && Some(line.device) == device;
        let lines = list_mounts(None).unwrap_or_default();
        Self { path: path.to_owned(), device, id: lines.into_iter().rfind(own).map(|line| line.id) }
    }

    /// Major and minor number of its device.
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        self.device
    }

    /// Unmounts it, wherever it is now: a directory above it may have been renamed. With `lazy` it goes from the tree at once, and ends with
    /// its last user.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] while it is in use. Nothing else that lies at the path is unmounted, nor what was bound from it elsewhere:
    /// the error says what it is.
    pub(crate) fn unmount(&self, lazy: bool) -> io::Result<()> {
        let device = self.device.ok_or(ErrorKind::NotConnected)?;
        let point = if mounted_at(&self.path) == Some(device) { self.path.clone() } else { self.moved(device)? };
        unmount_at(&point, lazy)
    }

    /// Whether it is not at its path any more. While it is used it goes on, and so it does where it was bound to.
    pub(crate) fn is_away(&self) -> bool {
        let is_other = |line: &Listed, device| line.device != device || line.point != self.path;
        let is_gone = |device| list_mounts(None).is_ok_and(|lines| lines.iter().all(|line| is_other(line, device)));
        self.device.is_some_and(is_gone)
    }

    /// Where it is now that is not seen at the path at which it was put.
    fn moved(&self, device: (u32, u32)) -> io::Result<PathBuf> {
        let lines = list_mounts(None)?;
        let own = |line: &&Listed| line.device == device && self.id.is_none_or(|id| line.id == id);
        if let Some(seen) = lines.iter().filter(own).find(|line| mounted_at(&line.point) == Some(device)) {
            return Ok(seen.point.clone());
        }
        let Some(covered) = lines.iter().filter(own).map(|line| &line.point).next_back() else {
            let text = format!("it was taken away from {} before, and ends with its last user", self.path.display());
            return Err(io::Error::other(text));
        };
        // The deepest that lies at the point or above: what came later hides what was there.
        let over = lines.iter().filter(|line| line.device != device && covered.starts_with(&line.point));
        let over = over.max_by_key(|line| line.point.components().count()).filter(|line| line.point != Path::new("/"));
        Err(io::Error::other(match over {
            Some(Listed { kind, point, .. }) => {
                format!("a file system ({kind}) is mounted over it; `umount {}` takes that away first", point.display())
            }
            None => "another file system is mounted over it; unmount that first".into(),
        }))
    }
}

/// Unmounts what is mounted at a path, by this user's means.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] while it is in use.
pub fn unmount_at(point: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, flags) {
        Err(Errno::PERM) => by_helper(point, lazy),
        outcome => Ok(outcome?),
    }
}

/// Only the set-uid helper may unmount for an ordinary user.
fn by_helper(point: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(point).env("LC_ALL", "C");
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("fusermount3 cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.ends_with("Device or resource busy") { ErrorKind::ResourceBusy } else { ErrorKind::Other };
    Err(io::Error::new(kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_any_more_is_not_unmounted() {
        let directory = tempfile::tempdir().unwrap();
        let point = Point { path: directory.path().to_owned(), device: Some((0xfff, 1)), id: None };
        let error = point.unmount(true).unwrap_err();
        assert!(error.to_string().contains("taken away"), "{error}");
    }
}
