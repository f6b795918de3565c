//! What lies below a directory, told and counted.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Use of a directory, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Allocated bytes.
    pub bytes: u64,
    /// Files of all kinds, each once.
    pub inodes: u64,
}

/// As `ullage du` says.
#[track_caller]
pub fn told(directory: &Path) -> Use {
    let answer = crate::run::ullage(["du".as_ref(), directory.as_os_str(), "--json".as_ref()]).json();
    let used = &answer["directories"][0]["du"]["used"];
    let number = |name: &str| used[name].as_u64().unwrap_or_else(|| panic!("no number '{name}' in {answer}"));
    Use { bytes: number("bytes"), inodes: number("inodes") }
}

/// By looking at every file.
pub fn counted(directory: &Path) -> Use {
    let mut seen = HashSet::new();
    let mut total = Use::default();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if !seen.insert(meta.ino()) {
            continue;
        }
        total.bytes += meta.blocks() * 512;
        total.inodes += 1;
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    total
}
