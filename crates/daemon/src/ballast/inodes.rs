//! Inodes that the catalog has for itself on its disk, as `ballast.rs` has bytes.
//!
//! Its engine makes files, and so does every start. Pools on the same disk leave some to it while the space is up; a few lie ready for a
//! start that finds none, since others have taken them.

use crate::held::Held;
use crate::settings::config::private;
use std::fs;
use std::path::PathBuf;

const NAME: &str = "ballast.inodes";
/// The most that pools leave.
const MOST: u64 = 256;
/// No more of all there are than one part in so many.
const PART: u64 = 16;
/// There are plenty when so many times as many are free.
const PLENTY: u64 = 4;
/// One part in so many of what pools leave is held.
const HELD_PART: u64 = 4;

/// The inodes held for the catalog of one space.
pub(super) struct Inodes {
    dir: PathBuf,
    least: u64,
}

impl Inodes {
    /// Those of a state directory, on a disk that says so. None where file systems make inodes as they need them.
    pub(super) fn of(state: &crate::State, disk: &rustix::fs::StatVfs) -> Self {
        Self { dir: state.place().join(NAME), least: (disk.f_files / PART).min(MOST) }
    }

    /// How many pools on this disk are to leave.
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// Gives up what is held if there is nothing else. Whether there was anything.
    pub(super) fn release(&self, disk: &rustix::fs::StatVfs) -> bool {
        disk.f_favail < self.least / HELD_PART && fs::remove_dir_all(&self.dir).is_ok()
    }

    /// Holds them again where there are plenty.
    pub(super) fn take(&self, disk: &rustix::fs::StatVfs) -> std::io::Result<()> {
        if disk.f_favail < self.least * PLENTY { Ok(()) } else { self.hold() }
    }

    /// Holds as many of them as can be had.
    pub(super) fn hold(&self) -> std::io::Result<()> {
        let last = (0..self.least / HELD_PART).next_back().map(|n| self.dir.join(n.to_string()));
        // Made one after the other: with the last all are there.
        if last.is_none_or(|last| last.exists()) {
            return Ok(());
        }
        let dir = Held::own(&self.dir)?;
        (0..self.least / HELD_PART).try_for_each(|n| private().open(dir.join(&n.to_string())).map(drop))
    }

    /// Whether the engine can make files: pools leave twice as many.
    pub(super) fn are_there(&self, disk: &rustix::fs::StatVfs) -> bool {
        disk.f_favail >= self.least / 2
    }
}
