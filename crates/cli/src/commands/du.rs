//! `ullage du`.

use crate::output;
use anyhow::Context;
use clap::Args;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_daemon::{Answer, DuReport, Request, find_mount};

/// Show what lies below a directory, at once however large it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage du /srv/space/projects /srv/space/home")]
pub struct Du {
    /// Directories in a mounted space.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Exact numbers of bytes.
    #[arg(long, short = 'b')]
    bytes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Du {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (reports, code) = super::of_each(&self.paths, ask);
        self.print(reports)?;
        Ok(code)
    }

    fn print(&self, reports: Vec<(&PathBuf, DuReport)>) -> anyhow::Result<()> {
        if self.json {
            let all: Vec<_> = reports
                .iter()
                .map(|(path, report)| serde_json::json!({"path": path.to_string_lossy(), "du": report}))
                .collect();
            return output::json(&serde_json::json!({ "directories": all }));
        }
        if reports.is_empty() {
            return Ok(());
        }
        let mut table = output::table(&["USED", "FILES", "PATH"], &[0, 1]);
        for (path, report) in reports {
            let used = if self.bytes { report.used.bytes.0.to_string() } else { report.used.bytes.to_string() };
            table.add_row([used, report.used.inodes.to_string(), output::shown(path)]);
        }
        say!("{table}");
        Ok(())
    }
}

fn ask(path: &Path) -> anyhow::Result<DuReport> {
    ullage_daemon::refuse_silent(path, super::PATIENCE)?;
    let (mountpoint, state) = find_mount(path)?;
    let ino = super::seen(path, path.metadata(), &state, &mountpoint)?.ino();
    let proof = super::proof(path);
    let mut client = super::connect(&state, &mountpoint)?;
    match client.ask(&Request::Du { ino, proof }).with_context(|| path.display().to_string())? {
        Answer::Du(report) => Ok(report),
        _ => anyhow::bail!("the daemon answered another question"),
    }
}
