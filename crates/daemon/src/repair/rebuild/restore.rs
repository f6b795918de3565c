//! The catalog as its newest whole copy in the pools has it. Only damage of a copy makes the next older one count: what is wrong
//! with this rebuild, its disk or its version is no reason to give up names.

use crate::error::io_error;
use crate::mirror::{Generation, generations, last_tail, newest_tail};
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
                tell_later(Some(&generation), &mirrors, damaged)?;
                return Ok((store, Some(generation), tails));
            }
        }
    }
    tell_later(None, &mirrors, damaged)?;
    Ok((empty_store(dir)?, None, 0))
}

/// Says so where there are tails of a generation after the one that is used, whose snapshot is gone.
fn tell_later(used: Option<&Generation>, mirrors: &[PathBuf], damaged: &mut Vec<String>) -> Result<()> {
    let newest = mirrors.iter().map(|mirror| newest_tail(mirror)).collect::<Result<Vec<_>>>()?;
    let Some(newest) = newest.into_iter().flatten().max().filter(|newest| used < Some(newest)) else { return Ok(()) };
    let missing = newest.snapshot();
    // One that is damaged was said to be.
    if !mirrors.iter().any(|mirror| mirror.join(&missing).exists()) {
        damaged.push(format!(
            "{missing} is in none of the pools: what changed then and later, in its tails, was not used"
        ));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(mirror: &Path, second: u64, end: &str, store: &Store) {
        let path = mirror.join(format!("{second:016x}-{:016x}.{end}", 7));
        store.snapshot_to(&mut File::create(path).unwrap()).unwrap();
    }

    /// Regression: where the newest snapshot was gone and its tails were not, an older one was used and nobody was told.
    #[test]
    fn tails_of_a_later_snapshot_that_is_gone_are_said_not_to_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let pool = dir.path().join("pool");
        let mirror = generations(&pool).unwrap().0;
        fs::create_dir_all(&mirror).unwrap();
        let store = Store::open(&dir.path().join("store"), EngineKind::Memory, Options::default()).unwrap();
        write(&mirror, 1, "snapshot", &store);
        let said = |name: &str| {
            let mut damaged = Vec::new();
            restore(&dir.path().join(name), std::slice::from_ref(&pool), &mut damaged, &mut |_, _| ()).unwrap();
            damaged
        };
        assert_eq!(said("whole"), [] as [String; 0]);
        write(&mirror, 2, "1.tail", &store);
        let damaged = said("without");
        assert!(damaged.len() == 1 && damaged[0].contains("-0000000000000007.snapshot is in none"), "{damaged:?}");
        write(&mirror, 2, "snapshot", &store);
        assert!(!said("damaged tail").iter().any(|text| text.contains("is in none")));
    }
}
