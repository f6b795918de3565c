//! The local end of a transfer: a file that must stay as it is while it is read, and one that appears only when it is whole.

use super::files::FileError;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The mode of a new file, from which the process's mask takes.
const MODE: u32 = 0o666;
const PERMISSIONS: u32 = 0o777;

/// So many links the kernel follows.
const LINKS_MAX: u32 = 40;

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Local { what, path, source }
}

fn refuse_irregular(path: &Path, found: &Metadata) -> Result<(), FileError> {
    if found.is_file() {
        return Ok(());
    }
    Err(FileError::Usage(format!("{} is not a regular file", path.display())))
}

/// Runs what may wait for a disk where it holds up nobody.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A file that is read.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    begun: Metadata,
}

impl Source {
    /// Opens it. The length of a pipe or a device is known to nobody beforehand.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        refuse_irregular(path, &std::fs::metadata(path).map_err(failed("look at", path))?)?;
        let file = File::open(path).map_err(failed("open", path))?;
        let begun = file.metadata().map_err(failed("look at", path))?;
        refuse_irregular(path, &begun)?;
        Ok(Self { path: path.to_owned(), file, begun })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.begun.len()
    }

    pub(super) async fn read(self: std::sync::Arc<Self>, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        let path = self.path.clone();
        let mut bytes = vec![0; length as usize];
        apart(move || self.file.read_exact_at(&mut bytes, offset).map(|()| bytes)).await.map_err(failed("read", &path))
    }

    /// Whether all that was read is of one version, and all there is: parts of two are a file that nobody ever had.
    pub(super) fn unchanged(&self) -> Result<(), FileError> {
        let now = self.file.metadata().map_err(failed("look at", &self.path))?;
        let marks = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        if marks(&now) != marks(&self.begun) {
            return Err(FileError::Changed(self.path.clone()));
        }
        // As in /proc.
        let more = self.file.read_at(&mut [0], self.begun.len()).map_err(failed("read", &self.path))?;
        if more > 0 {
            let (path, length) = (self.path.display(), self.begun.len());
            let message =
                format!("{path} says that it has {length} bytes, and has more: put it by way of standard input (-)");
            return Err(FileError::Usage(message));
        }
        Ok(())
    }
}

/// Where a path leads, if that is not there: links that lead to it are followed.
fn led_to(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = path.read_link() else { break };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}

/// A file that is written beside its place, and is gone again unless it is finished.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    partial: NamedTempFile,
}

impl Target {
    /// Makes it, as long as it is to be. A link stays one, and a file that is replaced hands on its mode, and its owner where this user may give files away.
    pub(super) fn create(path: &Path, size_bytes: u64) -> Result<Self, FileError> {
        let replaced = match std::fs::metadata(path) {
            Ok(found) => {
                refuse_irregular(path, &found)?;
                Some((path.canonicalize().map_err(failed("look at", path))?, found))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("look at", path)(error)),
        };
        let (path, found) = replaced.map_or_else(|| (led_to(path), None), |(path, found)| (path, Some(found)));
        let begun = found.as_ref().map_or(MODE, |found| found.mode() & PERMISSIONS);
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".ullage-").suffix(".part").permissions(Permissions::from_mode(begun));
        let partial = builder.tempfile_in(directory).map_err(failed("make a file beside", &path))?;
        if let Some(found) = found {
            // Who may not give files away keeps it. Nothing that comes from elsewhere is run as its owner.
            let _ = std::os::unix::fs::fchown(partial.as_file(), Some(found.uid()), Some(found.gid()));
            let set = partial.as_file().set_permissions(Permissions::from_mode(begun));
            set.map_err(failed("set the mode of", &path))?;
        }
        partial.as_file().set_len(size_bytes).map_err(failed("lengthen", &path))?;
        Ok(Self { path, partial })
    }

    pub(super) async fn write(self: std::sync::Arc<Self>, bytes: bytes::Bytes, offset: u64) -> Result<(), FileError> {
        let path = self.path.clone();
        apart(move || self.partial.as_file().write_all_at(&bytes, offset)).await.map_err(failed("write", &path))
    }

    /// Removes it now, while stripes that are under way may still be written to it.
    pub(super) fn discard(&self) {
        if let Err(error) = std::fs::remove_file(self.partial.path()) {
            tracing::warn!(%error, path = %self.partial.path().display(), "a partial file is left behind");
        }
    }

    /// Puts it in its place.
    pub(super) fn finish(self) -> Result<(), FileError> {
        self.partial.as_file().sync_all().map_err(failed("flush", &self.path))?;
        self.partial.persist(&self.path).map_err(|error| failed("put in place", &self.path)(error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Regression: a link that led to nothing yet was replaced by the file.
    #[test]
    fn a_link_that_leads_to_nothing_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        symlink("below/second", at("first")).unwrap();
        symlink("../file", at("below/second")).unwrap();
        Target::create(&at("first"), 4).unwrap().finish().unwrap();
        assert_eq!(at("first").read_link().unwrap(), Path::new("below/second"));
        assert_eq!(at("file").symlink_metadata().unwrap().len(), 4);
        symlink("loop", at("loop")).unwrap();
        assert!(Target::create(&at("loop"), 4).is_err());
    }
}
