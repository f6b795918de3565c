//! `ullage check`.

use super::hint;
use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check a space that is down: every record, every total, every backing file; and mend it.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: clean, or mended without any loss. 1: something is wrong or was lost, or the space is up.

With --repair nothing is asked. The catalog as it was is kept beside the new one, and its path printed. Files that have
lost their names come to lost+found. When the catalog cannot be opened at all, `ullage rebuild` makes a new one from the
pools.

Examples:
  ullage down /srv/space && ullage check /srv/space
  ullage check --repair /srv/space")]
pub struct Check {
    /// Where it is mounted when it is up.
    mountpoint: PathBuf,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Set right what is wrong.
    #[arg(long)]
    repair: bool,
    /// A pool whose files are all gone for good: without this a repair does not drop all files of a pool.
    #[arg(long, value_name = "NAME", requires = "repair")]
    without: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Reads everything and prints what is wrong, and what was done about it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let state = super::state_at(&self.mountpoint, self.state.as_deref())?;
        super::refuse_up(&self.mountpoint, &state)?;
        if let Some(why) = super::dangling(&state) {
            anyhow::bail!(why);
        }
        let spinner = output::spinner();
        let report = ullage_daemon::check(&state, self.repair, &self.without, &mut |what, count| {
            output::spin(&spinner, what, count);
        });
        spinner.finish_and_clear();
        let report = report?;
        let clean = match &report.repair {
            None => report.findings.is_empty(),
            Some(repair) => repair.lost.is_empty(),
        };
        if self.json {
            output::json(&report)?;
        } else {
            output::facts(&[
                ("files", report.files.to_string()),
                ("directories", report.directories.to_string()),
                ("entries", report.entries.to_string()),
                ("without a name", report.orphans.to_string()),
                ("backing files", report.backing_files.to_string()),
            ]);
            for finding in &report.findings {
                say!("wrong: {}", output::shown(finding));
            }
            if let Some(repair) = &report.repair {
                repair.done.iter().for_each(|text| say!("mended: {}", output::shown(text)));
                repair.lost.iter().for_each(|text| say!("lost: {}", output::shown(text)));
                say!("the catalog as it was is in {}", repair.saved.display());
            }
            say!(
                "{}",
                match (&report.repair, clean) {
                    (None, true) => "clean".to_owned(),
                    (None, false) => format!(
                        "NOT clean; `{}` mends what can be mended",
                        hint::command("check --repair", &state, &self.mountpoint)
                    ),
                    (Some(_), true) => "mended, nothing lost".to_owned(),
                    (Some(_), false) => "mended, with losses".to_owned(),
                }
            );
        }
        Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
