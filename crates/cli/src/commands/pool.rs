//! `ullage pool`.

mod remove;

use super::hint;
use crate::output;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_daemon::{Answer, Client, PoolReport, PoolSettings, Request, State, add_pool};

/// Look at pools, add some, and take them away.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage pool list /srv/space
  ullage pool add /srv/space big=/hdd/pool
  ullage pool remove /srv/space old")]
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
    /// Add a pool: it takes files at once where the space is up, else from the next `ullage up` on.
    #[command(after_help = "\
New files are spread over all pools then, as `ullage up --spread` said at first use. Files stay where they are. A pool with
`layout=mirror` is added while the space is down.

Examples:
  ullage pool add /srv/space big=/hdd/pool
  ullage pool add /srv/space big=/hdd/pool,reserve=10G")]
    Add {
        /// Where the space is mounted when it is up.
        mountpoint: PathBuf,
        /// The pool: `NAME=PATH[,layout=sparse|mirror][,reserve=SIZE]`, in an empty directory.
        #[arg(value_name = "POOL")]
        pool: PoolSettings,
        /// Its state directory, where it is not the usual one.
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    Remove(remove::Remove),
}

impl Pool {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            PoolCommand::List { mountpoint, state, json } => {
                list(&mountpoint, &super::state_of(&mountpoint, state.as_deref())?, json)?;
            }
            PoolCommand::Add { mountpoint, pool, state, json } => {
                add(&mountpoint, &super::state_at(&mountpoint, state.as_deref())?, &pool, json)?;
            }
            PoolCommand::Remove(remove) => return remove.run(),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(mountpoint: &Path, state: &State, json: bool) -> anyhow::Result<()> {
    let mut client = super::connect(state, mountpoint)?;
    let answer = match client.ask(&Request::Pools) {
        Err(error @ ullage_daemon::Error::Silent(_)) => return Err(error.into()),
        // An earlier version's daemon, until the space is mounted anew.
        Err(_) => super::connect(state, mountpoint)?.ask(&Request::Status)?,
        Ok(answer) => answer,
    };
    let Answer::Status(report) = answer else { anyhow::bail!("the daemon answered another question") };
    if json {
        return output::json(&serde_json::json!({ "pools": report.pools }));
    }
    print(&report.pools);
    for pool in &report.pools {
        say!("{}", output::shown(format!("{}: limits: {}", pool.name, pool.limits)));
    }
    Ok(())
}

fn add(mountpoint: &Path, state: &State, pool: &PoolSettings, json: bool) -> anyhow::Result<()> {
    let mut daemon = Client::connect(state)?;
    let settings = match &mut daemon {
        Some(client) => {
            super::have_done(client, &Request::AddPool { pool: Box::new(pool.clone()) }).map_err(|error| {
                let is_silent = matches!(error.downcast_ref(), Some(ullage_daemon::Error::Silent(_)));
                if is_silent { error.context("the pool may be added later: `ullage pool list` tells") } else { error }
            })?;
            state.existing()?
        }
        None => add_pool(state, pool)?,
    };
    if json {
        let shown =
            |pool: &PoolSettings| serde_json::json!({ "name": pool.name, "path": pool.path.display().to_string() });
        return output::json(&serde_json::json!({ "pools": settings.pools.iter().map(shown).collect::<Vec<_>>() }));
    }
    let pools = settings.pools.len();
    if daemon.is_some() {
        say!("the space has {pools} pools now, and new files go to all of them");
    } else {
        say!("the space has {pools} pools from the next `{}` on", hint::command("up", state, mountpoint));
    }
    Ok(())
}

/// The table of pools.
pub fn print(pools: &[PoolReport]) {
    say!("{}", text_of(pools));
}

/// As a terminal may have it: the daemon of another user's space may say anything.
fn text_of(pools: &[PoolReport]) -> String {
    let mut table =
        output::table(&["POOL", "KIND", "LAYOUT", "BELOW", "TOTAL", "FREE", "RESERVE", "CAN", "PATH"], &[4, 5, 6]);
    let shown = |text: &Option<String>| text.as_ref().map_or_else(|| "-".into(), output::shown);
    for pool in pools {
        let can: Vec<&str> = pool.abilities.iter().filter(|(_, able)| **able).map(|(name, _)| name.as_str()).collect();
        table.add_row([
            output::shown(&pool.name),
            output::shown(&pool.kind),
            shown(&pool.layout),
            shown(&pool.fs_type),
            pool.total.to_string(),
            pool.free.to_string(),
            pool.reserve.to_string(),
            if can.is_empty() { "-".into() } else { output::shown(can.join(",")) },
            pool.path.as_ref().map_or_else(|| "-".into(), output::shown),
        ]);
    }
    let mut lines = vec![table.to_string()];
    for pool in pools {
        let draining = pool.draining.as_ref().map(remove::note);
        lines.extend(pool.notes.iter().chain(&draining).map(|note| output::shown(format!("{}: {note}", pool.name))));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root's terminal did what an ordinary user's daemon said.
    #[test]
    fn what_a_daemon_says_of_its_pools_leads_no_terminal() {
        let odd = "a\u{1b}[2J\nb";
        let report = serde_json::json!({
            "name": odd, "kind": odd, "layout": odd, "path": odd, "fs_type": odd, "total": 1, "free": 1, "reserve": 0,
            "abilities": { odd: true }, "limits": odd, "notes": [odd],
        });
        let text = text_of(&[serde_json::from_value(report).unwrap()]);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
