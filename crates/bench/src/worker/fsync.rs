//! Small files, each made durable before the next.

use super::Gate;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// Create, write, fsync, close; again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fsync {
    /// Where.
    pub directory: PathBuf,
    /// How many files.
    pub files: u64,
    /// Bytes in each.
    pub bytes: usize,
    /// Which of several workers this is; part of the names.
    pub worker: usize,
}

impl Fsync {
    /// The one phase.
    pub fn run(&self, gate: &mut Gate) -> Result<()> {
        let data = vec![b'u'; self.bytes];
        gate.phase(|| {
            for number in 0..self.files {
                let path = self.directory.join(format!("{}.{number}", self.worker));
                let mut file = File::create_new(&path).with_context(|| format!("create {}", path.display()))?;
                file.write_all(&data)?;
                file.sync_all()?;
            }
            Ok(())
        })
    }
}
