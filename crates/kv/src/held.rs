//! A way to a file that stays the same one, whatever becomes of its path.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Where this process finds what it has open.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The directory that a file lies in, held open, and the way to the file by its descriptor: for as long as this is there.
pub(crate) struct Held {
    path: PathBuf,
    _dir: File,
}

impl Held {
    /// Of a file that need not be there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let whole = std::path::absolute(path)?;
        let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no name"));
        };
        let dir = File::open(above)?;
        let way = Path::new(DESCRIPTORS).join(dir.as_raw_fd().to_string());
        // Where there is no /proc the path itself has to do.
        let path = if way.is_dir() { way.join(name) } else { path.to_owned() };
        Ok(Self { path, _dir: dir })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What people know as the path of a file in a directory that is held open. Any other path is what it is.
#[must_use]
pub fn shown(path: &Path) -> PathBuf {
    let mut parts = path.components();
    let held: PathBuf = parts.by_ref().take(Path::new(DESCRIPTORS).components().count() + 1).collect();
    if held.parent() != Some(Path::new(DESCRIPTORS)) {
        return path.to_owned();
    }
    std::fs::read_link(held).map_or_else(|_| path.to_owned(), |dir| dir.join(parts.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_by_a_descriptor_is_shown_as_the_path_that_it_stands_for_and_no_other_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, file) = (dir.path().canonicalize().unwrap(), dir.path().join("file"));
        let held = Held::of(&file).unwrap();
        assert!(held.path().starts_with(DESCRIPTORS) && shown(held.path()) == real.join("file"));
        // As deep as such a way is, and a link.
        let link = real.join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        for plain in [link.clone(), link.join("deeper"), "/proc/self/fd".into(), "/proc/self/cwd/x".into()] {
            assert_eq!(shown(&plain), plain);
        }
    }
}
