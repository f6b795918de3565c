//! `ullage get`.

use super::remote::{CLIENT_TOML, Remote, block_on, log, print_json, progress, versioned};
use crate::output::shown;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy a file from the storage servers. The local name appears only when everything has come whole and undamaged.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  ullage get backups/data.tar\n  ullage get backups/data.tar /tmp/data.tar\n\n{CLIENT_TOML}"))]
pub struct Arguments {
    /// The name on the servers
    name: String,
    /// The local file; the last part of the name by default
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
    let done = block_on(async {
        let files = config.files(0)?;
        anyhow::Ok(files.get(name, &file, progress(json, name)).await?)
    })??;
    if json {
        print_json(&versioned(&done)?)?;
    } else {
        say!("{}: {} bytes", shown(&file), done.size_bytes);
    }
    Ok(ExitCode::SUCCESS)
}
