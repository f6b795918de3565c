//! Which pools the space that is rebuilt has.

use crate::mirror::{Generation, generations, read_settings};
use crate::settings::bounds;
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use ullage_catalog::Facts;
use ullage_kv::{Store, is_damage};
use ullage_pool::{Survey, Uuid};
use ullage_types::PoolId;

/// What the pools say of the space.
pub(super) struct Settled {
    pub(super) settings: SpaceSettings,
    /// Pools that are given up.
    pub(super) gone: FxHashSet<PoolId>,
    pub(super) space: Uuid,
    /// Copies of the settings that cannot be read.
    pub(super) damaged: Vec<String>,
    /// Where there is no other: how many pools are said to be given up. Nobody knows which the space has.
    given_up: Option<usize>,
}

impl Settled {
    /// Where nobody knows which pools the space has: those of which the records speak, and that hold nothing of what was found in the given ones.
    ///
    /// # Errors
    /// Where they are more than are given up.
    pub(super) fn left_out(&self, store: &Store, facts: &Facts) -> Result<BTreeSet<PoolId>> {
        let Some(given_up) = self.given_up else { return Ok(BTreeSet::new()) };
        let left_out = ullage_catalog::pools_left_out(store, facts)?;
        if left_out.len() <= given_up {
            return Ok(left_out);
        }
        Err(Error::Refused(format!(
            "no copy of the space's settings can be read, and of the pools that the copy of the catalog speaks of {} are none of those \
             that were given: name each with --pool NAME=PATH, or give up the files in it with --without NAME",
            left_out.len()
        )))
    }
}

/// The settings of the space from what the pools say: their numbers as before, their names and paths as given.
pub(super) fn settle_pools(mountpoint: &Path, pools: Vec<PoolSettings>, without: &[String]) -> Result<Settled> {
    let mut given = Vec::new();
    let mut space: Option<Uuid> = None;
    for mut pool in pools {
        if pool.kind == Kind::Null {
            let text = format!(
                "pool '{}': nothing is kept in a null pool that a space could be made from; leave it out",
                pool.name
            );
            return Err(Error::Refused(text));
        }
        let layout = PoolSettings::layout_of(&pool.path);
        if pool.layout == Layout::Mirror && layout != pool.layout {
            let (name, path) = (&pool.name, pool.path.display());
            return Err(Error::Refused(format!(
                "pool '{name}': there is no mirror pool at {path}; its layout is {}",
                layout.name()
            )));
        }
        pool.layout = layout;
        // Not kept: this is only who they are.
        let survey = Survey::open(&pool.files(), space, None)
            .map_err(|source| Error::Pool { name: pool.name.clone(), source })?;
        space = Some(survey.space());
        given.push((pool, survey.pool().to_string()));
    }
    let space = space.ok_or_else(|| Error::Refused("name every pool of the space with --pool NAME=PATH".into()))?;
    let mut newest: Option<(Option<Generation>, SpaceSettings)> = None;
    let mut damaged = Vec::new();
    for (pool, _) in &given {
        let known = unless_damaged(read_settings(&pool.files()), &mut damaged)?;
        let Some(settings) = known.filter(|settings| settings.uuid == space.to_string()) else { continue };
        let begun = generations(&pool.files())?.1.into_iter().next();
        if newest.as_ref().is_none_or(|(other, _)| *other < begun) {
            newest = Some((begun, settings));
        }
    }
    let fresh: Vec<PoolSettings> = given.iter().map(|(pool, _)| pool.clone()).collect();
    let spread = newest.as_ref().map_or_else(|| "most-free".to_owned(), |(_, settings)| settings.spread.clone());
    // Gives numbers in order, which stand where nobody knows better.
    let mut settings = SpaceSettings::new(mountpoint, fresh, spread)?;
    if let Some(at) =
        given.iter().enumerate().position(|(at, (_, own))| given[..at].iter().any(|(_, other)| other == own))
    {
        return Err(Error::Refused(format!("the pool '{}' was named twice; name each pool once", given[at].0.name)));
    }
    settings.uuid = space.to_string();
    let mut gone = FxHashSet::default();
    let known = newest.map(|(_, settings)| settings);
    settings.next_pool = known.as_ref().and_then(SpaceSettings::next_number);
    for (pool, (_, uuid)) in settings.pools.iter_mut().zip(&given) {
        pool.uuid = Some(uuid.clone());
        if let Some(before) = known.iter().flat_map(|known| &known.pools).find(|p| p.uuid.as_deref() == Some(uuid)) {
            pool.id = before.id;
            pool.draining = before.draining;
            if pool.reserve_bytes.0 == 0 {
                pool.reserve_bytes = before.reserve_bytes;
            }
            if pool.sparse.is_usual() {
                pool.sparse = before.sparse;
            }
        } else if let Some(next) = settings.next_pool {
            // Added since: no copy tells its number, and none names a file in it.
            pool.id = next;
            settings.next_pool = next.checked_add(1);
        }
    }
    // The others may be given up.
    if settings.pools.iter().all(|pool| pool.draining) {
        settings.pools.iter_mut().for_each(|pool| pool.draining = false);
    }
    let given_up = known.is_none().then_some(without.len());
    if let Some(known) = known {
        settings.mirror_seconds = known.mirror_seconds;
        let here = |uuid: &Option<String>| given.iter().any(|(_, own)| Some(own) == uuid.as_ref());
        for missing in known.pools.iter().filter(|pool| !here(&pool.uuid)) {
            // What is in a `null` pool nothing brings back.
            if missing.kind == Kind::Dir && !without.contains(&missing.name) {
                return Err(Error::Refused(format!(
                    "the space has a pool '{0}' too, last at {1}: name it with --pool {0}=PATH, or give up the files in it \
                     with --without {0}",
                    missing.name,
                    missing.path.display()
                )));
            }
            gone.insert(PoolId(missing.id));
        }
    }
    if let Some(why) = bounds::wrong(&settings) {
        return Err(Error::Refused(why));
    }
    Ok(Settled { settings, gone, space, damaged, given_up })
}

/// None where a copy of the settings is damaged. One of a later version ends the rebuild: it may say of pools what is not known here.
fn unless_damaged(read: Result<Option<SpaceSettings>>, damaged: &mut Vec<String>) -> Result<Option<SpaceSettings>> {
    let (path, why) = match read {
        Err(Error::Settings { path, source }) => (path, source.message().replace('\n', " ")),
        Err(Error::Io { path, source, .. }) if is_damage(&source) || source.kind() == ErrorKind::InvalidData => {
            (path, source.to_string())
        }
        read => return read,
    };
    damaged.push(format!("{}: {why}", path.display()));
    Ok(None)
}
