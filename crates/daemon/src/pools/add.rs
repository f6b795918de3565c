//! `ullage pool add`: one more pool for a space, up or down.

use super::remove;
use crate::ballast::Given;
use crate::control::limit::may_set;
use crate::control::messages::Answer;
use crate::control::report::refuse;
use crate::mirror::{Left, Mirror};
use crate::mounting::within::refuse_inside;
use crate::open::{OpenSpace, leave_room, open_pool, precheck, take_in_step};
use crate::repair::check::open;
use crate::settings::bounds;
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings, State, refuse_places};
use std::sync::Arc;
use ullage_fs::PoolMember;
use ullage_pool::DirPool;
use ullage_types::PoolId;

/// Adds a pool to a space that is down: its directory is that pool from then on, and the next start takes it into use. Gives back the settings as
/// they are then.
///
/// # Errors
/// Where the space is up, or the pool cannot be one of it: nothing is changed then.
pub fn add_pool(state: &State, pool: &PoolSettings) -> Result<SpaceSettings> {
    state.existing()?;
    state.refuse_users()?;
    state.refuse_without_catalog()?;
    // The disk may be full that the state is on: that is why.
    let _given = Given::of(state)?;
    // For as long as this takes, nobody starts it.
    let store = open(state)?;
    let mut settings = with(state.existing()?, state, pool)?;
    if pool.layout == Layout::Mirror {
        // Its plain tree has none of the directories yet that are there.
        take_in_step(state)?;
    }
    found(state, &mut settings)?;
    store.close()?;
    Ok(settings)
}

/// Stores settings of which the last pool is new, with what it will be known by: else a start without its disk would make it where that is mounted.
/// A plain tree is made by the start that fills it.
fn found(state: &State, settings: &mut SpaceSettings) -> Result<()> {
    let space = state.uuid_in(settings)?;
    let Some(added) = settings.pools.last_mut().filter(|pool| pool.layout != Layout::Mirror) else {
        return state.store(settings);
    };
    let (name, files) = (added.name.clone(), added.files());
    let own = DirPool::found(&files, space).map_err(|source| Error::Pool { name, source })?;
    added.uuid = Some(own.to_string());
    state.store(settings).inspect_err(|_| {
        // Its directory is as empty as it was then.
        let _ = ullage_pool::clear(&files, space, own, &[]);
    })
}

/// These settings with one more pool at their end, which can be one of the space; nothing is changed.
fn with(mut settings: SpaceSettings, state: &State, pool: &PoolSettings) -> Result<SpaceSettings> {
    let space = state.uuid_in(&settings)?;
    if pool.kind == Kind::Null {
        let text = "a null pool keeps nothing of what is written to it: a space has one from its first use on, or none";
        return Err(Error::Refused(text.into()));
    }
    let id = settings.next_number().ok_or_else(|| Error::Refused("no number is left for another pool".into()))?;
    settings.pools.push(PoolSettings { id, draining: false, import: false, uuid: None, ..pool.clone() });
    if let Some(why) = bounds::wrong(&settings) {
        return Err(Error::Refused(why));
    }
    refuse_places(&settings, state)?;
    precheck(pool, space, state, &settings.mountpoint)?;
    // Of this space: of another one it would have been refused by now.
    if DirPool::is_in(&pool.files()).unwrap_or(false) {
        return Err(Error::Refused(format!(
            "pool '{}': {} is, or was, a pool of this space, and what lies in it is known by another number; use an empty directory",
            pool.name,
            pool.path.display()
        )));
    }
    Ok(settings)
}

/// Adds a pool to a space that is up, as it was asked for over the control socket.
pub(crate) fn while_up(open: &OpenSpace, mirror: Option<&Mirror>, pool: &PoolSettings, peer: u32) -> Answer {
    if !may_set(peer) {
        return refuse("only root and who mounted the space may add pools");
    }
    match join(open, mirror, pool) {
        Ok(()) => Answer::Done,
        Err(error) => refuse(error),
    }
}

/// Its marker first, then the settings: from these on the next start goes on with it, and where it ends before, the directory is one that was a pool
/// of this space. Files go there last, when everything knows of it.
fn join(open: &OpenSpace, mirror: Option<&Mirror>, pool: &PoolSettings) -> Result<()> {
    let state = &open.state;
    if pool.layout == Layout::Mirror {
        let text = "the plain tree of a mirror pool gets the directories that there are at a start: add it while the space is down";
        return Err(Error::Refused(text.into()));
    }
    // A disk that does not answer is waited for here, where it keeps nobody else waiting.
    with(open.settings_now()?, state, pool)?;
    refuse_inside(pool, open.space.mounted_as())?;
    let _turn = open.changes.begin()?;
    let mut settings = with(open.settings_now()?, state, pool)?;
    found(state, &mut settings)?;
    let mut added = settings.pools.last().cloned().ok_or_else(|| Error::Refused("no pool was added".into()))?;
    let made = make(open, &settings, &mut added);
    if made.is_err() {
        // Its directory is as empty as it was then; its number is given to no other.
        match remove::take_out(state, &mut settings, &added) {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!(pool = added.name, "its directory stays as it is: {why}"),
            Err(error) => {
                tracing::warn!(pool = added.name, "it stays in the settings, and comes with the next start: {error}");
            }
        }
    }
    let member = made?;
    tracing::info!(pool = added.name, path = %added.path.display(), "the space has one more pool");
    if let Some(mirror) = mirror {
        mirror.join(added, Left::by(&member));
    }
    open.space.add_pool(member);
    Ok(())
}

fn make(open: &OpenSpace, settings: &SpaceSettings, added: &mut PoolSettings) -> Result<PoolMember> {
    let (id, catalog) = (PoolId(added.id), open.space.catalog());
    let (pool, tree) = open_pool(added, open.state.uuid_in(settings)?, catalog, Arc::new(catalog.marks(id)?))?;
    let mut member = PoolMember { id, name: added.name.clone(), pool, reserve: added.reserve_bytes, tree };
    leave_room(&open.ballast, std::slice::from_mut(&mut member))?;
    open.turns.join(added)?;
    Ok(member)
}
