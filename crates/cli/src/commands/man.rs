//! `ullage man`.

use anyhow::Context;
use clap::{Args, CommandFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage man /usr/local/share/man/man1")]
pub struct Man {
    /// The directory to write them to.
    directory: PathBuf,
}

impl Man {
    /// Writes one page a command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        for command in [crate::Arguments::command(), super::MountHelper::command()] {
            clap_mangen::generate_to(command, &self.directory)
                .with_context(|| format!("cannot write to {}", self.directory.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
