//! `ullage rm`.

use super::remote::{Remote, block_on, log, print_json};
use clap::Args;
use std::process::ExitCode;

/// Remove files from the storage servers. Their space is credited to the user who was charged.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage rm backups/old.tar backups/older.tar")]
pub struct Arguments {
    /// Names on the servers
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    let config = arguments.remote.read()?;
    let removed = block_on(async {
        let files = config.files(0)?;
        let mut removed = Vec::new();
        for name in &arguments.names {
            removed.push(files.remove(name).await?);
        }
        anyhow::Ok(removed)
    })??;
    if arguments.remote.json {
        print_json(&removed)?;
    }
    Ok(ExitCode::SUCCESS)
}
