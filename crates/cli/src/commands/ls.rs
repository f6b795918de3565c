//! `ullage ls`.

use super::remote::{CLIENT_TOML, Remote, block_on, log, print_json};
use clap::Args;
use std::process::ExitCode;

/// List files on the storage servers.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  ullage ls\n  ullage ls backups/ --json\n\n{CLIENT_TOML}"))]
pub struct Arguments {
    /// Only names that start so
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    let config = arguments.remote.read()?;
    let files = block_on(async { anyhow::Ok(config.files(0)?.list(&arguments.prefix).await?) })??;
    if arguments.remote.json {
        print_json(&serde_json::json!({"version": 1, "files": files}))?;
    } else {
        for file in &files {
            match &file.manifest {
                Some(manifest) => say!("{:>16}  {}", manifest.size_bytes, crate::output::shown(&file.name)),
                None => say!("{:>16}  {}", "damaged", crate::output::shown(&file.name)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
