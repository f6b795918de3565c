//! Names of chunks.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// Longest name, so that its encoded form fits a file name on every file system.
pub const NAME_MAX_BYTES: usize = 180;

/// A chunk's name: `A-Z a-z 0-9 . _ - = @ + /`, 1 to 180 bytes. By convention the first component is its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkName(String);

/// Why a name is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than 180 bytes.
    #[error("a chunk's name has 1 to {NAME_MAX_BYTES} bytes")]
    Length,
    /// Another character.
    #[error("a chunk's name is made of A-Z a-z 0-9 . _ - = @ + /")]
    Character,
}

impl ChunkName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file's name: `/` becomes `%`, which no name contains, so it cannot leave its directory or mean two chunks;
    /// a leading dot is kept from meaning `.` or `..` by the suffix.
    pub(crate) fn file_name(&self) -> String {
        let mut encoded = self.0.replace('/', "%");
        encoded.push_str(".chunk");
        encoded
    }

    /// Back from [`Self::file_name`].
    pub(crate) fn from_file_name(file: &str) -> Option<Self> {
        file.strip_suffix(".chunk")?.replace('%', "/").parse().ok()
    }

    /// Which of the 256 subdirectories, and which lock.
    pub(crate) fn shard(&self) -> u8 {
        xxhash_rust::xxh3::xxh3_64(self.0.as_bytes()) as u8
    }
}

impl FromStr for ChunkName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            return Err(NameError::Length);
        }
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"._-=@+/".contains(&c);
        if name.bytes().all(fits) { Ok(Self(name.to_owned())) } else { Err(NameError::Character) }
    }
}

/// Names are in the order of their text.
impl Borrow<str> for ChunkName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_directory() {
        for name in ["../../etc/passwd", "..", ".", "a/../b"] {
            let name: ChunkName = name.parse().unwrap();
            let file = name.file_name();
            assert!(!file.contains('/') && file != "." && file != "..");
            assert_eq!(ChunkName::from_file_name(&file), Some(name));
        }
        for bad in ["", "a b", "a%b", "a\0b", "ü", &"x".repeat(181)] {
            assert!(bad.parse::<ChunkName>().is_err(), "{bad:?}");
        }
    }
}
