//! What lies below a directory, told and counted.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    each_below(directory, |_, meta| {
        if seen.insert(meta.ino()) {
            total.bytes += meta.blocks() * 512;
            total.inodes += 1;
        }
    });
    total
}

/// Files below a directory whose blocks are not those that the file has in its pool, below another: path, blocks as shown, blocks of what has its number there.
pub fn unlike_pools(directory: &Path, pools: &Path) -> Vec<(PathBuf, u64, Vec<u64>)> {
    let mut backing: HashMap<u64, Vec<u64>> = HashMap::new();
    let number = |name: &str| u64::from_str_radix(name.split_once('.')?.0, 16).ok();
    each_below(pools, |path, meta| {
        let file = path.file_name().and_then(|name| name.to_str()).and_then(number).filter(|_| meta.is_file());
        if let Some(file) = file {
            backing.entry(file).or_default().push(meta.blocks());
        }
    });
    let mut unlike = Vec::new();
    each_below(directory, |path, meta| {
        let there = backing.get(&meta.ino()).cloned().unwrap_or_default();
        if meta.is_file() && !there.contains(&meta.blocks()) {
            unlike.push((path.to_owned(), meta.blocks(), there));
        }
    });
    unlike
}

/// Every path below a directory, itself included, links not followed.
pub fn each_below(directory: &Path, mut visit: impl FnMut(&Path, &Metadata)) {
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        visit(&path, &meta);
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}
