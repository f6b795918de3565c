//! Where the files of a store are.

use super::name::ChunkName;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use ullage_journal::private_directory;

/// The directory of a store.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Open as long as the store: a descriptor is told once of each write that fails later, and one opened after somebody was told, never.
    file: File,
}

impl Directory {
    /// Makes what is missing, for the store alone: the chunks' modes are for users of the store, not for those of its machine.
    pub(crate) fn create(root: &Path) -> io::Result<Self> {
        private_directory(root)?;
        for name in ["new", "lost", "journal"] {
            fs::create_dir_all(root.join(name))?;
        }
        for shard in 0..=255u8 {
            fs::create_dir_all(root.join(format!("chunks/{shard:02x}")))?;
        }
        let file = File::open(root)?;
        file.sync_all()?;
        Ok(Self { path: root.to_owned(), file })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    pub(crate) fn shard(&self, shard: u8) -> PathBuf {
        self.path.join(format!("chunks/{shard:02x}"))
    }

    pub(crate) fn chunk(&self, name: &ChunkName) -> PathBuf {
        self.shard(name.shard()).join(name.file_name())
    }

    pub(crate) fn news(&self) -> PathBuf {
        self.path.join("new")
    }

    pub(crate) fn new_file(&self, id: u64) -> PathBuf {
        self.path.join(format!("new/{id:016x}"))
    }

    /// Where a file can be kept that nobody accounts for: beside those of the same name that were found before.
    pub(crate) fn lost(&self, file: &str) -> PathBuf {
        let mut path = self.path.join("lost").join(file);
        let mut number = 0;
        while path.symlink_metadata().is_ok() {
            number += 1;
            path.set_file_name(format!("{file}.{number}"));
        }
        path
    }

    /// How many files can still be made, as far as the file system says so.
    pub(crate) fn inodes_left(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.file)?;
        Ok(if found.f_files == 0 { u64::MAX } else { found.f_favail })
    }

    /// Flushes everything of the file system the store is on.
    pub(crate) fn flush_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }
}
