//! The catalog as its newest whole copy in the pools has it. Only damage of a copy makes the next older one count: what is wrong
//! with this rebuild, its disk or its version is no reason to give up names.

use crate::error::io_error;
use crate::mirror::{Generation, generations, last_tail};
use crate::{Error, Progress, Result};
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use ullage_kv::{EngineKind, Options, Store, Tail, is_damage};

/// A store with the newest whole snapshot and what follows it, or an empty one.
pub(super) fn restore(
    dir: &Path,
    pools: &[PathBuf],
    damaged: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<(Store, Option<Generation>, u64)> {
    let mut mirrors = Vec::new();
    let mut all = Vec::new();
    for pool in pools {
        let (mirror, found) = generations(pool)?;
        mirrors.push(mirror);
        all.extend(found);
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    for generation in all {
        for mirror in &mirrors {
            let path = mirror.join(generation.snapshot());
            let Some(file) = open(&path, damaged)? else { continue };
            progress("snapshot", 0);
            let store = empty_store(dir)?;
            let restored = store.restore_from(&mut BufReader::new(file));
            if unless_damaged(restored, &path, damaged)?.is_some() {
                let tails = follow(&store, &generation, &mirrors, damaged)?;
                return Ok((store, Some(generation), tails));
            }
        }
    }
    Ok((empty_store(dir)?, None, 0))
}

/// Applies the tails of a generation in order, each from the first pool that has it whole; gives how many.
fn follow(store: &Store, generation: &Generation, mirrors: &[PathBuf], damaged: &mut Vec<String>) -> Result<u64> {
    let mut applied = 0;
    while let Some(tail) = tail(&generation.tail(applied + 1), mirrors, damaged)? {
        store.apply_tail(tail)?;
        applied += 1;
    }
    let last = mirrors.iter().map(|mirror| last_tail(mirror, generation)).max().unwrap_or(0);
    if last > applied + 1 {
        let missing = generation.tail(applied + 1);
        damaged.push(format!(
            "{missing} is whole in none of the pools: what changed then and later, up to tail {last}, was not used"
        ));
    }
    Ok(applied)
}

fn tail(name: &str, mirrors: &[PathBuf], damaged: &mut Vec<String>) -> Result<Option<Tail>> {
    for mirror in mirrors {
        let path = mirror.join(name);
        let Some(file) = open(&path, damaged)? else { continue };
        let read = Tail::read_from(&mut BufReader::new(file));
        if let Some(tail) = unless_damaged(read, &path, damaged)? {
            return Ok(Some(tail));
        }
    }
    Ok(None)
}

/// Opens a file of a mirror; none where it is not there, or damaged.
fn open(path: &Path, damaged: &mut Vec<String>) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if is_damage(&error) => {
            damaged.push(format!("{}: {error}", path.display()));
            Ok(None)
        }
        Err(error) => Err(io_error("open", path)(error)),
    }
}

fn unless_damaged<T>(
    read: std::result::Result<T, ullage_kv::Error>,
    path: &Path,
    damaged: &mut Vec<String>,
) -> Result<Option<T>> {
    match read {
        Ok(whole) => Ok(Some(whole)),
        Err(error @ ullage_kv::Error::Corrupt(_)) => {
            damaged.push(format!("{}: {error}", path.display()));
            Ok(None)
        }
        Err(error @ ullage_kv::Error::Newer { .. }) => Err(Error::Refused(format!(
            "{}: {error}, or move this file out of the pool to rebuild from an older one",
            path.display()
        ))),
        Err(error) => Err(error.into()),
    }
}

fn empty_store(dir: &Path) -> Result<Store> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(io_error("remove what an earlier rebuild left in", dir))?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_error("create", dir))?;
    let options = Options { interval: None, ..Options::default() };
    Ok(Store::open(dir, EngineKind::Fjall, options)?)
}
