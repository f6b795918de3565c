//! git: clone a repository and commit to it.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use crate::shell::{installed, run, run_quietly};
use crate::tree::{self, Shape};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

/// Clone from the ground into the system under test, change a tenth of the files, commit.
pub struct Git;

fn shape(context: &Context) -> Shape {
    let (directories, files) = context.scale((200, 2000), (20, 100));
    Shape { directories, files, file_bytes: 16 << 10 }
}

/// What in the environment leads git to a repository, whatever its directory, as whoever starts the bench in a hook has it.
fn leading_elsewhere() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let listed = run(Command::new("git").args(["rev-parse", "--local-env-vars"])).unwrap_or_default();
        listed.lines().map(str::to_owned).collect()
    })
}

/// git, untouched by what the user has configured.
fn git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    for name in leading_elsewhere() {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").arg("-C").arg(directory);
    for setting in ["user.name=bench", "user.email=bench@localhost", "gc.auto=0", "init.defaultBranch=main"] {
        command.arg("-c").arg(setting);
    }
    command
}

/// The repository to clone, made on first use.
fn origin(context: &Context) -> Result<PathBuf> {
    let origin = context.scratch.join("origin");
    if !origin.exists() {
        fs::create_dir(&origin)?;
        tree::make(&origin, shape(context), context.seed)?;
        run(git(&origin).args(["init", "-q"]))?;
        run(git(&origin).args(["add", "-A"]))?;
        run(git(&origin).args(["commit", "-q", "-m", "All"]))?;
    }
    Ok(origin)
}

/// Appends a line to every tenth file below `directory`, in the order of their names.
fn change(directory: &Path) -> Result<()> {
    let listed = run(git(directory).args(["ls-files"]))?;
    for name in listed.lines().step_by(10) {
        let path = directory.join(name);
        let mut text = fs::read(&path)?;
        text.extend_from_slice(b"\nchanged\n");
        fs::write(&path, text)?;
    }
    Ok(())
}

impl Workload for Git {
    fn name(&self) -> String {
        "git".into()
    }

    fn about(&self) -> String {
        "git clone of 2000 files, then a commit that changes a tenth of them".into()
    }

    fn unavailable(&self, _: &Context) -> Option<String> {
        (!installed("git")).then(|| "git is not installed".into())
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (shape(context).files as u64, "file")
    }

    fn prepare(&self, context: &Context, _: &Path) -> Result<()> {
        origin(context).map(drop)
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let origin = origin(context)?;
        let clone = directory.join("clone");
        let start = Instant::now();
        // --no-local: objects are transferred and written, not linked or copied as files.
        run_quietly(git(directory).args(["clone", "-q", "--no-local"]).arg(&origin).arg(&clone))?;
        let cloned = start.elapsed().as_secs_f64();
        change(&clone)?;
        caches::settle();
        let start = Instant::now();
        run_quietly(git(&clone).args(["add", "-A"]))?;
        run_quietly(git(&clone).args(["commit", "-q", "-m", "Change"]))?;
        let committed = start.elapsed().as_secs_f64();
        Ok(vec![Measurement::seconds("clone", cloned), Measurement::seconds("commit", committed)])
    }

    fn reset(&self, _: &Context, directory: &Path) -> Result<()> {
        Ok(fs::remove_dir_all(directory.join("clone"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: with `GIT_DIR` set the bench committed to the repository of whoever started it.
    #[test]
    fn the_repository_is_that_of_the_directory() {
        if !installed("git") {
            eprintln!("skipped: git is not installed");
            return;
        }
        let command = git(Path::new("/"));
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"] {
            assert!(removed.contains(&std::ffi::OsStr::new(name)), "{name} is not in {removed:?}");
        }
    }
}
