//! What the pools of a space hold, for checking, repairing and rebuilding its catalog.

use crate::{Error, Kind, PoolSettings, Result};
use ullage_catalog::{Facts, Found};
use ullage_pool::{Survey, Uuid};
use ullage_types::PoolId;

/// How far long work has come: what is being looked at, and how many so far.
pub type Progress<'a> = dyn FnMut(&'static str, u64) + 'a;

/// Looks through pools. The locks that come with them are held as long as they are kept.
pub(crate) fn survey(pools: &[PoolSettings], space: Uuid, progress: &mut Progress<'_>) -> Result<(Facts, Vec<Survey>)> {
    let mut facts = Facts::default();
    let mut locked = Vec::new();
    let mut count = 0;
    for pool in pools.iter().filter(|pool| pool.kind == Kind::Dir) {
        let fail = |source| Error::Pool { name: pool.name.clone(), source };
        let uuid = pool.uuid.as_deref().and_then(Uuid::parse);
        let survey = Survey::open(&pool.files(), Some(space), uuid).map_err(fail)?;
        let id = PoolId(pool.id);
        facts.pools.insert(id);
        survey
            .visit(&mut |found| {
                count += 1;
                if count % 1000 == 0 {
                    progress("backing files", count);
                }
                let Some(numbers) = found.numbers else { return };
                let owner = found.annotation.map(|note| (note.class, note.uid, note.gid));
                let (size, blocks, locator) = (found.size, found.blocks, found.locator.0);
                let (atime, mtime, ctime) = (found.atime, found.mtime, found.ctime);
                let found = Found { pool: id, locator, size, blocks, atime, mtime, ctime, owner };
                facts.found.insert(numbers, found);
            })
            .map_err(fail)?;
        locked.push(survey);
    }
    Ok((facts, locked))
}
