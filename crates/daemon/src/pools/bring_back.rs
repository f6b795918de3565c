//! Backing files that are gone from where their pool has them, and are still shown in its plain tree.

use crate::repair::facts::{Progress, Seen};
use crate::{Error, Layout, Result, SpaceSettings};
use std::collections::BTreeSet;
use ullage_catalog::{Due, Report};
use ullage_pool::{Locator, Tree, Uuid};
use ullage_types::{Generation, PoolId};

/// Gives backing files that are missing in their pool, and which its plain tree still shows, their names again; says of which files. What the
/// catalog drops the next start takes out of the tree: with the last name of all data.
pub(crate) fn bring_back(
    settings: &SpaceSettings,
    space: Uuid,
    seen: &mut Seen,
    records: &Report,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>> {
    let mut done = Vec::new();
    for pool in settings.pools.iter().filter(|pool| pool.layout == Layout::Mirror) {
        let id = PoolId(pool.id);
        if !seen.facts.pools.contains(&id) {
            continue;
        }
        let found = &seen.facts.found;
        let missing = |generation: Generation, due: &Due| !found.contains_key(&(due.file, generation));
        if !records.due.iter().any(|((pool, generation), due)| *pool == id && missing(*generation, due)) {
            continue;
        }
        progress("plain tree", 0);
        let mut back = BTreeSet::new();
        let mut wanted = |file, generation| {
            let due = records.due.get(&(id, generation))?;
            (due.file == file && missing(generation, due)).then(|| {
                back.insert(file);
                Locator(due.locator.clone())
            })
        };
        Tree::bring_back(&pool.path, space, &mut wanted)
            .map_err(|source| Error::Pool { name: pool.name.clone(), source })?;
        let text =
            |file| format!("the backing file of inode {file} was missing, and is there again: the plain tree had it");
        done.extend(back.into_iter().map(text));
    }
    if !done.is_empty() {
        seen.look(progress)?;
    }
    Ok(done)
}
