//! Small files, each made durable.

use super::{Context, Workload, empty};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, fsync};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Create, write 8 KB, fsync, close; by one process or several at once.
pub struct Fsync {
    /// How many.
    pub processes: usize,
}

impl Workload for Fsync {
    fn name(&self) -> String {
        if self.processes == 1 { "fsync".into() } else { format!("fsync-{}", self.processes) }
    }

    fn about(&self) -> String {
        format!("create + 8 KB + fsync, 500 files, {} at once, each in a directory of its own", self.processes)
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (context.scale(500, 20) * self.processes as u64, "file")
    }

    fn prepare(&self, _: &Context, directory: &Path) -> Result<()> {
        Ok((0..self.processes).try_for_each(|worker| std::fs::create_dir(own(directory, worker)))?)
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let all = self.operations(context).0;
        let files = all / self.processes as u64;
        let job =
            |worker| Job::Fsync(fsync::Fsync { directory: own(directory, worker), files, bytes: 8 << 10, worker });
        let jobs: Vec<Job> = (0..self.processes).map(job).collect();
        let crew = Crew::start(&context.helper, &jobs)?;
        caches::settle();
        Ok(vec![Measurement::per_operation("file", crew.run(|| ())?.phases[0], all)])
    }

    fn reset(&self, _: &Context, directory: &Path) -> Result<()> {
        (0..self.processes).try_for_each(|worker| empty(&own(directory, worker)))
    }
}

fn own(directory: &Path, worker: usize) -> PathBuf {
    directory.join(format!("fsync{worker}"))
}
