//! Sequential and random reads and writes through the page cache.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, io};
use anyhow::Result;
use std::path::Path;

/// One file, 4 KiB and 1 MiB at a time.
pub struct Io;

impl Workload for Io {
    fn name(&self) -> String {
        "io".into()
    }

    fn about(&self) -> String {
        "one file through the page cache, 4 KiB and 1 MiB at a time: sequential, random, by handles for one of both only".into()
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        ((context.file_bytes * 12) >> 20, "MiB moved")
    }

    fn prepare(&self, _: &Context, _: &Path) -> Result<()> {
        Ok(())
    }

    fn run(&self, context: &Context, directory: &Path, seed: u64) -> Result<Vec<Measurement>> {
        let job = io::Io { file: directory.join("file"), bytes: context.file_bytes, seed, verify: true };
        let names = io::phases();
        // Settled before each phase: a read must not share the disk with the write before it.
        let phases = Crew::start(&context.helper, &[Job::Io(job)])?.run(caches::settle)?.phases;
        let measured = names.iter().zip(phases);
        Ok(measured.map(|(name, seconds)| Measurement::throughput(name, context.file_bytes, seconds)).collect())
    }
}
