//! Reading what somebody else may have put there: what is no file would be waited for, or have no end.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Many times what a controller writes: a day of seconds.
const LONGEST: u64 = 256 << 20;

/// Opens a file to be looked at, whatever it is.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// What stands in a file.
pub(super) fn read(path: &Path) -> Result<String> {
    read_at_most(path, LONGEST).map_err(Error::io("reading", path))
}

fn read_at_most(path: &Path, longest: u64) -> io::Result<String> {
    let (file, mut text) = (open(path)?, String::new());
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
    }
    if file.take(longest + 1).read_to_string(&mut text)? as u64 > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{RuntimeDir, Status};
    use crate::timeline;
    use std::os::unix::fs::symlink;

    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// Regression: who asked of another user's controller waited for ever where that user had made a pipe, or read without end.
    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read_without_end() {
        let ground = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(ground.path().join("memory")));
        let held = runtime.claim().unwrap();
        for file in [runtime.status(), runtime.undo(), runtime.timeline()] {
            pipe(&file);
        }
        assert!(Status::read(&runtime).unwrap_err().to_string().contains("no file"));
        assert!(timeline::read_of(&runtime).unwrap_err().to_string().contains("no file"));
        drop(held);
        let lock = runtime.path().join("lock");
        std::fs::remove_file(&lock).unwrap();
        pipe(&lock);
        assert_eq!(runtime.running(), None);
        std::fs::remove_file(runtime.status()).unwrap();
        symlink("/dev/zero", runtime.status()).unwrap();
        assert!(read(&runtime.status()).is_err());
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let ground = tempfile::tempdir().unwrap();
        let path = ground.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), "12345");
        assert!(read_at_most(&path, 4).is_err());
    }
}
