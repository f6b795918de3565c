//! Secrets in files. A secret is never an argument, never in a log, and its file is readable by its owner only.

use crate::replacement::Replacement;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a secret was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file system refused.
    #[error("read or write {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It would be lost.
    #[error("{0} exists already, and is not overwritten")]
    Exists(PathBuf),
    /// Others could read it.
    #[error("{path} has mode {mode:04o}; a secret's file must have mode 0600 (chmod 600 {path})")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not what it should be.
    #[error("{path} does not hold {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
}

/// A key among what is shown when something goes wrong: it shows nothing of itself.
#[derive(Clone, Copy)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The key, for who computes with it.
    pub const fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Secret {
    fn from(key: [u8; 32]) -> Self {
        Self(key)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reads a secret file, refusing one that group or others can touch.
///
/// # Errors
/// When the file cannot be read, or its mode allows others anything.
pub fn read(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// Reads a file of [`new_key`]: 64 hexadecimal digits.
///
/// # Errors
/// As [`read`], and when it is something else.
pub fn read_key(path: &Path) -> Result<[u8; 32], KeyFileError> {
    let bytes = read(path)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    from_hex(text).ok_or_else(|| KeyFileError::Content { path: path.to_owned(), what: "64 hexadecimal digits" })
}

/// Writes a new secret file with mode 0600; an existing one is never overwritten.
///
/// # Errors
/// When it exists or cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write_new(path, bytes, 0o600)
}

/// Writes a new file, whole or not at all: half a key would be taken for one, and stand in the way of another.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(io)?;
    }
    let opened = File::options().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.to_owned()),
        _ => io(error),
    })?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = fs::remove_file(path);
        io(error)
    })
}

/// Writes a secret file with mode 0600, in place of one that may be there, and as its owner's.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    Replacement::secret(path, bytes)?.place()
}

/// Makes a random key and writes it as 64 hexadecimal digits.
///
/// # Errors
/// As [`write()`].
pub fn new_key(path: &Path) -> Result<(), KeyFileError> {
    write(path, format!("{}\n", to_hex(&random_key())).as_bytes())
}

/// Writes a given key as 64 hexadecimal digits.
///
/// # Errors
/// As [`write()`].
pub fn write_key(path: &Path, key: &[u8; 32]) -> Result<(), KeyFileError> {
    write(path, format!("{}\n", to_hex(key)).as_bytes())
}

/// 32 random bytes of the kernel.
///
/// # Panics
/// When the kernel has no randomness to give: nothing sensible can follow.
pub fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the kernel gives random bytes");
    key
}

/// A random number of the kernel.
pub fn random_u64() -> u64 {
    let key = random_key();
    u64::from_le_bytes([key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]])
}

/// Lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// Back from [`to_hex`], if the length is right.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    bytes_of(text)?.try_into().ok()
}

/// Back from [`to_hex`], whatever the length.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn digits_go_both_ways_and_nothing_else_is_taken() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = to_hex(&bytes);
        assert_eq!(&text[..8], "00010203");
        assert_eq!(bytes_of(&text), Some(bytes));
        assert_eq!(from_hex::<2>("0aFf"), Some([10, 255]));
        assert_eq!(bytes_of(""), Some(Vec::new()));
        for wrong in ["0", "0af", "0g", "+1", " 1", "1 ", "0x", "é", "ａ"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
            assert_eq!(from_hex::<1>(wrong), None, "{wrong}");
        }
        assert_eq!(from_hex::<1>("0a0a"), None);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        new_key(&path).unwrap();
        read_key(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read_key(&path), Err(KeyFileError::Open { .. })), "{mode:o}");
        }
        assert!(new_key(&path).is_err(), "a key is never overwritten");
    }
}
