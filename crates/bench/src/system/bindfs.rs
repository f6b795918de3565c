//! bindfs over one directory.

use super::System;
use crate::cleanup::Undo;
use crate::shell::{installed, run, unmount};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names and attributes cached for as long as the kernel likes; its one thread was faster than several.
const OPTIONS: [&str; 2] = ["-o", "attr_timeout=3600,entry_timeout=3600,negative_timeout=3600"];

/// bindfs, with arguments added to the best that were found.
pub struct Bindfs {
    extra: Vec<String>,
    mount: Option<Undo>,
}

impl Bindfs {
    /// Not mounted yet.
    pub fn new(extra: Vec<String>) -> Self {
        Self { extra, mount: None }
    }
}

impl System for Bindfs {
    fn unavailable(&self) -> Option<String> {
        (!installed("bindfs")).then(|| "bindfs is not installed".into())
    }

    fn up(&mut self, place: &Path) -> Result<PathBuf> {
        let below = super::directory(place, "below")?;
        let mount = super::directory(place, "mnt")?;
        // Registered first: a signal may come while it mounts.
        let mounted = mount.clone();
        self.mount = Some(Undo::new(move || unmount(&mounted)));
        run(Command::new("bindfs").args(OPTIONS).args(&self.extra).arg(&below).arg(&mount))?;
        Ok(mount)
    }

    fn down(&mut self) -> Result<()> {
        self.mount = None;
        Ok(())
    }
}
