//! ullage, started and stopped as a user does.

use super::{MessageCounts, System};
use crate::cleanup::Undo;
use crate::shell::{is_mounted, run, unmount};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A space with the embedded catalog and one pool, both on the ground.
pub struct Ullage {
    program: PathBuf,
    extra: Vec<String>,
    null: bool,
    mounted: Option<(PathBuf, Undo)>,
}

impl Ullage {
    /// One of the program's commands, ended when it hangs: a sample that never comes must not keep the mount for ever.
    fn command(program: &Path, name: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]).arg(program).arg(name);
        command
    }

    /// Not mounted yet; `extra` goes to `up`, and `null` keeps no data, which shows the layer's own limit.
    pub fn new(program: &Path, extra: Vec<String>, null: bool) -> Self {
        Self { program: program.to_owned(), extra, null, mounted: None }
    }
}

impl System for Ullage {
    fn unavailable(&self) -> Option<String> {
        let helped = run(Self::command(&self.program, "up").arg("--help"));
        helped.err().map(|_| format!("{} cannot mount a space", self.program.display()))
    }

    fn up(&mut self, place: &Path) -> Result<PathBuf> {
        let pool = super::directory(place, "pool")?;
        let state = place.join("state");
        let mount = super::directory(place, "mnt")?;
        let mut command = Self::command(&self.program, "up");
        command.arg(&mount).arg("--state").arg(&state);
        // The first use writes the space down; later ones need no pools, and may refuse them.
        if !state.join("space.toml").exists() {
            let kind = if self.null { ",kind=null" } else { "" };
            command.arg("--pool").arg(format!("main={}{kind}", pool.display()));
        }
        let (program, path) = (self.program.clone(), mount.clone());
        let undo = Undo::new(move || {
            let _ = run(Self::command(&program, "down").arg(&path));
            unmount(&path);
        });
        run(command.args(&self.extra))?;
        ensure!(is_mounted(&mount), "ullage up returned, but nothing is mounted at {}", mount.display());
        // With views, a user's ordinary files are in the view `home`.
        let home = mount.join("home");
        let top = if home.is_dir() { home } else { mount.clone() };
        self.mounted = Some((mount, undo));
        Ok(top)
    }

    fn down(&mut self) -> Result<()> {
        let Some((mount, undo)) = self.mounted.take() else { return Ok(()) };
        run(Self::command(&self.program, "down").arg(&mount))?;
        undo.disarm();
        ensure!(!is_mounted(&mount), "ullage down returned, but {} is still mounted", mount.display());
        Ok(())
    }

    fn messages(&self) -> Result<Option<MessageCounts>> {
        let Some((mount, _)) = &self.mounted else { return Ok(None) };
        let status = run(Self::command(&self.program, "status").arg(mount).arg("--json"))?;
        let status: serde_json::Value = serde_json::from_str(&status).context("read what ullage status says")?;
        Ok(status.get("messages").and_then(|counts| serde_json::from_value(counts.clone()).ok()))
    }

    fn keeps_data(&self) -> bool {
        !self.null
    }
}
