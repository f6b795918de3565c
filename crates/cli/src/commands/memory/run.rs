//! `run`: starts a controller if none runs, enters the contributed group and becomes the command.

use super::settings::Settings;
use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use ullage_memory::runtime::{RuntimeDir, Status};
use ullage_memory::{Error, guard, join};

/// How long is waited for a controller that starts, or that ends before another can start.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    settings: Settings,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Becomes the command, inside the contributed group.
pub(super) fn command(runtime: &RuntimeDir, run: &Run) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = run.command.split_first() else { bail!("no command given") };
    let mut until = Instant::now() + PATIENCE;
    loop {
        match join::enter(runtime) {
            Ok(()) => break,
            Err(Error::NotRunning(_)) if Instant::now() < until => {}
            // Another one was frozen on the threshold, as this one would be inside.
            Err(Error::DoorHeld(_)) => {
                until = Instant::now() + PATIENCE;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        // One that has not come so far, or is about to end, is waited for.
        if runtime.running().is_none() && !started(runtime, &run.settings)? {
            return Ok(ExitCode::from(1));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    // It may be another's, with settings of its own.
    if let Ok(status) = Status::read(runtime) {
        let missing = run.settings.not_in_force(&status)?;
        if !missing.is_empty() {
            whisper!(
                "ullage: {} are not in force: a controller with other settings runs (pid {}); they will be when it is stopped",
                missing.join(", "),
                status.pid
            );
        }
    }
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("running {}", program.display()))
}

/// Has a controller started by a process between, so that it is no child of the command, which may wait
/// for all its children.
fn started(runtime: &RuntimeDir, settings: &Settings) -> anyhow::Result<bool> {
    settings.config()?.validate().map_err(anyhow::Error::msg)?;
    let mut between = this_program(runtime)?;
    between.arg("start").args(settings.arguments());
    Ok(between.status().context("starting a controller")?.success())
}

/// The process between: ends when the controller is there, or like the controller. That may live longer than who wants it
/// first: it keeps nothing of what is theirs.
pub(super) fn start(runtime: &RuntimeDir, settings: &Settings) -> anyhow::Result<ExitCode> {
    guard::leave_the_caller();
    let mut daemon = this_program(runtime)?;
    daemon.args(["daemon", "--until-empty", "--if-none"]).args(settings.arguments()).current_dir("/");
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().context("starting a controller")?;
    let until = Instant::now() + PATIENCE;
    while Status::read(runtime).is_err() && Instant::now() < until {
        if let Some(status) = daemon.try_wait()? {
            // It says itself what hinders it.
            if let Some(mut said) = daemon.stderr.take() {
                std::io::copy(&mut said, &mut std::io::stderr())?;
            }
            if let Some(signal) = status.signal() {
                whisper!("ullage: the controller that was started was ended by signal {signal}");
            }
            return Ok(ExitCode::from(u8::from(!status.success())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(ExitCode::SUCCESS)
}

fn this_program(runtime: &RuntimeDir) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let runtime = std::path::absolute(runtime.path())?;
    command.args(["memory", "--runtime-dir"]).arg(runtime).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}
