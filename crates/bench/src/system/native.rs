//! The ground itself: a directory of the ext4.

use super::System;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Plain ext4, what everything is compared with.
pub struct Native;

impl System for Native {
    fn unavailable(&self) -> Option<String> {
        None
    }

    fn up(&mut self, place: &Path) -> Result<PathBuf> {
        super::directory(place, "native")
    }

    fn down(&mut self) -> Result<()> {
        Ok(())
    }
}
