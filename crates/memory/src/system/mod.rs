//! What is read from and written to the kernel's files.

pub mod hierarchy;
pub mod mounts;
pub mod oom;
pub mod pagemap;
pub mod place;
pub mod processes;
pub mod smaps;
pub mod stat;

use crate::error::{Error, Result};
use std::fs;
use std::io;
use std::path::Path;

/// Reads a small file.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    text(path).map_err(Error::io("reading", path))
}

/// The text of a file of the kernel's. Names in it, of processes and files, are in any encoding, and may
/// be cut within a letter: such letters are replaced.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file holding one number (`max` is the largest).
pub fn read_number(path: impl AsRef<Path>) -> Result<u64> {
    let path = path.as_ref();
    let text = read(path)?;
    match text.trim() {
        "max" => Ok(u64::MAX),
        number => number
            .parse()
            .map_err(|_| Error::Invalid(format!("{} holds '{number}' where a number is expected", path.display()))),
    }
}

/// Writes to an existing control file in one go, without creating it.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    use std::io::Write;
    let path = path.as_ref();
    let mut file = fs::OpenOptions::new().write(true).open(path).map_err(Error::io("opening", path))?;
    file.write_all(text.as_bytes()).map_err(Error::io("writing", path))
}

/// Value of `key` in a file of `key value` lines, 0 where it is missing.
pub fn keyed(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start_matches(':').split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    /// Regression: one mount point that was no UTF-8 stopped every start.
    #[test]
    fn names_in_any_encoding_hide_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mounts");
        std::fs::write(&file, b"x /mnt/\xff tmpfs rw 0 0\ncgroup /m cgroup rw,memory 0 0\n").unwrap();
        let mounts = super::mounts::Mounts::parse(&super::read(&file).unwrap());
        assert_eq!(mounts.v1_memory.as_deref(), Some("/m".as_ref()));
    }

    #[test]
    fn keyed_values_of_meminfo_and_memory_stat() {
        let text = "MemTotal:  100 kB\ninactive_file 53248\ntotal_inactive_file 495366144\n";
        assert_eq!(super::keyed(text, "MemTotal"), 100);
        assert_eq!(super::keyed(text, "inactive_file"), 53248);
        assert_eq!(super::keyed(text, "total_inactive_file"), 495_366_144);
        assert_eq!(super::keyed(text, "missing"), 0);
    }
}
