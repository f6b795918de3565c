//! `ullage rebuild`.

use super::hint;
use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_daemon::{PoolSettings, State};

/// Make the state of a space again from its pools, when catalog or state directory are lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Each pool carries a copy of the catalog that is half a minute old at most, and each file in a pool its number and owner.
Names come from the newest copy that is whole; files made after it come to lost+found, with their owners; files removed
after it are dropped. Without any copy all files come to lost+found. The pools are not changed.

Exit code 0: rebuilt. 1: refused, or something was lost: a copy was not whole, or there was none.

Examples:
  ullage rebuild /srv/space --state /srv/space.new --pool main=/data/pool
  ullage up /srv/space --state /srv/space.new
  ullage rebuild /mnt --state /var/lib/ullage/b --pool fast=/nvme/p --without big")]
pub struct Rebuild {
    /// Where the space will be mounted.
    mountpoint: PathBuf,
    /// The new state directory, which must not hold a space.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// A pool of the space: NAME=PATH[,reserve=SIZE]. All of them.
    #[arg(long = "pool", value_name = "POOL", required = true)]
    pools: Vec<PoolSettings>,
    /// A pool that is gone for good, with the files in it.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Rebuild {
    /// Rebuilds and says from what.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mountpoint = super::settled(&self.mountpoint)?;
        let state = State::at(std::path::absolute(&self.state)?);
        let spinner = output::spinner();
        let report = ullage_daemon::rebuild(&mountpoint, &state, self.pools, &self.without, &mut |what, count| {
            output::spin(&spinner, what, count);
        });
        spinner.finish_and_clear();
        let report = report?;
        if self.json {
            output::json(&report)?;
        } else {
            let snapshot = match report.snapshot_age_seconds {
                Some(age) => format!("{age} s old, {} pieces of the log after it", report.tails),
                None => "none: names are lost".into(),
            };
            output::facts(&[
                ("state", report.state.display().to_string()),
                ("snapshot", snapshot),
                ("files", report.files.to_string()),
                ("in lost+found", report.adopted.to_string()),
                ("dropped", report.dropped.to_string()),
            ]);
            report.warnings.iter().for_each(|text| say!("warning: {}", output::shown(text)));
            report.damaged.iter().for_each(|text| say!("not whole: {}", output::shown(text)));
            report.lost.iter().for_each(|text| say!("lost: {}", output::shown(text)));
            say!("rebuilt; start it with `{}`", hint::command("up", &state, &mountpoint));
        }
        let nameless = report.snapshot_age_seconds.is_none() && report.adopted > 0;
        let whole = report.lost.is_empty() && report.damaged.is_empty() && !nameless;
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
