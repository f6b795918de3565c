//! The worker's side of the protocol.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, Write};
use std::time::Instant;

/// What every line of a worker starts with.
pub const MARK: &str = "ullage-worker";

/// Lets a phase begin when the bench says so.
#[derive(Default)]
pub struct Gate {
    ready: bool,
}

impl Gate {
    /// Waits, does the phase, and tells how long it took.
    pub fn phase<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.ready {
            say("ready", "");
            self.ready = true;
        }
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).context("wait for the bench")?;
        ensure!(read > 0, "the bench is gone");
        let start = Instant::now();
        let result = work()?;
        say("done", &start.elapsed().as_secs_f64().to_string());
        Ok(result)
    }
}

/// Tells the bench something.
pub fn say(what: &str, detail: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody is left to tell when this fails; the next read ends the worker. A newline first: a test runner may have
    // left its own line unfinished.
    let _ = writeln!(out, "\n{MARK} {what} {detail}");
    let _ = out.flush();
}
