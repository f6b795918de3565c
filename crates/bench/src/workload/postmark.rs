//! PostMark, in one process or several at once.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, postmark};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// One variant of PostMark.
pub struct PostMark {
    processes: usize,
    subdirectories: u64,
    buffered: bool,
}

impl PostMark {
    /// As published, several at once, each in a directory of its own.
    pub fn parallel(processes: usize) -> Self {
        Self { processes, subdirectories: 0, buffered: true }
    }

    /// One system call for every 512 bytes.
    pub fn unbuffered() -> Self {
        Self { processes: 1, subdirectories: 0, buffered: false }
    }

    /// Files spread over a hundred directories.
    pub fn with_subdirectories() -> Self {
        Self { processes: 1, subdirectories: 100, buffered: true }
    }

    fn job(&self, context: &Context, directory: PathBuf, seed: u64) -> postmark::PostMark {
        let mut job = postmark::PostMark::new(directory, seed);
        job.files = context.scale(job.files, 200);
        job.transactions = context.scale(job.transactions, 400);
        job.subdirectories = self.subdirectories;
        job.buffered = self.buffered;
        job
    }

    fn directories(&self, directory: &Path) -> Vec<PathBuf> {
        (0..self.processes).map(|process| directory.join(format!("postmark{process}"))).collect()
    }
}

impl Workload for PostMark {
    fn name(&self) -> String {
        match (self.processes, self.buffered, self.subdirectories) {
            (_, false, _) => "postmark-unbuffered".into(),
            (1, _, 0) => "postmark".into(),
            (processes, _, 0) => format!("postmark-{processes}"),
            _ => "postmark-subdirectories".into(),
        }
    }

    fn about(&self) -> String {
        let how = match (self.buffered, self.subdirectories) {
            (false, _) => "unbuffered",
            (_, 0) => "as published",
            _ => "in 100 directories",
        };
        format!("PostMark, {} at once, {how}: 2500 files of 8-64 KB, 5000 transactions each", self.processes)
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (self.job(context, PathBuf::new(), 0).transactions * self.processes as u64, "transaction")
    }

    fn prepare(&self, _: &Context, directory: &Path) -> Result<()> {
        Ok(self.directories(directory).iter().try_for_each(std::fs::create_dir)?)
    }

    fn run(&self, context: &Context, directory: &Path, seed: u64) -> Result<Vec<Measurement>> {
        let jobs = self.directories(directory).into_iter().zip(0..);
        let jobs: Vec<Job> = jobs.map(|(dir, n)| Job::PostMark(self.job(context, dir, seed * 64 + n))).collect();
        let crew = Crew::start(&context.helper, &jobs)?;
        caches::settle();
        let finished = crew.run(|| ())?;
        for result in finished.results {
            let counts: postmark::Counts = serde_json::from_value(result)?;
            ensure!(counts.created == counts.deleted, "PostMark lost files: {counts:?}");
        }
        let phases = finished.phases;
        Ok(vec![
            Measurement::seconds("total", phases.iter().sum()),
            Measurement::seconds("create", phases[0]),
            Measurement::seconds("transactions", phases[1]),
            Measurement::seconds("delete", phases[2]),
        ])
    }
}
