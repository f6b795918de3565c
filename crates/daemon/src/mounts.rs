//! The kernel's list of mounts. Its paths are bytes: any user can mount on one that is no text.

use crate::Result;
use crate::error::io_error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
pub(crate) struct Listed {
    /// Where.
    pub(crate) point: PathBuf,
    /// What it says it comes from: for a space, its state directory.
    pub(crate) source: PathBuf,
    /// Whether it is of the kind that spaces are.
    pub(crate) ours: bool,
}

/// All mounts as a process sees them, this one when none is named. Of several on one point the last is the one that is seen.
pub(crate) fn list(process: Option<u32>) -> Result<Vec<Listed>> {
    let path = process.map_or_else(|| "/proc/self/mountinfo".to_owned(), |pid| format!("/proc/{pid}/mountinfo"));
    let table = std::fs::read(&path).map_err(io_error("read", path))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Whether a space is mounted there, as its daemon sees it: that may be in a container.
pub(crate) fn is_space(point: &Path, daemon: Option<u32>) -> Result<bool> {
    let mounts = list(daemon).or_else(|_| list(None))?;
    Ok(mounts.iter().any(|mount| mount.ours && mount.point == point))
}

fn parse(line: &[u8]) -> Option<Listed> {
    let mut words = line.split(|byte| *byte == b' ');
    let point = unescape(words.nth(4)?);
    // So many options follow, and a dash after them.
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?;
    let source = unescape(words.next()?);
    Some(Listed { point, source, ours: matches!(kind, b"fuse" | b"fuse.ullage") })
}

/// Mount tables write blanks and backslashes in octal.
fn unescape(bytes: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_blanks_are_read() {
        assert_eq!(unescape(b"/a\\040b\\134c"), Path::new("/a b\\c"));
    }

    /// Regression: one mount on such a path, of whatever user, and nobody's space was found any more.
    #[test]
    fn mount_points_that_are_no_text_are_read() {
        let line = b"36 35 0:98 / /mnt/\xFF\\040x rw,noatime shared:1 master:2 - fuse.ullage /srv/a,b rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point.as_os_str().as_encoded_bytes(), b"/mnt/\xFF x");
        assert_eq!((mount.source.as_path(), mount.ours), (Path::new("/srv/a,b"), true));
        assert!(parse(b"").is_none());
        assert!(list(None).unwrap().iter().any(|mount| mount.point == Path::new("/proc")));
    }
}
