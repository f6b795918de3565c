//! `ullage stat`.

use crate::output;
use crate::users::Names;
use anyhow::Context;
use clap::Args;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_daemon::{Answer, Request, StatReport, find_mount};

/// Show what a space knows of a file: class, pool, backing path, charge.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage stat /srv/space/data.bin")]
pub struct Stat {
    /// Files in a mounted space.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Stat {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (reports, code) = super::of_each(&self.paths, ask);
        self.print(reports)?;
        Ok(code)
    }

    fn print(&self, reports: Vec<(&PathBuf, StatReport)>) -> anyhow::Result<()> {
        if self.json {
            let all: Vec<_> = reports
                .iter()
                .map(|(path, report)| serde_json::json!({"path": path.to_string_lossy(), "file": report}))
                .collect();
            return output::json(&serde_json::json!({ "files": all }));
        }
        let names = Names::of(reports.iter().map(|(_, report)| report.uid));
        for (path, report) in reports {
            output::facts(&[
                ("path", output::shown(path)),
                ("inode", report.ino.to_string()),
                ("class", report.class.to_string()),
                ("size", report.size.to_string()),
                ("charge", format!("{} to user {}", report.charge, names.show(report.uid))),
                ("pool", report.pool.unwrap_or_else(|| "-".into())),
                ("backing", report.backing.map_or_else(|| "-".into(), output::shown)),
            ]);
        }
        Ok(())
    }
}

fn ask(path: &Path) -> anyhow::Result<StatReport> {
    ullage_daemon::refuse_silent(path, super::PATIENCE)?;
    // A symbolic link is asked about itself: its directory says which mount it is in.
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let (mountpoint, state) = find_mount(if path.is_symlink() { parent } else { path })?;
    let ino = super::seen(path, path.symlink_metadata(), &state, &mountpoint)?.ino();
    // Of a link, which all may read, there is none.
    let proof = if path.is_symlink() { None } else { super::proof(path) };
    let mut client = super::connect(&state, &mountpoint)?;
    match client.ask(&Request::Stat { ino, proof }).with_context(|| path.display().to_string())? {
        Answer::Stat(report) => Ok(report),
        _ => anyhow::bail!("the daemon answered another question"),
    }
}
