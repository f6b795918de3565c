//! `ullage check`.

use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check a space that is down: every record, every total, every backing file.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: clean. 1: something is wrong, or the space is up.

Example:
  ullage down /srv/space && ullage check /srv/space")]
pub struct Check {
    /// Where it is mounted when it is up.
    mountpoint: PathBuf,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Reads everything and prints what is wrong.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let state = super::state_of(&self.mountpoint, self.state.as_deref())?;
        if ullage_daemon::Client::connect(&state)?.is_some() {
            anyhow::bail!("{0} is up; end it with `ullage down {0}` first", self.mountpoint.display());
        }
        let report = ullage_daemon::check(&state)?;
        if self.json {
            output::json(&report)?;
        } else {
            output::facts(&[
                ("files", report.files.to_string()),
                ("directories", report.directories.to_string()),
                ("entries", report.entries.to_string()),
                ("without a name", report.orphans.to_string()),
                ("backing files", report.backing_files.to_string()),
            ]);
            for finding in &report.findings {
                println!("wrong: {finding}");
            }
            println!("{}", if report.findings.is_empty() { "clean" } else { "NOT clean" });
        }
        Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
