//! Small files, each made durable.

use super::{Context, Workload, empty};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, fsync};
use anyhow::Result;
use std::path::Path;

/// Create, write 8 KB, fsync, close.
pub struct Fsync;

impl Workload for Fsync {
    fn name(&self) -> String {
        "fsync".into()
    }

    fn about(&self) -> String {
        "create + 8 KB + fsync, 500 files".into()
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (context.scale(500, 20), "file")
    }

    fn prepare(&self, _: &Context, _: &Path) -> Result<()> {
        Ok(())
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let files = self.operations(context).0;
        let job = fsync::Fsync { directory: directory.to_owned(), files, bytes: 8 << 10, worker: 0 };
        let crew = Crew::start(&context.helper, &[Job::Fsync(job)])?;
        caches::settle();
        Ok(vec![Measurement::per_operation("file", crew.run(|| ())?.phases[0], files)])
    }

    fn reset(&self, _: &Context, directory: &Path) -> Result<()> {
        empty(directory)
    }
}
