//! `ullage pool add`: one more pool for a space that is down.

use crate::ballast::Ballast;
use crate::check::open;
use crate::open::{precheck, take_in_step};
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings, State, bounds, refuse_places};
use ullage_pool::DirPool;

/// Adds a pool to the settings of a space that is down: its next start makes it. Gives back the settings as they are then.
///
/// # Errors
/// Where the space is up, or the pool cannot be one of it: nothing is changed then.
pub fn add_pool(state: &State, pool: &PoolSettings) -> Result<SpaceSettings> {
    state.existing()?;
    state.refuse_without_catalog()?;
    // The disk may be full that the state is on: that is why.
    Ballast::of(state)?.release()?;
    // For as long as this takes, nobody starts it.
    let store = open(state)?;
    let mut settings = state.existing()?;
    let space = state.uuid_in(&settings)?;
    if pool.kind == Kind::Null {
        let text = "a null pool keeps nothing of what is written to it: a space has one from its first use on, or none";
        return Err(Error::Refused(text.into()));
    }
    let id = settings.next_number().ok_or_else(|| Error::Refused("no number is left for another pool".into()))?;
    settings.pools.push(PoolSettings { id, ..pool.clone() });
    if let Some(why) = bounds::wrong(&settings) {
        return Err(Error::Refused(why));
    }
    refuse_places(&settings, state)?;
    precheck(pool, space)?;
    // Of this space: of another one it would have been refused by now.
    if DirPool::is_in(&pool.files()) {
        return Err(Error::Refused(format!(
            "pool '{}': {} is, or was, a pool of this space, and what lies in it is known by another number; use an empty directory",
            pool.name,
            pool.path.display()
        )));
    }
    if pool.layout == Layout::Mirror {
        // Its plain tree has none of the directories yet that are there.
        take_in_step(state)?;
    }
    state.store(&settings)?;
    store.close()?;
    Ok(settings)
}
