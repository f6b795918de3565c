//! Work in processes of their own, started together: the bench's binary run again.
//!
//! A worker reads its job from the first line of its standard input, says `ready`, then does one phase of the job for
//! each further line and says how long it took. Whatever it says starts with a mark, since a test runner that plays
//! the binary prints lines of its own.

mod crew;
pub mod fsync;
mod gate;
pub mod io;
pub mod mail;
pub mod metarates;
pub mod postmark;

pub use crew::Crew;
pub use gate::Gate;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// Set for workers, so that a test binary knows that it is one.
pub const MARK_VARIABLE: &str = "ULLAGE_BENCH_WORKER";

/// What a worker does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub enum Job {
    /// The published mail-server benchmark.
    PostMark(postmark::PostMark),
    /// Operations on many files of one directory.
    Metarates(metarates::Metarates),
    /// Reads and writes of one file.
    Io(io::Io),
    /// Small files, each made durable.
    Fsync(fsync::Fsync),
    /// A mail spool.
    Mail(mail::Mail),
}

impl Job {
    /// How many phases it has.
    fn phases(&self) -> usize {
        match self {
            Self::PostMark(_) => postmark::PHASES,
            Self::Metarates(_) => metarates::PHASES.len(),
            Self::Io(_) => io::phases().len(),
            Self::Fsync(_) => 1,
            Self::Mail(_) => mail::PHASES.len(),
        }
    }

    fn run(&self, gate: &mut Gate) -> Result<serde_json::Value> {
        match self {
            Self::PostMark(job) => Ok(serde_json::to_value(job.run(gate)?)?),
            Self::Metarates(job) => job.run(gate).map(|()| serde_json::Value::Null),
            Self::Io(job) => job.run(gate).map(|()| serde_json::Value::Null),
            Self::Fsync(job) => job.run(gate).map(|()| serde_json::Value::Null),
            Self::Mail(job) => job.run(gate).map(|()| serde_json::Value::Null),
        }
    }
}

/// Does one job as told on the standard input; the whole of a worker process.
pub fn run_worker() -> Result<()> {
    // A worker must not outlive the bench, however that ended.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line).context("read the job")?;
    let mut gate = Gate::default();
    match job.run(&mut gate) {
        Ok(result) => gate::say("end", &result.to_string()),
        Err(error) => gate::say("failed", &format!("{error:#}")),
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use std::ffi::OsString;

    /// The command that makes this test binary a worker.
    pub fn helper() -> Vec<OsString> {
        let program = std::env::current_exe().unwrap().into_os_string();
        vec![program, "worker::tests::entry".into(), "--exact".into(), "--nocapture".into()]
    }

    /// Not a test unless run by another one: the worker's entry in the test binary.
    #[test]
    fn entry() {
        if std::env::var_os(super::MARK_VARIABLE).is_some() {
            super::run_worker().unwrap();
        }
    }
}
