//! Files that come in place of others.

use crate::keyfile::KeyFileError;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// A file beside another one, in whose place it comes in one step. If it does not, nothing is left of it.
pub(crate) struct Replacement {
    target: PathBuf,
    new: PathBuf,
}

impl Replacement {
    /// Of a secret: its owner alone may read it.
    pub fn secret(path: &Path, bytes: &[u8]) -> Result<Self, KeyFileError> {
        Self::write(path, bytes, |_, _| Ok(()), 0o600)
    }

    /// Of what anybody may read who could read the old one.
    pub fn public(path: &Path, bytes: &[u8]) -> Result<Self, KeyFileError> {
        Self::write(path, bytes, |file, old| file.set_permissions(old.permissions()), 0o666)
    }

    fn write(
        path: &Path,
        bytes: &[u8],
        permit: impl FnOnce(&File, &Metadata) -> io::Result<()>,
        mode: u32,
    ) -> Result<Self, KeyFileError> {
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        let target = behind_links(path).map_err(io)?;
        let mut new = target.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        // Left by one who was killed.
        let _ = fs::remove_file(&new);
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&new).map_err(io)?;
        let this = Self { target, new };
        if let Ok(old) = fs::metadata(&this.target) {
            // A server that runs as its own user must read this one too. Who may not give files away keeps it.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            permit(&file, &old).map_err(io)?;
        }
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io)?;
        Ok(this)
    }

    /// Puts it in its place.
    pub fn place(self) -> Result<(), KeyFileError> {
        fs::rename(&self.new, &self.target).map_err(|source| KeyFileError::Io { path: self.target.clone(), source })
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new);
    }
}

/// The file itself, there or not: a link to it stays a link.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Ok(_) => Err(io::Error::new(ErrorKind::NotFound, "it is a link that leads nowhere: remove it")),
            Err(_) => Ok(path.to_owned()),
        },
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn whoever_reads_finds_the_one_or_the_other_and_of_what_does_not_come_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        let before = File::open(&path).unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        drop(Replacement::secret(&path, b"lost").unwrap());
        assert_eq!((fs::read(&path).unwrap(), fs::read_dir(directory.path()).unwrap().count()), (b"old".into(), 1));
        Replacement::public(&path, b"new").unwrap().place().unwrap();
        assert_eq!(mode(), 0o604);
        Replacement::secret(&path, b"newer").unwrap().place().unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode()), (b"newer".into(), 0o600));
        assert_eq!(io::read_to_string(before).unwrap(), "old");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        symlink("nowhere", &path).unwrap();
        let error = Replacement::secret(&path, b"new").err().unwrap().to_string();
        assert!(error.contains("a.key") && error.contains("remove it"), "{error}");
    }
}
