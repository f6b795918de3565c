//! Backing files that are gone from where their pool has them, and are still shown in its plain tree.

use crate::facts::{Progress, Seen};
use crate::{Error, Layout, Result, SpaceSettings};
use std::collections::BTreeSet;
use ullage_catalog::Report;
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
        let is_missing = |generation: Generation, file| {
            seen.facts.pools.contains(&id)
                && records.bindings.get(&(id, generation)) == Some(&file)
                && !seen.facts.found.contains_key(&(file, generation))
        };
        if !records
            .bindings
            .iter()
            .any(|((lies_in, generation), file)| *lies_in == id && is_missing(*generation, *file))
        {
            continue;
        }
        progress("plain tree", 0);
        let mut back = BTreeSet::new();
        let mut missing = |file, generation| {
            let locator = records.locators.get(&(id, generation)).filter(|_| is_missing(generation, file))?;
            back.insert(file);
            Some(Locator(locator.clone()))
        };
        Tree::bring_back(&pool.path, space, &mut missing)
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
