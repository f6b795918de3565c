//! A pool as the mirror sees it.

use super::files::DIRECTORY;
use crate::held::Held;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
use ullage_fs::PoolMember;
use ullage_types::Bytes;

/// A pool that has missed a file is tried again after so many times what the last try took: one that goes on failing costs little.
const PAUSE: u32 = 20;

/// What a pool leaves to others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub(crate) bytes: Bytes,
    pub(crate) inodes: u64,
}

impl Left {
    /// By a pool that is one of the space.
    pub(crate) fn by(member: &PoolMember) -> Self {
        Self { bytes: member.reserve, inodes: member.pool.least_inodes() }
    }
}

/// A pool.
pub(super) struct Place {
    /// By its descriptor: what is mounted over it is no pool of ours.
    pub(super) files: Held,
    pub(super) path: PathBuf,
    pub(super) left: Left,
    /// Since it has missed a file that others have: when that is tried again.
    pub(super) behind: Option<Instant>,
}

impl Place {
    pub(super) fn pool(&self) -> PathBuf {
        self.files.join("")
    }

    /// The mirror's directory in it.
    pub(super) fn dir(&self) -> PathBuf {
        self.files.join(DIRECTORY)
    }

    /// Removes the files whose names are such.
    pub(super) fn remove(&self, such: impl Fn(&str) -> bool) {
        let Ok(own) = Held::own_there(&self.dir()) else { return };
        for entry in fs::read_dir(own.join("")).into_iter().flatten().flatten() {
            if such(&entry.file_name().to_string_lossy()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Bytes free beside the reserve. Where that cannot be asked, whoever writes there is told why.
    pub(super) fn free(&self) -> u64 {
        let free = |stat: rustix::fs::StatVfs| stat.f_bavail.saturating_mul(stat.f_frsize);
        rustix::fs::statvfs(self.pool()).map_or(u64::MAX, free).saturating_sub(self.left.bytes.0)
    }

    /// Whether it has an inode for another file: each turn takes one, for hours.
    pub(super) fn has_inodes(&self) -> bool {
        let has = |stat: rustix::fs::StatVfs| stat.f_files == 0 || stat.f_favail > self.left.inodes / 4 * 3;
        rustix::fs::statvfs(self.pool()).map_or(true, has)
    }

    /// It has missed a file, in a try that began then.
    pub(super) fn fell_behind(&mut self, begun: Instant) {
        self.behind = Some(Instant::now() + begun.elapsed().saturating_mul(PAUSE));
    }
}
