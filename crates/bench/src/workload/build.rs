//! Building a real C package.

use super::{Context, Workload};
use crate::measurement::Measurement;
use crate::shell::{installed, run, run_quietly};
use crate::sources;
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The Debian source package that is built: real C, 35 files, no configure script, a few seconds.
const PACKAGE: &str = "lua5.4";

/// `make -j2` of Lua.
pub struct Build;

impl Workload for Build {
    fn name(&self) -> String {
        "build".into()
    }

    fn about(&self) -> String {
        format!("make -j2 of Debian's source package {PACKAGE}")
    }

    fn unavailable(&self, context: &Context) -> Option<String> {
        for program in ["make", "gcc", "tar"] {
            if !installed(program) {
                return Some(format!("{program} is not installed"));
            }
        }
        sources::package(&context.cache, PACKAGE).err().map(|error| format!("no source of {PACKAGE}: {error:#}"))
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn operations(&self, _: &Context) -> (u64, &'static str) {
        (1, "build")
    }

    fn prepare(&self, context: &Context, directory: &Path) -> Result<()> {
        let archive = sources::package(&context.cache, PACKAGE)?;
        run(Command::new("tar")
            .args(["--strip-components=1", "--no-same-owner", "-xf"])
            .arg(archive)
            .arg("-C")
            .arg(directory))?;
        Ok(())
    }

    fn run(&self, _: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let start = Instant::now();
        run_quietly(Command::new("make").arg("-C").arg(directory.join("src")).args(["-j2", "linux"]))?;
        Ok(vec![Measurement::seconds("total", start.elapsed().as_secs_f64())])
    }

    fn reset(&self, _: &Context, directory: &Path) -> Result<()> {
        run_quietly(Command::new("make").arg("-C").arg(directory.join("src")).arg("clean"))
    }
}
