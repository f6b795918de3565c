//! mergerfs with one branch.

use super::System;
use crate::cleanup::Undo;
use crate::shell::{installed, run, unmount};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel may cache data, names, attributes and directories for as long as it likes, as over a branch that nobody
/// else changes; no free-space rule can refuse the one branch. Its write-back cache made PostMark and stat slower.
const OPTIONS: &str = "allow_other,use_ino,minfreespace=0,category.create=ff,cache.files=auto-full,\
                       cache.entry=3600,cache.attr=3600,cache.negative_entry=3600,cache.readdir=true";

/// mergerfs, with `-o` arguments added to the best that were found.
pub struct Mergerfs {
    extra: Vec<String>,
    mount: Option<Undo>,
}

impl Mergerfs {
    /// Not mounted yet.
    pub fn new(extra: Vec<String>) -> Self {
        Self { extra, mount: None }
    }
}

impl System for Mergerfs {
    fn unavailable(&self) -> Option<String> {
        (!installed("mergerfs")).then(|| "mergerfs is not installed".into())
    }

    fn up(&mut self, place: &Path) -> Result<PathBuf> {
        let branch = super::directory(place, "branch")?;
        let mount = super::directory(place, "mnt")?;
        // Registered first: a signal may come while it mounts.
        let mounted = mount.clone();
        self.mount = Some(Undo::new(move || unmount(&mounted)));
        run(Command::new("mergerfs").arg("-o").arg(OPTIONS).args(&self.extra).arg(&branch).arg(&mount))?;
        Ok(mount)
    }

    fn down(&mut self) -> Result<()> {
        self.mount = None;
        Ok(())
    }
}
