//! The report on disk.

use super::{Report, svg_of};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a report.
const EXTENSIONS: [&str; 2] = ["json", "svg"];

/// Whether there will be a place for a report of this name: to be asked before hours are measured.
pub fn make_place(directory: &Path, name: &str) -> Result<()> {
    let one = Path::new(name).file_name().is_some_and(|last| last == name);
    ensure!(one, "{name:?} is a path: give a name, and the directory for it with --out");
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for extension in EXTENSIONS {
        let draft = draft(directory, name, extension);
        let written = fs::write(&draft, "").and_then(|()| fs::remove_file(&draft));
        written.with_context(|| format!("write into {}", directory.display()))?;
    }
    Ok(())
}

fn draft(directory: &Path, name: &str, extension: &str) -> PathBuf {
    directory.join(format!(".{name}.{extension}.{}", std::process::id()))
}

/// Writes `NAME.json` and `NAME.svg` into `directory`, each whole or not at all, and gives their paths.
pub fn write_files(report: &Report, directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
    make_place(directory, name)?;
    let json = serde_json::to_string_pretty(report)? + "\n";
    let mut written = Vec::new();
    for (extension, text) in EXTENSIONS.into_iter().zip([json, svg_of(report)?]) {
        let path = directory.join(format!("{name}.{extension}"));
        let draft = draft(directory, name, extension);
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}
