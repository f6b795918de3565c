//! The place of a mount, and how it is taken away from there.

use crate::connection::mounted_at;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A line of the table of mounts.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    device: (u32, u32),
    point: PathBuf,
    kind: String,
}

/// Unmounts the mount of this device, which was put at `path`, wherever that is now: a directory above it may have been renamed. With
/// `lazy` it goes from the tree at once, and ends with its last user.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] while it is in use. Nothing else that lies at the path is unmounted: the error says what it is.
pub(crate) fn unmount(path: &Path, device: Option<(u32, u32)>, lazy: bool) -> io::Result<()> {
    let device = device.ok_or(ErrorKind::NotConnected)?;
    let point = if mounted_at(path) == Some(device) { path.to_owned() } else { moved(path, device)? };
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(&point, flags) {
        Err(Errno::PERM) => by_helper(&point, lazy),
        outcome => Ok(outcome?),
    }
}

/// Where a mount is now that is not seen at the path at which it was put.
fn moved(path: &Path, device: (u32, u32)) -> io::Result<PathBuf> {
    // Anybody may mount on a path that is no text.
    let table = std::fs::read("/proc/self/mountinfo")?;
    let lines: Vec<Line> = String::from_utf8_lossy(&table).lines().filter_map(parse).collect();
    let own = |line: &&Line| line.device == device;
    if let Some(seen) = lines.iter().filter(own).find(|line| mounted_at(&line.point) == Some(device)) {
        return Ok(seen.point.clone());
    }
    let Some(covered) = lines.iter().filter(own).map(|line| &line.point).next_back() else {
        let text = format!("it was taken away from {} before, and ends with its last user", path.display());
        return Err(io::Error::other(text));
    };
    // The deepest that lies at the point or above: what came later hides what was there.
    let over = lines.iter().filter(|line| line.device != device && covered.starts_with(&line.point));
    let over = over.max_by_key(|line| line.point.components().count()).filter(|line| line.point != Path::new("/"));
    Err(io::Error::other(match over {
        Some(Line { kind, point, .. }) => {
            format!("a file system ({kind}) is mounted over it; `umount {}` takes that away first", point.display())
        }
        None => "another file system is mounted over it; unmount that first".into(),
    }))
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

fn parse(line: &str) -> Option<Line> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (major, minor) = left.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let point = unescape(left.nth(1)?);
    Some(Line { device, point, kind: right.split(' ').next()?.to_owned() })
}

/// The table has blanks and backslashes in octal.
fn unescape(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (bytes.push(byte), rest = &more[3..]),
            None => (bytes.push(*first), rest = more),
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read() {
        let text = r"36 35 0:321 / /mnt\040a\134b rw,noatime shared:1 - fuse.ullage /a\040state rw,user_id=0";
        let line = Line { device: (0, 321), point: r"/mnt a\b".into(), kind: "fuse.ullage".into() };
        assert_eq!(parse(text), Some(line));
        assert_eq!(parse("36 35 what"), None);
    }

    #[test]
    fn what_is_not_there_any_more_is_not_unmounted() {
        let directory = tempfile::tempdir().unwrap();
        let error = unmount(directory.path(), Some((0xfff, 1)), true).unwrap_err();
        assert!(error.to_string().contains("taken away"), "{error}");
    }
}
