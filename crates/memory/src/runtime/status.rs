//! What `status`, `histogram` and `timeline` show.

use super::{RuntimeDir, others};
use crate::PAGE;
use crate::control::{Config, Report};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::sampler::Candidate;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the controller itself costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Percent of one CPU in fast ageing, so far.
    pub fast_cpu_percent: f64,
    /// Percent of one CPU in slow ageing, so far.
    pub slow_cpu_percent: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
}

/// Everything known, as JSON in the runtime directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this format.
    pub version: u32,
    /// The controller.
    pub pid: i32,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Back end.
    pub backend: String,
    /// Why this back end.
    pub backend_reasons: Vec<String>,
    /// The contributed group; its bytes, where its name is no text.
    #[serde(with = "super::paths::one")]
    pub group: PathBuf,
    /// Sampler.
    pub sampler: String,
    /// What was found out about all samplers.
    pub samplers: Vec<Candidate>,
    /// Contributed processes.
    pub contributed: Vec<i32>,
    /// How many opaque processes are watched.
    pub opaque_processes: usize,
    /// Pages of opaque memory evicted to make room so far.
    pub evicted: u64,
    /// What hinders, in words; empty when all is well.
    pub warnings: Vec<String>,
    /// Decisions, in pages.
    pub report: Report,
    /// Cost of the controller.
    pub cost: Cost,
    /// Settings.
    pub config: Config,
    /// The histogram limits are computed from.
    pub histogram: Histogram,
}

impl Status {
    /// Writes it, whole or not at all.
    pub fn write(&self, runtime: &RuntimeDir) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Invalid(error.to_string()))?;
        super::replace(&runtime.status(), &text)
    }

    /// Reads that of a running controller.
    pub fn read(runtime: &RuntimeDir) -> Result<Self> {
        // Root reads those of others, who can tell him nothing but figures.
        if sys::effective_user() != 0 {
            runtime.check()?;
        }
        if runtime.running().is_none() {
            return Err(Error::NotRunning(runtime.path().to_owned()));
        }
        let path = runtime.status();
        let text = others::read(&path)?;
        serde_json::from_str(&text).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
    }
}

/// One second of figure 9: memory in use and limits, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Seconds since the start.
    pub at_s: f64,
    /// All memory.
    pub total: u64,
    /// Held by opaque work.
    pub opaque: u64,
    /// Held by contributed work.
    pub contributed: u64,
    /// What opaque work keeps.
    pub opaque_limit: u64,
    /// What contributed work may have.
    pub contributed_limit: u64,
    /// Opaque misses a second.
    pub misses_per_s: f64,
    /// Whether contributed work is frozen.
    pub frozen: bool,
}

impl TimelinePoint {
    /// From a report.
    pub fn of(at_s: f64, report: &Report, frozen: bool) -> Self {
        Self {
            at_s,
            total: report.picture.total * PAGE,
            opaque: report.picture.opaque() * PAGE,
            contributed: report.picture.contributed * PAGE,
            opaque_limit: report.donation.opaque_limit * PAGE,
            contributed_limit: report.donation.limit * PAGE,
            misses_per_s: report.misses_per_s,
            frozen,
        }
    }
}
