//! What one request and its answer take.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use anyhow::Result;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

const FILE: &str = "round-trip";

/// statx(2) of an open file with `AT_STATX_FORCE_SYNC`, for which the kernel asks a FUSE server each time, and ext4 nobody.
pub struct RoundTrip;

impl Workload for RoundTrip {
    fn name(&self) -> String {
        "round-trip".into()
    }

    fn about(&self) -> String {
        "100,000 forced GETATTR of one open file by one process, in a row".into()
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (context.scale(100_000, 5_000), "call")
    }

    fn prepare(&self, _: &Context, directory: &Path) -> Result<()> {
        File::create_new(directory.join(FILE))?;
        Ok(())
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let file = File::open(directory.join(FILE))?;
        let calls = self.operations(context).0;
        caches::settle();
        let mut took = Vec::with_capacity(calls as usize);
        for _ in 0..calls {
            let begun = Instant::now();
            statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
            took.push(begun.elapsed().as_secs_f64());
        }
        took.sort_unstable_by(f64::total_cmp);
        let part = |metric: &str, part: usize| Measurement::per_operation(metric, took[took.len() * part / 100], 1);
        Ok(vec![part("p50", 50), part("p99", 99)])
    }
}
