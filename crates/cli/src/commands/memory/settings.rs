//! How a controller is to divide memory, and whether one that runs does so.

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use ullage_memory::control::Config;
use ullage_memory::runtime::Status;

#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The cgroup whose memory is divided [default: the machine, or what is delegated to you]
    #[arg(long = "box", value_name = "CGROUP", value_parser = PathBufValueParser::new().map(whole))]
    pub within: Option<PathBuf>,
    /// Sampler to use: mglru, idle-bitmap or clear-refs [default: the first of these that works]
    #[arg(long)]
    pub sampler: Option<String>,
    /// Factor by which opaque misses may grow [default: 1.05]
    #[arg(long)]
    beta: Option<f64>,
    /// Kill contributed work that does not give memory back within so many seconds
    #[arg(long, value_name = "SECONDS")]
    kill_after: Option<f64>,
    /// Pages a second contributed work may page in again; what it reads for the first time is not limited [default: 2048]
    #[arg(long, value_name = "PAGES")]
    paging_rate: Option<f64>,
    /// Divide all ageing times by this, for measurements [default: 1]
    #[arg(long, value_name = "FACTOR", hide_short_help = true)]
    speed_up: Option<f64>,
}

/// As a controller sees it, which is elsewhere, and as hierarchies are mounted: without links.
fn whole(path: PathBuf) -> PathBuf {
    // What is not there is refused by who looks for it.
    std::fs::canonicalize(&path).or_else(|_| std::path::absolute(&path)).unwrap_or(path)
}

impl Settings {
    pub fn config(&self) -> anyhow::Result<Config> {
        let speed_up = self.speed_up.unwrap_or(1.0);
        if !(1e-3..=1e6).contains(&speed_up) {
            bail!("--speed-up must be a number from 0.001 to 1000000, not {speed_up}");
        }
        let patience =
            |seconds: f64| Duration::try_from_secs_f64(seconds).context("--kill-after must be a time in seconds");
        let default = Config::default();
        let config = Config {
            beta: self.beta.unwrap_or(default.beta),
            kill_after: self.kill_after.map(patience).transpose()?,
            contributed_paging_per_s: self.paging_rate.unwrap_or(default.contributed_paging_per_s),
            ..default
        };
        Ok(config.sped_up(speed_up))
    }

    /// As arguments of a daemon.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(within) = &self.within {
            arguments.extend(["--box".into(), within.into()]);
        }
        arguments.extend(self.sampler.iter().map(|name| format!("--sampler={name}").into()));
        let numbers = [
            ("beta", self.beta),
            ("kill-after", self.kill_after),
            ("paging-rate", self.paging_rate),
            ("speed-up", self.speed_up),
        ];
        arguments.extend(numbers.iter().filter_map(|(name, value)| Some(format!("--{name}={}", (*value)?).into())));
        arguments
    }

    /// Those given that are not so with a controller that runs; another box than its own is refused.
    pub fn not_in_force(&self, status: &Status) -> anyhow::Result<Vec<&'static str>> {
        if let (Some(within), Some(divided)) = (&self.within, status.group.parent())
            && within != divided
        {
            let (within, divided, pid) = (within.display(), divided.display(), status.pid);
            bail!(
                "--box {within}: the controller that runs (pid {pid}) divides {divided}; leave --box out to run there, or \
                 give another --runtime-dir, for a controller of its own"
            );
        }
        let (wanted, now) = (self.config()?, &status.config);
        let sampler = status.samplers.iter().find(|candidate| candidate.why_not.is_none());
        let given = [
            ("--beta", self.beta.is_some() && differ(wanted.beta, now.beta)),
            ("--kill-after", self.kill_after.is_some() && wanted.kill_after != now.kill_after),
            (
                "--paging-rate",
                self.paging_rate.is_some() && differ(wanted.contributed_paging_per_s, now.contributed_paging_per_s),
            ),
            ("--sampler", self.sampler.as_ref().is_some_and(|name| sampler.is_none_or(|used| used.name != *name))),
            ("--speed-up", self.speed_up.is_some() && wanted.slow_period != now.slow_period),
        ];
        Ok(given.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect())
    }
}

/// What was written down and read again may differ in its last digit.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-9 * one.abs()
}
