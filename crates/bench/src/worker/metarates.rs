//! What metarates does: each kind of metadata operation over many files of one shared directory.

use super::Gate;
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, open, stat, unlink, utimensat};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The phases, in order.
pub const PHASES: [&str; 5] = ["create", "stat", "utime", "open-close", "unlink"];

/// One process's share of the files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Metarates {
    /// The shared directory.
    pub directory: PathBuf,
    /// How many files this process has.
    pub files: u64,
    /// Which process this is; part of the names.
    pub worker: usize,
}

impl Metarates {
    /// All phases.
    pub fn run(&self, gate: &mut Gate) -> Result<()> {
        // Names are made beforehand: only the operations are timed.
        let names: Vec<PathBuf> =
            (0..self.files).map(|file| self.directory.join(format!("file.{}.{file}", self.worker))).collect();
        gate.phase(|| {
            names.iter().try_for_each(|name| {
                open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o644))
                    .map(drop)
                    .with_context(|| format!("create {}", name.display()))
            })
        })?;
        gate.phase(|| names.iter().try_for_each(|name| stat(name).map(drop)).context("stat"))?;
        let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        gate.phase(|| {
            names.iter().try_for_each(|name| utimensat(CWD, name, &times, AtFlags::empty())).context("utime")
        })?;
        gate.phase(|| {
            names
                .iter()
                .try_for_each(|name| open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop))
                .context("open")
        })?;
        gate.phase(|| names.iter().try_for_each(unlink).context("unlink"))
    }
}
