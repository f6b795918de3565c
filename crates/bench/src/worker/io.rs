//! Reads and writes of one file through the page cache.

use super::Gate;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// One file, read and written in blocks of several sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Io {
    /// The file; made and removed here.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Chooses the random offsets.
    pub seed: u64,
    /// Whether reads must give back what was written.
    pub verify: bool,
}

/// The sizes of one read or write.
const BLOCKS: [(&str, usize); 2] = [("4k", 4 << 10), ("1m", 1 << 20)];

/// Names of the phases, in order.
pub fn phases() -> Vec<String> {
    let kinds = ["write-seq", "read-seq", "write-random", "read-random", "write-only", "read-only"];
    BLOCKS.iter().flat_map(|(size, _)| kinds.iter().map(move |kind| format!("{kind}-{size}"))).collect()
}

impl Io {
    /// All phases. Every one moves `bytes` bytes, so that throughput compares.
    pub fn run(&self, gate: &mut Gate) -> Result<()> {
        let mut random = Random::new(self.seed);
        for (_, size) in BLOCKS {
            let block = random.text(size);
            let mut buffer = vec![0; size];
            let blocks = (self.bytes / size as u64) as usize;
            let order = random.shuffled(blocks);
            let file = gate.phase(|| {
                let file = File::options().read(true).write(true).create_new(true).open(&self.file);
                let file = file.with_context(|| format!("create {}", self.file.display()))?;
                (0..blocks).try_for_each(|at| file.write_all_at(&block, (at * size) as u64))?;
                Ok(file)
            })?;
            let mut read = |offsets: &mut dyn Iterator<Item = usize>| -> Result<()> {
                for at in offsets {
                    file.read_exact_at(&mut buffer, (at * size) as u64)?;
                }
                Ok(())
            };
            gate.phase(|| read(&mut (0..blocks)))?;
            gate.phase(|| {
                order.iter().try_for_each(|at| file.write_all_at(&block, (at * size) as u64)).context("write at random")
            })?;
            gate.phase(|| read(&mut order.iter().copied()))?;
            ensure!(!self.verify || buffer == block, "what was read is not what was written");
            drop(file);
            std::fs::remove_file(&self.file)?;
            // As cp(1) does it, or dd(1): each handle for one purpose.
            gate.phase(|| {
                let file = File::options().write(true).create_new(true).open(&self.file)?;
                (0..blocks).try_for_each(|at| file.write_all_at(&block, (at * size) as u64)).context("write")
            })?;
            gate.phase(|| {
                let file = File::open(&self.file)?;
                (0..blocks).try_for_each(|at| file.read_exact_at(&mut buffer, (at * size) as u64)).context("read")
            })?;
            ensure!(!self.verify || buffer == block, "what was read is not what was written");
            std::fs::remove_file(&self.file)?;
        }
        Ok(())
    }
}
