//! Writing down, once a second, what `status` and `timeline` show.

use super::Options;
use super::apply::Hands;
use super::cost::Meter;
use crate::control::Controller;
use crate::error::{Error, Result};
use crate::runtime::{RuntimeDir, Status, TimelinePoint};
use crate::sampler::Candidate;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A day of seconds; then the older half is dropped, but from a file that somebody wants to keep.
const MOST_POINTS: usize = 86_400;

/// The recorder.
pub(super) struct Recorder {
    runtime: RuntimeDir,
    timeline: PathBuf,
    keep: bool,
    points: usize,
    next: Duration,
    reasons: Vec<String>,
    candidates: Vec<Candidate>,
    warnings: Vec<String>,
    /// What could not be written down last.
    trouble: Option<Error>,
    started: bool,
    pub opaque_processes: usize,
}

impl Recorder {
    pub fn new(options: &Options, reasons: Vec<String>, candidates: Vec<Candidate>) -> Result<Self> {
        let timeline = options.log.clone().unwrap_or_else(|| options.runtime.timeline());
        // Found out at the start, not in the night.
        open(&timeline)?;
        Ok(Self {
            runtime: options.runtime.clone(),
            timeline,
            keep: options.log.is_some(),
            points: 0,
            next: Duration::ZERO,
            reasons,
            candidates,
            warnings: Vec::new(),
            trouble: None,
            started: false,
            opaque_processes: 0,
        })
    }

    pub fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }

    /// Writes down, once a second. What cannot be written (a full disk) is told by the status, when that
    /// can be: memory is divided all the same. Only who starts must know that there is a status.
    pub fn record(
        &mut self,
        controller: &Controller,
        hands: &Hands,
        meter: &Meter,
        contributed: &[i32],
        now: Duration,
    ) -> Result<()> {
        if now < self.next {
            return Ok(());
        }
        self.next = now + Duration::from_secs(1);
        let trouble = self.trouble.take().map(|error| format!("not everything can be written down: {error}"));
        let unstopped = hands.unstopped.iter();
        let unstopped = unstopped.map(|pid| format!("process {pid} belongs to another user and cannot be stopped"));
        let written = Status {
            version: 1,
            pid: std::process::id() as i32,
            uptime_s: now.as_secs_f64(),
            backend: hands.backend.name().to_owned(),
            backend_reasons: self.reasons.clone(),
            group: hands.backend.group().to_owned(),
            sampler: hands.worker.name().to_owned(),
            samplers: self.candidates.clone(),
            contributed: contributed.to_vec(),
            opaque_processes: self.opaque_processes,
            evicted: hands.evicted,
            warnings: self.warnings.iter().cloned().chain(trouble).chain(unstopped).collect(),
            report: controller.report().clone(),
            cost: meter.cost(),
            config: controller.config().clone(),
            histogram: controller.histogram().clone(),
        }
        .write(&self.runtime);
        if !self.started {
            written?;
            self.started = true;
        } else if let Err(error) = written {
            self.trouble = Some(error);
            return Ok(());
        }
        self.trouble = self.append(TimelinePoint::of(now.as_secs_f64(), controller.report(), hands.frozen)).err();
        Ok(())
    }

    fn append(&mut self, point: TimelinePoint) -> Result<()> {
        let line = serde_json::to_string(&point).map_err(|error| Error::Invalid(error.to_string()))?;
        let mut file = open(&self.timeline)?;
        writeln!(file, "{line}").map_err(Error::io("writing", &self.timeline))?;
        self.points += 1;
        if self.points >= MOST_POINTS && !self.keep {
            let text = fs::read_to_string(&self.timeline).map_err(Error::io("reading", &self.timeline))?;
            let kept: Vec<&str> = text.lines().skip(MOST_POINTS / 2).collect();
            self.points = kept.len();
            fs::write(&self.timeline, kept.join("\n") + "\n").map_err(Error::io("writing", &self.timeline))?;
        }
        Ok(())
    }
}

/// Opens the timeline to continue it: it may be the only one that somebody has. Where it is a pipe nobody may read there any
/// more, and memory is not to wait for that.
fn open(timeline: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).custom_flags(libc::O_NONBLOCK);
    options.open(timeline).map_err(Error::io("opening", timeline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Config;

    fn recorder(runtime: RuntimeDir, log: Option<PathBuf>) -> Recorder {
        let options = Options {
            runtime,
            within: None,
            sampler: None,
            config: Config::default(),
            guard: None,
            until_empty: false,
            log,
        };
        Recorder::new(&options, Vec::new(), Vec::new()).unwrap()
    }

    /// Regression: after a day the older half was dropped from it, and what others had written before.
    #[test]
    fn a_log_is_kept_however_long_it_gets_and_the_timeline_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(dir.path().to_owned()));
        let kept = dir.path().join("kept.jsonl");
        let lines = |file: &Path| fs::read_to_string(file).unwrap().lines().count();
        for log in [Some(kept.clone()), None] {
            fs::write(&kept, "{}\n").unwrap();
            let mut recorder = recorder(runtime.clone(), log.clone());
            for _ in 0..MOST_POINTS {
                recorder.append(TimelinePoint::default()).unwrap();
            }
            if log.is_some() {
                assert_eq!(lines(&kept), MOST_POINTS + 1);
            }
        }
        assert_eq!(lines(&runtime.timeline()), MOST_POINTS / 2);
    }

    /// Regression: when who read the log had left, the controller waited for another reader for ever, and could not be stopped.
    #[test]
    fn a_log_that_nobody_reads_any_more_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("log");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        let mut recorder = recorder(RuntimeDir::new(Some(dir.path().to_owned())), Some(fifo));
        recorder.append(TimelinePoint::default()).unwrap();
        drop(reader);
        let (told, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(recorder.append(TimelinePoint::default())));
        let result = result.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait");
        assert_eq!(result.unwrap_err().errno(), Some(libc::ENXIO));
    }
}
