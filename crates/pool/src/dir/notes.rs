//! Notes of the marked leaves in the pool itself, beside the catalog's marks: an empty file each. Where the catalog is on
//! another disk, or in another snapshot, that is older than the pool, it knows nothing of leaves that were changed since; the
//! pool does, because the note was made before them, and file systems keep that order. Nothing waits for a flush of it.
//!
//! A note that cannot be made (a full disk) is none: the catalog's mark is what counts where both are as old.

use super::{floor::Floor, leaf};
use crate::{Error, Marks};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Survey and listings pass over what begins with a dot.
pub(super) const DIRECTORY: &str = ".marks";

/// The catalog's marks, each with a note in the pool.
pub struct Notes {
    marks: Arc<dyn Marks>,
    dir: Option<OwnedFd>,
    /// What is left to the catalog is not taken for notes, which a catalog on the same disk does not need.
    floor: Arc<Floor>,
}

impl Notes {
    /// Makes the directory where there is none.
    pub fn open(root: &OwnedFd, marks: Arc<dyn Marks>, floor: Arc<Floor>) -> Self {
        let made = leaf::own_directory(root, DIRECTORY);
        let dir = made.inspect_err(|error| tracing::warn!(%error, "the pool takes no notes of what is changed")).ok();
        Self { marks, dir, floor }
    }

    /// The leaves that are noted. What else lies here is none of ours.
    pub fn noted(&self) -> rustix::io::Result<Vec<Box<[u8]>>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let mut leaves = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let leaf: Box<[u8]> = name.iter().map(|byte| if *byte == b'%' { b'/' } else { *byte }).collect();
            if is_leaf(&leaf) {
                leaves.push(leaf);
            }
        }
        Ok(leaves)
    }

    /// Takes a note away.
    pub fn forget(&self, leaf: &[u8]) {
        if let (Some(dir), Some(name)) = (&self.dir, name_of(leaf))
            && let Err(error) = rustix::fs::unlinkat(dir, name.as_slice(), AtFlags::empty())
            && error != Errno::NOENT
        {
            tracing::debug!(%error, "a note stays: the leaf will be looked through once more than it has to be");
        }
    }

    fn note(&self, leaf: &[u8]) {
        let (Some(dir), Some(name)) = (&self.dir, name_of(leaf)) else { return };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || rustix::fs::openat(dir, name.as_slice(), flags, Mode::from_raw_mode(0o600));
        if let Err(error) = self.floor.admit(dir).and_then(|()| make()) {
            tracing::debug!(%error, "no note is made of a leaf");
        }
    }
}

/// Whether it can be the path of a leaf, as the layout has them: nothing that leads elsewhere, or is taken for another.
fn is_leaf(path: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-/".contains(byte);
    let parts = |part: &[u8]| !part.is_empty() && !part.starts_with(b".");
    path.len() < 256 && path.iter().all(plain) && path.split(|byte| *byte == b'/').all(parts)
}

fn name_of(leaf: &[u8]) -> Option<Vec<u8>> {
    is_leaf(leaf).then(|| leaf.iter().map(|byte| if *byte == b'/' { b'%' } else { *byte }).collect())
}

impl Marks for Notes {
    fn mark(&self, leaves: &[&[u8]]) -> Result<(), Error> {
        for leaf in leaves {
            self.note(leaf);
        }
        self.marks.mark(leaves)
    }

    fn clear(&self, leaf: &[u8]) {
        self.marks.clear(leaf);
        self.forget(leaf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NoMarks;

    #[test]
    fn what_is_no_note_of_ours_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let root = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
        let notes = Notes::open(&root, Arc::new(NoMarks), Arc::default());
        notes.mark(&[b"2-512/000.0/000", b"2-512/01f.1/more/002/003"]).unwrap();
        for name in ["..%etc", "a%%b", "a%.b", "%a", "a%", ".x", "a b"] {
            std::fs::write(directory.path().join(DIRECTORY).join(name), "").unwrap();
        }
        let strange = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe");
        std::fs::write(directory.path().join(DIRECTORY).join::<&std::ffi::OsStr>(strange), "").unwrap();
        let mut noted = notes.noted().unwrap();
        noted.sort();
        assert_eq!(noted, [Box::from(&b"2-512/000.0/000"[..]), Box::from(&b"2-512/01f.1/more/002/003"[..])]);
        notes.clear(b"2-512/000.0/000");
        notes.forget(b"2-512/01f.1/more/002/003");
        assert!(notes.noted().unwrap().is_empty());
    }
}
