//! The bench's side: processes that begin each phase together.

use super::{Job, MARK_VARIABLE, gate::MARK};
use crate::cleanup::Undo;
use crate::shell::killing;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Workers that wait for their first phase.
pub struct Crew {
    members: Vec<Member>,
    phases: usize,
}

struct Member {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _undo: Undo,
}

/// What a crew did.
pub struct Finished {
    /// Seconds of each phase, from the first worker's start to the last one's end.
    pub phases: Vec<f64>,
    /// What each worker tells.
    pub results: Vec<serde_json::Value>,
}

impl Crew {
    /// Starts one process per job and waits until all are ready. The jobs must have equally many phases.
    pub fn start(helper: &[OsString], jobs: &[Job]) -> Result<Self> {
        let mut members: Vec<Member> = jobs.iter().map(|job| Member::start(helper, job)).collect::<Result<_>>()?;
        for member in &mut members {
            member.expect("ready")?;
        }
        Ok(Self { members, phases: jobs.first().map_or(0, Job::phases) })
    }

    /// Runs all phases, `between` before each, and waits for the processes to end.
    pub fn run(mut self, between: impl Fn()) -> Result<Finished> {
        let mut phases = Vec::with_capacity(self.phases);
        for _ in 0..self.phases {
            between();
            let start = Instant::now();
            for member in &mut self.members {
                member.input.write_all(b"go\n")?;
            }
            let mut own = 0.0;
            for member in &mut self.members {
                own = member.expect("done")?.parse().context("read a worker's time")?;
            }
            // One worker alone knows better than we do, who also waited to be woken.
            phases.push(if self.members.len() == 1 { own } else { start.elapsed().as_secs_f64() });
        }
        let mut results = Vec::new();
        for member in &mut self.members {
            results.push(serde_json::from_str(&member.expect("end")?).context("read a worker's result")?);
            member.child.wait()?;
        }
        Ok(Finished { phases, results })
    }
}

impl Member {
    fn start(helper: &[OsString], job: &Job) -> Result<Self> {
        let (program, arguments) = helper.split_first().context("no command for workers")?;
        let mut command = Command::new(program);
        command.args(arguments).env(MARK_VARIABLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start a worker")?;
        let undo = killing(child.id());
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker has no pipes");
        };
        writeln!(input, "{}", serde_json::to_string(job)?)?;
        Ok(Self { child, input, output: BufReader::new(output), _undo: undo })
    }

    /// What the worker says next, which must be `wanted`.
    fn expect(&mut self, wanted: &str) -> Result<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                bail!("a worker ended early ({})", self.child.wait()?);
            }
            let Some(said) = line.trim_end().strip_prefix(MARK) else { continue };
            let (what, detail) = said.trim_start().split_once(' ').unwrap_or((said.trim(), ""));
            if what == wanted {
                return Ok(detail.to_owned());
            }
            bail!("a worker {what}: {detail}");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Its own end is normal; after an error here it is still waiting.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fsync::Fsync;
    use crate::worker::tests::helper;

    #[test]
    fn workers_run_together_and_tell_how_long_it_took() {
        let directory = tempfile::tempdir().unwrap();
        let job = |worker| Job::Fsync(Fsync { directory: directory.path().to_owned(), files: 3, bytes: 10, worker });
        let finished = Crew::start(&helper(), &[job(0), job(1)]).unwrap().run(|| ()).unwrap();
        assert_eq!(finished.phases.len(), 1);
        assert!(finished.phases[0] > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 6);
    }

    #[test]
    fn a_failing_worker_is_an_error_that_says_why() {
        let job = Job::Fsync(Fsync { directory: "/no/such/place".into(), files: 1, bytes: 1, worker: 0 });
        let error = Crew::start(&helper(), &[job]).unwrap().run(|| ()).err().unwrap().to_string();
        assert!(error.contains("failed") && error.contains("No such file"), "{error}");
    }
}
