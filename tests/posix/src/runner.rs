//! Runs each check in a process of its own, so that users, umask, working directory and hangs stay its own.

use crate::check::{Check, Failure, Place};
use crate::sys;
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A check that takes longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Exit codes of the process that runs one check.
const FAILED: i32 = 1;
const SKIPPED: i32 = 77;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Not there to be checked, and why.
    Skipped(String),
    /// What was expected, and what came.
    Failed(String),
}

/// Runs one check in this process; its result is the exit code, its reason on standard output.
pub fn run_here(check: &Check, directory: &Path) -> i32 {
    sys::umask(0o022);
    match (check.run)(&Place(directory.to_path_buf())) {
        Ok(()) => 0,
        Err(Failure::Failed(reason)) => {
            println!("{reason}");
            FAILED
        }
        Err(Failure::Skipped(reason)) => {
            println!("{reason}");
            SKIPPED
        }
    }
}

/// Runs one check in a child process, in a new directory below `base`, which is removed afterwards.
pub fn run(check: &Check, base: &Path) -> Verdict {
    let directory = base.join(format!("{}-{}", check.area, check.name));
    if let Err(error) = std::fs::create_dir(&directory) {
        return Verdict::Failed(format!("making {}: {error}", directory.display()));
    }
    let verdict = run_in_child(check, &directory);
    let removed = Command::new("rm").arg("-rf").arg(&directory).output();
    match removed {
        Ok(output) if !output.status.success() && verdict == Verdict::Passed => {
            Verdict::Failed(format!("removing what the check left: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        _ => verdict,
    }
}

fn run_in_child(check: &Check, directory: &Path) -> Verdict {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Verdict::Failed(format!("finding this program: {error}")),
    };
    let mut command = Command::new(program);
    command.arg(directory).arg("--here").arg(check.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Verdict::Failed(format!("starting a process: {error}")),
    };
    let deadline = Instant::now() + TIME_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // It may not die while the file system hangs; then it is left behind.
                let _ = child.kill();
                return Verdict::Failed(format!("hangs: no end after {} s", TIME_LIMIT.as_secs()));
            }
            Err(error) => return Verdict::Failed(format!("waiting for the check: {error}")),
        }
    };
    let mut reason = String::new();
    if let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) {
        let _ = out.read_to_string(&mut reason);
        let _ = err.read_to_string(&mut reason);
    }
    let reason = reason.trim().to_owned();
    match status.code() {
        Some(0) => Verdict::Passed,
        Some(SKIPPED) => Verdict::Skipped(reason),
        Some(_) => Verdict::Failed(reason),
        None => Verdict::Failed(format!("{status}: {reason}")),
    }
}

/// Runs the checks whose name contains `filter`; prints each result, and gives back how many failed.
pub fn run_all(checks: &[Check], directory: &Path, filter: &str, as_json: bool) -> std::io::Result<usize> {
    let base = directory.join(format!("posix-suite.{}", std::process::id()));
    std::fs::create_dir(&base)?;
    let (mut passed, mut skipped, mut failed) = (0, 0, 0);
    let mut results = Vec::new();
    for check in checks.iter().filter(|check| check.to_string().contains(filter)) {
        let started = Instant::now();
        let verdict = run(check, &base);
        let (word, reason) = match &verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Skipped(reason) => ("skipped", reason.as_str()),
            Verdict::Failed(reason) => ("FAILED", reason.as_str()),
        };
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::Skipped(_) => skipped += 1,
            Verdict::Failed(_) => failed += 1,
        }
        if as_json {
            let seconds = started.elapsed().as_secs_f64();
            results.push(json!({"check": check.to_string(), "verdict": word, "reason": reason, "seconds": seconds}));
        } else if reason.is_empty() {
            println!("{word:8} {check}");
        } else {
            println!("{word:8} {check}\n         {reason}");
        }
    }
    let _ = std::fs::remove_dir(&base);
    if as_json {
        println!(
            "{}",
            json!({"version": 1, "passed": passed, "skipped": skipped, "failed": failed, "checks": results})
        );
    } else {
        println!("{passed} passed, {skipped} skipped, {failed} failed");
    }
    Ok(failed)
}
