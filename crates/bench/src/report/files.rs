//! The report on disk.

use super::{Report, svg_of};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Whether there will be a place for the report: to be asked before hours are measured.
pub fn make_place(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}

/// Writes `NAME.json` and `NAME.svg` into `directory`, each whole or not at all, and gives their paths.
pub fn write_files(report: &Report, directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
    make_place(directory)?;
    let json = serde_json::to_string_pretty(report)? + "\n";
    let mut written = Vec::new();
    for (extension, text) in [("json", json), ("svg", svg_of(report)?)] {
        let path = directory.join(format!("{name}.{extension}"));
        let draft = directory.join(format!(".{name}.{extension}.{}", std::process::id()));
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}
