//! What the pools of a space hold, for checking, repairing and rebuilding its catalog.

use crate::{Error, Kind, PoolSettings, Result, quoted};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};
use ullage_catalog::{Facts, Found};
use ullage_pool::{Survey, Surveyed, Uuid};
use ullage_types::{FileId, Generation, PoolId};

/// How far long work has come: what is being looked at, and how many so far.
pub type Progress<'a> = dyn FnMut(&'static str, u64) + 'a;

/// What lies in the pools.
#[derive(Default)]
pub(crate) struct Seen {
    pub facts: Facts,
    /// Of each file with data of which nobody can say whose it is, and what to do about it. While there are any nothing is mended:
    /// a repair would take them for lost.
    pub unclear: Vec<String>,
    /// Of each file that cannot be read, what to do about it. A repair would have to guess; a rebuild goes by its name.
    pub unreadable: Vec<String>,
    /// Nobody else uses the pools meanwhile.
    locked: Vec<Locked>,
}

/// A pool that is looked through.
struct Locked {
    id: PoolId,
    name: String,
    root: PathBuf,
    survey: Survey,
}

/// Refuses to go on without what is unclear, or cannot be read.
pub(crate) fn refuse(such: &[String]) -> Result<()> {
    match such {
        [] => Ok(()),
        [one] => Err(Error::Refused(format!("{one}; then try again"))),
        [first, rest @ ..] => Err(Error::Refused(format!(
            "{first}; so with {} more that `ullage check` names; then try again",
            rest.len()
        ))),
    }
}

/// Looks through pools that are there, which stay locked as long as what was seen is kept.
pub(crate) fn survey(pools: &[PoolSettings], space: Uuid, progress: &mut Progress<'_>) -> Result<Seen> {
    let mut seen = Seen::default();
    for pool in pools.iter().filter(|pool| pool.kind == Kind::Dir && !pool.absent) {
        let (id, name, root) = (PoolId(pool.id), pool.name.clone(), pool.files());
        let uuid = pool.uuid.as_deref().and_then(Uuid::parse);
        // Added since the space was up last: it is made a pool when that starts.
        if uuid.is_none() && !root.join(ullage_pool::MARKER).exists() {
            continue;
        }
        let survey =
            Survey::open(&root, Some(space), uuid).map_err(|source| Error::Pool { name: name.clone(), source })?;
        seen.facts.pools.insert(id);
        seen.locked.push(Locked { id, name, root, survey });
    }
    seen.look(progress)?;
    Ok(seen)
}

impl Seen {
    /// Looks through the pools, once more where something was put back.
    pub(crate) fn look(&mut self, progress: &mut Progress<'_>) -> Result<()> {
        let Self { facts, unclear, unreadable, locked } = self;
        facts.found.clear();
        unclear.clear();
        unreadable.clear();
        let mut count = 0;
        for Locked { id, name, root, survey } in locked {
            let mut visit = |found: Surveyed| {
                count += 1;
                if count % 1000 == 0 {
                    progress("backing files", count);
                }
                let owner = found.annotation.map(|note| (note.class, note.uid, note.gid));
                let (size, blocks, locator, bare) = (found.size, found.blocks, found.locator.0, found.bare);
                let (atime, mtime, ctime) = (found.atime, found.mtime, found.ctime);
                let (numbers, errno) = (found.numbers, found.unreadable);
                if let Some(errno) = errno {
                    let path = root.join(String::from_utf8_lossy(&locator).as_ref());
                    unreadable.push(format!(
                        "{} cannot be read ({errno}): unmount the pool's disk and run fsck on it, or remove the file to give it up",
                        path.display()
                    ));
                }
                let unreadable = errno.is_some();
                let found = Found { pool: *id, locator, size, blocks, atime, mtime, ctime, bare, unreadable, owner };
                let left = match numbers {
                    Some(numbers) => put(&mut facts.found, numbers, found),
                    None => Some(found),
                };
                if let Some(left) = left.filter(|left| left.size > 0) {
                    let path = root.join(String::from_utf8_lossy(&left.locator).as_ref());
                    unclear.push(of_nobody(&path, numbers.is_some()));
                }
            };
            survey.visit(&mut visit).map_err(|source| {
                if source.is_damage() {
                    let text = format!("pool '{name}': {source}: unmount its disk and run fsck on it; then try again");
                    return Error::Refused(text);
                }
                Error::Pool { name: name.clone(), source }
            })?;
        }
        Ok(())
    }
}

/// Gives back the one of two with the same number that has less to say for itself.
fn put(all: &mut FxHashMap<(FileId, Generation), Found>, numbers: (FileId, Generation), found: Found) -> Option<Found> {
    let less = |found: &Found| found.bare || found.unreadable;
    match all.get(&numbers) {
        Some(held) if less(&found) || !less(held) => Some(found),
        _ => all.insert(numbers, found),
    }
}

fn of_nobody(path: &Path, twice: bool) -> String {
    let shown = path.display();
    if twice {
        format!("{shown} has the number of another backing file: move the one that is wrong out of the pool")
    } else {
        format!(
            "name and attribute of {shown} do not say the same of whose data it holds: if its name is right, take the attribute \
             away with `setfattr -x user.ullage {}`, else move the file out of the pool",
            quoted(path)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a pool that was added and never used yet was refused by `check`, as it is made a pool only when the space starts.
    #[test]
    fn a_pool_that_was_never_used_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for layout in ["sparse", "mirror"] {
            let text = format!("a={},layout={layout}", dir.path().display());
            let mut pool: PoolSettings = text.parse().unwrap();
            let seen = survey(std::slice::from_ref(&pool), Uuid([7; 16]), &mut |_, _| ()).unwrap();
            assert!(seen.facts.pools.is_empty() && seen.facts.found.is_empty());
            pool.uuid = Some(Uuid([8; 16]).to_string());
            assert!(survey(&[pool], Uuid([7; 16]), &mut |_, _| ()).is_err(), "{layout}: its marker is lost");
        }
    }
}
