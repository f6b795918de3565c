//! `ullage df`.

use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_daemon::{Answer, DfReport, Request};

/// Show what is free and what is used, at once.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage df /srv/space --json")]
pub struct Df {
    /// Where the space is mounted.
    mountpoint: PathBuf,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Df {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let state = super::state_of(&self.mountpoint, self.state.as_deref())?;
        let mut client = super::connect(&state, &self.mountpoint)?;
        let Answer::Df(report) = client.ask(&Request::Df)? else {
            anyhow::bail!("the daemon answered another question")
        };
        if self.json {
            output::json(&report)?;
        } else {
            print(&report);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(report: &DfReport) {
    let none = || "none".to_owned();
    output::facts(&[
        ("total", report.total.to_string()),
        ("free", report.free.to_string()),
        ("used", format!("{} in {} files", report.used, report.inodes)),
        ("held", report.held.to_string()),
        ("reclaimable", report.reclaimable.to_string()),
        ("guaranteed", report.guaranteed.to_string()),
        ("reserve", report.reserve.to_string()),
        ("limit", report.size.map_or_else(none, |size| size.to_string())),
        ("inode limit", report.size_inodes.map_or_else(none, |most| most.to_string())),
    ]);
}
