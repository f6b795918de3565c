//! What is read from and written to the kernel's files.

pub mod mounts;
pub mod place;
pub mod processes;
pub mod smaps;
pub mod stat;

use crate::error::{Error, Result};
use std::fs;
use std::path::Path;

/// Reads a small file.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(Error::io("reading", path))
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
    #[test]
    fn keyed_values_of_meminfo_and_memory_stat() {
        let text = "MemTotal:  100 kB\ninactive_file 53248\ntotal_inactive_file 495366144\n";
        assert_eq!(super::keyed(text, "MemTotal"), 100);
        assert_eq!(super::keyed(text, "inactive_file"), 53248);
        assert_eq!(super::keyed(text, "total_inactive_file"), 495_366_144);
        assert_eq!(super::keyed(text, "missing"), 0);
    }
}
