//! `ullage get`.

use super::interrupt::Interrupt;
use super::pipe;
use super::remote::{CLIENT_TOML, Remote, block_on, log, print_json, progress, versioned};
use crate::output::shown;
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_store::client::{ClientConfig, Stop, Transferred};

/// Copy a file from the storage servers. The local name appears only when everything has come whole and undamaged.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  ullage get backups/data.tar\n  ullage get backups/data.tar /tmp/data.tar\n  ullage get backups/data.tar - | tar x\n\n{CLIENT_TOML}"))]
pub struct Arguments {
    /// The name on the servers
    name: String,
    /// The local file, or - for the standard output; the last part of the name by default
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    let config = arguments.remote.read()?;
    let name = &arguments.name;
    let local = Path::new(name).file_name().map_or_else(|| PathBuf::from("file"), PathBuf::from);
    let file = arguments.file.clone().unwrap_or(local);
    let json = arguments.remote.json;
    if pipe::is_meant(&file) {
        anyhow::ensure!(!json, "the file and what --json prints cannot both go to the standard output");
        pipe::give(whole(&config, name)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = Interrupt::watch()?;
    let done = copy(&config, name, &file, json, interrupt.stop());
    let done = interrupt.end(done)?;
    if json {
        print_json(&versioned(&done)?)?;
    } else {
        say!("{}: {} bytes", shown(&file), done.size_bytes);
    }
    Ok(ExitCode::SUCCESS)
}

/// The file, whole, without a name here.
fn whole(config: &ClientConfig, name: &str) -> anyhow::Result<File> {
    let interrupt = Interrupt::watch()?;
    let stop = interrupt.stop();
    let come = || {
        let directory = tempfile::tempdir().context("make a temporary directory")?;
        let file = directory.path().join("whole");
        copy(config, name, &file, false, stop)?;
        File::open(file).context("open the temporary file")
    };
    interrupt.end(come())
}

fn copy(config: &ClientConfig, name: &str, file: &Path, json: bool, stop: Stop) -> anyhow::Result<Transferred> {
    block_on(async {
        let files = config.files(0)?.with_stop(stop);
        anyhow::Ok(files.get(name, file, progress(json, name)).await?)
    })?
}
