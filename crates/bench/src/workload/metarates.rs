//! metarates: create, stat, utime, open and close, unlink in one shared directory.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, metarates};
use anyhow::Result;
use std::path::Path;

/// Small directories are filled several times over, so that there is enough to time.
const LEAST_FILES: u64 = 4096;

/// One size of the directory and number of processes.
pub struct Metarates {
    /// Files in the directory, of all processes together.
    pub files: u64,
    /// Processes at once.
    pub processes: u64,
}

impl Metarates {
    fn files(&self, context: &Context) -> u64 {
        context.scale(self.files, self.files.min(512))
    }

    fn rounds(&self, context: &Context) -> u64 {
        context.scale((LEAST_FILES / self.files).max(1), 1)
    }
}

impl Workload for Metarates {
    fn name(&self) -> String {
        format!("metarates-{}-{}", self.files, self.processes)
    }

    fn about(&self) -> String {
        format!(
            "create, stat, utime, open+close, unlink: {} files of one directory, {} at once",
            self.files, self.processes
        )
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (self.files(context) * self.rounds(context), "file")
    }

    fn prepare(&self, _: &Context, directory: &Path) -> Result<()> {
        Ok(std::fs::create_dir(directory.join("shared"))?)
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let shared = directory.join("shared");
        let files = self.files(context) / self.processes;
        let job = |worker| Job::Metarates(metarates::Metarates { directory: shared.clone(), files, worker });
        let jobs: Vec<Job> = (0..self.processes as usize).map(job).collect();
        let mut seconds = [0.0; metarates::PHASES.len()];
        let rounds = self.rounds(context);
        for _ in 0..rounds {
            let crew = Crew::start(&context.helper, &jobs)?;
            caches::settle();
            for (sum, phase) in seconds.iter_mut().zip(crew.run(|| ())?.phases) {
                *sum += phase;
            }
        }
        // Time per file as the directory's users see it: several processes may do several at once.
        let measured = metarates::PHASES.iter().zip(seconds);
        Ok(measured.map(|(name, sum)| Measurement::per_operation(name, sum, files * self.processes * rounds)).collect())
    }
}
