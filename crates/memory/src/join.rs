//! `run` and `mark`: putting processes into the contributed group (the paper's `maketransparent`).

use crate::backend::Members;
use crate::error::{Error, Result};
use crate::runtime::{RuntimeDir, Undo, record_origin};
use crate::system::processes;

/// Puts a process into the group of the controller that runs in `runtime`.
pub fn mark(runtime: &RuntimeDir, pid: i32) -> Result<()> {
    processes::check(pid)?;
    let undo = runtime.running().and_then(|_| Undo::read(&runtime.undo()));
    let undo = undo.ok_or_else(|| Error::NotRunning(runtime.path().to_owned()))?;
    if pid == undo.pid {
        return Err(Error::Invalid(format!("process {pid} is the controller itself")));
    }
    record_origin(&runtime.origins(), pid)?;
    Members { directories: undo.directories }.admit(pid)
}

/// Puts this process in, to `exec` the contributed command.
pub fn enter(runtime: &RuntimeDir) -> Result<()> {
    mark(runtime, std::process::id() as i32)
}
