//! `posix-suite`: arguments in, one call, exit code out.

#![deny(missing_docs)]

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_posix_tests::{checks, data_fuzz, lockstep, runner};

/// Checks a directory against what POSIX and Linux promise of a file system.
///
/// Run it on a native file system first: everything must pass there. As root it changes users where a check needs it.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:
  posix-suite /mnt/native
  posix-suite /mnt/space --filter rename --json"
)]
struct Arguments {
    /// Where to make, and remove again, a directory for the checks.
    #[arg(required_unless_present_any = ["lockstep", "list"])]
    directory: Option<PathBuf>,
    /// Only checks whose name (area::check) contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Name the checks and do nothing.
    #[arg(long)]
    list: bool,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
    /// Fuzz the data of one file instead: random reads, writes, mappings, lengths, holes and copies.
    #[arg(long, conflicts_with = "lockstep")]
    fuzz: bool,
    /// Run generated operations on two directories instead, and compare; the first is the model.
    #[arg(long, num_args = 2, value_names = ["MODEL", "DIRECTORY"], conflicts_with = "directory")]
    lockstep: Vec<PathBuf>,
    /// Where generated operations start; the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many operations to generate.
    #[arg(long, default_value_t = 5000)]
    ops: u64,
    /// Run one check in this process, in this directory (how the suite calls itself).
    #[arg(long, hide = true)]
    here: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let all = checks::all();
    if arguments.list {
        for check in all {
            println!("{check}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let [model, other] = &arguments.lockstep[..] {
        return Ok(generated(&arguments, lockstep::run(model, other, arguments.seed, arguments.ops)));
    }
    let directory = arguments.directory.as_deref().context("no directory given")?;
    // Checks go to directories of their own.
    let directory = &directory.canonicalize().with_context(|| format!("looking for {}", directory.display()))?;
    if arguments.fuzz {
        return Ok(generated(&arguments, data_fuzz::run(directory, arguments.seed, arguments.ops)));
    }
    if let Some(name) = arguments.here {
        let Some(check) = all.iter().find(|check| check.to_string() == name) else { bail!("no check {name}") };
        std::process::exit(runner::run_here(check, directory));
    }
    let failed = runner::run_all(&all, directory, &arguments.filter, arguments.json)
        .with_context(|| format!("checking {}", directory.display()))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports a run of generated operations.
fn generated(arguments: &Arguments, outcome: Result<(), String>) -> ExitCode {
    let reason = outcome.as_ref().err();
    if arguments.json {
        let (seed, operations) = (arguments.seed, arguments.ops);
        println!("{}", json!({"version": 1, "seed": seed, "operations": operations, "difference": reason}));
    } else {
        println!("{}", reason.map_or("no difference", |reason| reason));
    }
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
