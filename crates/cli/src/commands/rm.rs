//! `ullage rm`.

use super::remote::{CLIENT_TOML, Remote, block_on, log, print_json, versioned};
use crate::output::shown;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use ullage_store::client::ClientConfig;

/// Remove files from the storage servers. Their space is credited to the user who was charged.
#[derive(Debug, Args)]
#[command(
    after_help = format!("Examples:\n  ullage rm backups/old.tar backups/older.tar\n  ullage rm --orphans                 what clients that died left behind\n\n{CLIENT_TOML}")
)]
pub struct Arguments {
    /// Names on the servers
    #[arg(required_unless_present = "orphans")]
    names: Vec<String>,
    /// Instead: remove parts of files that were never finished or only half removed
    #[arg(long, conflicts_with = "names")]
    orphans: bool,
    /// Leave parts of files begun less than so many hours ago: they may still be under way
    #[arg(long, value_name = "HOURS", default_value_t = 24, requires = "orphans")]
    older_than: u64,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    let config = arguments.remote.read()?;
    if arguments.orphans {
        return sweep(&config, &arguments);
    }
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    block_on(async {
        let files = config.files(0)?;
        // What became of one says nothing of the others.
        for name in &arguments.names {
            match files.remove(name).await {
                Ok(done) => {
                    if !arguments.remote.json {
                        say!("{}: removed", shown(name));
                    }
                    removed.push(serde_json::json!({"name": name, "chunks": done.chunks}));
                }
                Err(error) => {
                    whisper!("ullage: {}: {}", shown(name), shown(error.to_string()));
                    failed.push(serde_json::json!({"name": name, "error": error.to_string()}));
                }
            }
        }
        files.finish().await;
        anyhow::Ok(())
    })??;
    let code = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.remote.json {
        print_json(&serde_json::json!({"version": 1, "removed": removed, "failed": failed}))?;
    }
    Ok(code)
}

fn sweep(config: &ClientConfig, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let swept = block_on(async {
        let files = config.files(0)?;
        let swept = files.sweep(Duration::from_secs(arguments.older_than.saturating_mul(3600))).await;
        files.finish().await;
        anyhow::Ok(swept?)
    })??;
    if arguments.remote.json {
        print_json(&versioned(&swept)?)?;
    } else {
        say!("{} parts removed, {} bytes freed; {} are too young", swept.removed, swept.freed_bytes, swept.young);
    }
    Ok(ExitCode::SUCCESS)
}
