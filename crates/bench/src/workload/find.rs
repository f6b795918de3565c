//! GNU find over a large tree.

use super::{Context, Workload};
use crate::measurement::Measurement;
use crate::shell::run_quietly;
use crate::tree::{self, Shape};
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SHAPE: Shape = Shape { directories: 7715, files: 32416, file_bytes: 4096 };

/// One way of walking.
pub struct Find {
    /// With all caches empty.
    pub cold: bool,
    /// With an lstat of every file.
    pub sizes: bool,
}

fn shape(context: &Context) -> Shape {
    context.scale(SHAPE, Shape { directories: SHAPE.directories / 20, files: SHAPE.files / 20, ..SHAPE })
}

impl Workload for Find {
    fn name(&self) -> String {
        let temperature = if self.cold { "cold" } else { "warm" };
        format!("find-{temperature}{}", if self.sizes { "-sizes" } else { "" })
    }

    fn about(&self) -> String {
        let what = if self.sizes { "names and sizes" } else { "names" };
        let caches = if self.cold { "empty" } else { "warm" };
        format!("find over {} files in {} directories: {what}, caches {caches}", SHAPE.files, SHAPE.directories)
    }

    fn cold(&self) -> bool {
        self.cold
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        let shape = shape(context);
        ((shape.files + shape.directories) as u64, "entry")
    }

    fn prepare(&self, context: &Context, directory: &Path) -> Result<()> {
        let top = directory.join("tree");
        std::fs::create_dir(&top)?;
        tree::make(&top, shape(context), context.seed).map(drop)
    }

    fn run(&self, _: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let mut command = Command::new("find");
        command.arg(directory.join("tree"));
        if self.sizes {
            // No file is that large: the size is asked of every one and nothing is printed.
            command.args(["-size", "+1000000G"]);
        }
        let start = Instant::now();
        run_quietly(&mut command)?;
        Ok(vec![Measurement::seconds("total", start.elapsed().as_secs_f64())])
    }
}
