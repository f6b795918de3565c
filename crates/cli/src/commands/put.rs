//! `ullage put`.

use super::interrupt::Interrupt;
use super::pipe;
use super::remote::{CLIENT_TOML, Remote, block_on, bytes, log, print_json, progress, versioned};
use crate::output::shown;
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_store::client::{Files, STRIPE_BYTES};

/// Copy a file to the storage servers. What others see under the name changes at once, when everything is there.
#[derive(Debug, Args)]
#[command(
    after_help = format!("Examples:\n  ullage put data.tar backups/data.tar\n  ullage put --stripe 1MiB small.db\n  ullage put --width 1 whole.iso\n  ullage put --json a b\n  tar c src | ullage put - src.tar\n\n{CLIENT_TOML}")
)]
pub struct Arguments {
    /// The local file, or - for the standard input
    file: PathBuf,
    /// Its name on the servers; the local one by default
    name: Option<String>,
    /// Bytes per stripe: 4KiB to 16MiB, 4MiB by default
    #[arg(long, value_parser = bytes)]
    stripe: Option<u64>,
    /// On how many of the stores the file is to be; all by default
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    let config = arguments.remote.read()?;
    let piped = pipe::is_meant(&arguments.file);
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None if piped => anyhow::bail!("the standard input has no name: ullage put - NAME"),
        None => arguments.file.file_name().and_then(|name| name.to_str()).context("a name is needed")?.to_owned(),
    };
    let stripe = arguments.stripe.or(config.stripe_bytes).unwrap_or(STRIPE_BYTES);
    let json = arguments.remote.json;
    let taken = if piped { Some(pipe::take()?) } else { None };
    let file = taken.as_ref().map_or_else(|| arguments.file.clone(), pipe::path);
    let interrupt = Interrupt::watch()?;
    let done = block_on(async {
        let size = std::fs::metadata(&file).map_or(0, |meta| meta.len());
        let files = config.files(Files::expected_charge(size, stripe.max(1)))?;
        let files = files.with_width(arguments.width).with_stop(interrupt.stop());
        let done = files.put(&file, &name, stripe, progress(json, &name)).await;
        files.finish().await;
        anyhow::Ok(done?)
    })?;
    let done = interrupt.end(done)?;
    if json {
        print_json(&versioned(&done)?)?;
    } else {
        let name = shown(&name);
        say!("{name}: {} bytes in {} stripes, {} charged", done.size_bytes, done.stripes, done.allocated_bytes);
    }
    Ok(ExitCode::SUCCESS)
}
