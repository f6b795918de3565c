//! `ullage status`.

use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_daemon::{Answer, Request};

/// Show how a space is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage status /srv/space
  ullage status /srv/space --json | jq .pid")]
pub struct Status {
    /// Where it is mounted.
    mountpoint: PathBuf,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let state = super::state_of(&self.mountpoint, self.state.as_deref())?;
        let mut client = super::connect(&state, &self.mountpoint)?;
        let Answer::Status(report) = client.ask(&Request::Status)? else {
            anyhow::bail!("the daemon answered another question")
        };
        let elsewhere = if report.detached { ullage_daemon::mounts_of(&state, &report.state)? } else { Vec::new() };
        if self.json {
            let mut told = serde_json::to_value(&report)?;
            if report.detached {
                let places: Vec<_> = elsewhere.iter().map(|place| place.to_string_lossy()).collect();
                told["still_mounted_at"] = serde_json::json!(places);
            }
            output::json(&told)?;
            return Ok(ExitCode::SUCCESS);
        }
        let why = if report.transport_why.is_empty() { String::new() } else { format!(" ({})", report.transport_why) };
        let point = report.mountpoint.display();
        let mut facts = vec![
            match elsewhere.first() {
                Some(other) => ("taken away", format!("from {point}; it is still mounted at {}", other.display())),
                None if report.detached => {
                    ("taken away", format!("from {point}; the daemon ends with the last user of what is open"))
                }
                None => ("mounted at", point.to_string()),
            },
            ("state", report.state.display().to_string()),
            ("daemon", format!("process {}, version {}, up {} s", report.pid, report.version, report.uptime_seconds)),
            ("transport", format!("{}{why}", report.transport)),
            ("data", if report.passthrough { "in the kernel (passthrough)" } else { "through the server" }.to_owned()),
            ("used", format!("{} in {} files", report.used.bytes, report.used.inodes)),
        ];
        facts.extend(report.catalog_failure.map(|why| ("FAILED", why)));
        output::facts(&facts);
        say!();
        super::pool::print(&report.pools);
        Ok(ExitCode::SUCCESS)
    }
}
