//! `ullage pool remove`.

use super::super::{connect, have_done, hint, state_at};
use crate::output;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use ullage_daemon::{Answer, Client, DrainReport, PoolReport, Removed, Request, State, remove_pool};

/// Between two looks at how far it has come.
const PAUSE: Duration = Duration::from_millis(300);

/// Empty a pool and take it out of its space: its files go to the others, while everybody works on.
#[derive(Debug, Args)]
#[command(after_help = "\
The pool takes no new files from then on. What is opened in it can be moved while it is open; what has been open since before is waited for.
Ended early, by Ctrl-C or otherwise, it goes on in the background, and with the next start; `ullage pool list` tells how far it has come.
An empty pool leaves the space with the next `ullage down`, or at once where the space is down.

Examples:
  ullage pool remove /srv/space old
  ullage pool remove /srv/space old --no-wait && ullage pool list /srv/space
  ullage pool remove /srv/space old --cancel")]
pub struct Remove {
    /// Where the space is mounted, or is when it is up.
    mountpoint: PathBuf,
    /// The pool's name.
    #[arg(value_name = "NAME")]
    pool: String,
    /// Let it take files again; what has left it stays where it is.
    #[arg(long, conflicts_with = "no_wait")]
    cancel: bool,
    /// Do not wait until it is empty.
    #[arg(long)]
    no_wait: bool,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Remove {
    /// Asks the daemon where there is one, and waits.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let state = state_at(&self.mountpoint, self.state.as_deref())?;
        let Some(mut client) = Client::connect(&state)? else { return self.while_down(&state) };
        have_done(&mut client, &Request::Drain { pool: self.pool.clone(), drains: !self.cancel })?;
        let down = hint::command("down", &state, &self.mountpoint);
        if self.cancel {
            return self.say(None, &format!("the pool '{}' takes files again", self.pool));
        }
        if self.no_wait {
            let list = hint::command("pool list", &state, &self.mountpoint);
            return self
                .say(None, &format!("the pool '{}' is being emptied; `{list}` tells how far it has come", self.pool));
        }
        let report = self.wait(&state)?;
        self.say(
            Some(&report),
            &format!("the pool '{}' is empty: it leaves the space with the next `{down}`", self.pool),
        )
    }

    fn while_down(&self, state: &State) -> anyhow::Result<ExitCode> {
        let text = match remove_pool(state, &self.pool, self.cancel)? {
            Removed::Kept => format!("the pool '{}' takes files again", self.pool),
            Removed::Gone(Ok(0)) => format!("the space is without the pool '{}'", self.pool),
            Removed::Gone(Ok(left)) => {
                format!(
                    "the space is without the pool '{}'; {left} files that are none of its are left in its directory",
                    self.pool
                )
            }
            Removed::Gone(Err(why)) => {
                format!("the space is without the pool '{}'; its directory stays as it is: {why}", self.pool)
            }
            Removed::Draining(files, bytes) => format!(
                "{files} files with {bytes} lie in the pool '{}': they go to the others from the next `{}` on",
                self.pool,
                hint::command("up", state, &self.mountpoint)
            ),
        };
        self.say(None, &text)
    }

    /// Until nothing is left.
    fn wait(&self, state: &State) -> anyhow::Result<DrainReport> {
        let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        let bar = output::bar(self.json, style);
        let mut told = false;
        loop {
            let mut client = connect(state, &self.mountpoint)?;
            let Answer::Status(status) = client.ask(&Request::Status)? else {
                bail!("the daemon answered another question")
            };
            let report = find(&status.pools, &self.pool)?;
            if report.left.is_none() && report.failed > 0 {
                bail!("the files in the pool '{}' cannot be found: {}", self.pool, failure(report));
            }
            if let Some(left) = report.left {
                bar.set_length(report.moved.bytes.0 + left.bytes.0);
                bar.set_position(report.moved.bytes.0);
                if left.files == 0 {
                    bar.finish_and_clear();
                    return Ok(report.clone());
                }
                let stuck = report.in_use + report.failed >= left.files || report.lacks_room;
                if stuck && report.in_use == 0 {
                    bar.finish_and_clear();
                    bail!("{}", why_stuck(&self.pool, report));
                }
                if stuck {
                    let waits = waits_for(report);
                    bar.set_message(waits.clone());
                    if !told && bar.is_hidden() {
                        whisper!("{waits}");
                    }
                    told = true;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn say(&self, report: Option<&DrainReport>, text: &str) -> anyhow::Result<ExitCode> {
        if self.json {
            output::json(&serde_json::json!({ "pool": self.pool, "message": text, "draining": report }))?;
        } else {
            say!("{text}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn find<'a>(pools: &'a [PoolReport], name: &str) -> anyhow::Result<&'a DrainReport> {
    let found = pools.iter().find(|pool| pool.name == name).and_then(|pool| pool.draining.as_ref());
    found.ok_or_else(|| anyhow::anyhow!("the pool '{name}' is not being emptied any more"))
}

/// Who is waited for.
pub fn waits_for(report: &DrainReport) -> String {
    let names: Vec<String> = report.in_use_paths.iter().map(output::shown).collect();
    let told = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let more = if !names.is_empty() && report.in_use > names.len() as u64 { ", …" } else { "" };
    format!("waiting for {} files that are in use{told}{more}", report.in_use)
}

fn why_stuck(pool: &str, report: &DrainReport) -> String {
    let left = report.left.map_or(0, |left| left.files);
    let why = match report.failed {
        0 => failure(report).to_owned(),
        failed => format!("{failed} could not be moved ({})", failure(report)),
    };
    format!("{left} files are left in the pool '{pool}': {why}; it is tried again and again, and `--cancel` ends that")
}

fn failure(report: &DrainReport) -> &str {
    report.failure.as_deref().unwrap_or("no other pool has room for what is left")
}

/// What the list of pools says of one that is being emptied.
pub fn note(report: &DrainReport) -> String {
    let mut text = match report.left {
        Some(left) if left.files == 0 => "is empty, and leaves the space with the next `ullage down`".to_owned(),
        Some(left) => format!("is being emptied: {} files with {} are left", left.files, left.bytes),
        None => "is being emptied".to_owned(),
    };
    if report.in_use > 0 {
        text = format!("{text}; {}", waits_for(report));
    }
    if report.lacks_room || report.failed > 0 {
        text = format!("{text}; {}", failure(report));
    }
    text
}
