//! Notes of the marked leaves in the pool itself, beside the catalog's marks: an empty file each. Where the catalog is on
//! another disk, or in another snapshot, that is older than the pool, it knows nothing of leaves that were changed since; the
//! pool does, because the note was made before them, and file systems keep that order. Nothing waits for a flush of it.
//!
//! A note that cannot be made (a full disk) is none: the catalog's mark is what counts where both are as old.

use super::leaf;
use crate::{Error, Marks};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Survey and listings pass over what begins with a dot.
const DIRECTORY: &str = ".marks";

/// The catalog's marks, each with a note in the pool.
pub struct Notes {
    marks: Arc<dyn Marks>,
    dir: Option<OwnedFd>,
}

impl Notes {
    /// Makes the directory where there is none.
    pub fn open(root: &OwnedFd, marks: Arc<dyn Marks>) -> Self {
        let made = match rustix::fs::mkdirat(root, DIRECTORY, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => leaf::open_directory(root, DIRECTORY),
            Err(errno) => Err(errno),
        };
        let dir = made.inspect_err(|error| tracing::warn!(%error, "the pool takes no notes of what is changed")).ok();
        Self { marks, dir }
    }

    /// The leaves that are noted.
    pub fn noted(&self) -> rustix::io::Result<Vec<Box<[u8]>>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let mut leaves = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !name.starts_with(b".") {
                leaves.push(name.iter().map(|byte| if *byte == b'%' { b'/' } else { *byte }).collect());
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
        if let Err(error) = rustix::fs::openat(dir, name.as_slice(), flags, Mode::from_raw_mode(0o600)) {
            tracing::debug!(%error, "no note is made of a leaf");
        }
    }
}

/// Leaves' paths are digits, dots and dashes; another could not be told from its name.
fn name_of(leaf: &[u8]) -> Option<Vec<u8>> {
    let plain = !leaf.is_empty() && !leaf.starts_with(b".") && !leaf.contains(&b'%') && leaf.len() < 256;
    plain.then(|| leaf.iter().map(|byte| if *byte == b'/' { b'%' } else { *byte }).collect())
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
