//! `ullage pool`.

use crate::output;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_daemon::{Answer, PoolReport, Request};

/// Look at pools.
#[derive(Debug, Args)]
pub struct Pool {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// Show every pool of a space, and what the file system below it can do.
    #[command(after_help = "Example:\n  ullage pool list /srv/space")]
    List {
        /// Where the space is mounted.
        mountpoint: PathBuf,
        /// Its state directory, where it is not the usual one.
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

impl Pool {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let PoolCommand::List { mountpoint, state, json } = self.command;
        let state = super::state_of(&mountpoint, state.as_deref())?;
        let mut client = super::connect(&state, &mountpoint)?;
        let answer = match client.ask(&Request::Pools) {
            // An earlier version's daemon, until the space is mounted anew.
            Err(_) => super::connect(&state, &mountpoint)?.ask(&Request::Status)?,
            Ok(answer) => answer,
        };
        let Answer::Status(report) = answer else { anyhow::bail!("the daemon answered another question") };
        if json {
            output::json(&serde_json::json!({ "pools": report.pools }))?;
        } else {
            print(&report.pools);
            for pool in &report.pools {
                say!("{}: limits: {}", pool.name, pool.limits);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The table of pools.
pub fn print(pools: &[PoolReport]) {
    let mut table =
        output::table(&["POOL", "KIND", "LAYOUT", "BELOW", "TOTAL", "FREE", "RESERVE", "CAN", "PATH"], &[4, 5, 6]);
    for pool in pools {
        let can: Vec<&str> = pool.abilities.iter().filter(|(_, able)| **able).map(|(name, _)| name.as_str()).collect();
        table.add_row([
            pool.name.clone(),
            pool.kind.clone(),
            pool.layout.clone().unwrap_or_else(|| "-".into()),
            pool.fs_type.clone().unwrap_or_else(|| "-".into()),
            pool.total.to_string(),
            pool.free.to_string(),
            pool.reserve.to_string(),
            if can.is_empty() { "-".into() } else { can.join(",") },
            pool.path.as_ref().map_or_else(|| "-".into(), output::shown),
        ]);
    }
    say!("{table}");
    for pool in pools {
        for note in &pool.notes {
            say!("{}: {note}", pool.name);
        }
    }
}
