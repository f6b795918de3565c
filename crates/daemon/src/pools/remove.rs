//! Taking an empty pool out of a space.
//!
//! Only where the catalog, all of it on disk, names no file there. What is removed from its directory is what is ours and has nothing in it;
//! anything else stays and is told of.

use crate::ballast::Given;
use crate::mirror;
use crate::repair::check::open;
use crate::{Error, Kind, PoolSettings, Result, SpaceSettings, State, turns};
use ullage_catalog::lies_in;
use ullage_kv::Kv;
use ullage_pool::Uuid;
use ullage_types::{Bytes, PoolId};

/// What became of a pool that was to leave a space that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The space is without it. So many files that are none of the space's are left in its directory; none where that could not be cleared,
    /// and why.
    Gone(std::result::Result<u64, String>),
    /// So many files, that take so much, go to the others first, once the space is up.
    Draining(u64, Bytes),
    /// It stays, and is not emptied any more.
    Kept,
}

/// Takes a pool out of a space that is down, or has it emptied from the next start on. With `cancel` it stays.
///
/// # Errors
/// Where the space is up, or has no such pool, or no other: nothing is changed then.
pub fn remove_pool(state: &State, name: &str, cancel: bool) -> Result<Removed> {
    state.existing()?;
    state.refuse_users()?;
    state.refuse_without_catalog()?;
    let _given = Given::of(state)?;
    // For as long as this takes, nobody starts it.
    let store = open(state)?;
    let mut settings = state.existing()?;
    let pool = settings.pool_called(name)?.clone();
    if cancel {
        settings.set_draining(pool.id, false);
        state.store(&settings)?;
        mirror::renew_settings(&settings);
        store.close()?;
        return Ok(Removed::Kept);
    }
    refuse_last(&settings, &pool)?;
    let files = lies_in(&store, PoolId(pool.id))?;
    let removed = if files.is_empty() {
        if mirror::is_only_holder(&settings, &pool) {
            return Err(Error::Refused(format!(
                "no other pool has a copy of the catalog as new as the one in '{name}', of which `ullage rebuild` would make it again: make room \
                 in another one, and start and end the space once"
            )));
        }
        let cleared = take_out(state, &mut settings, &pool)?;
        mirror::renew_settings(&settings);
        Removed::Gone(cleared)
    } else {
        if pool.kind == Kind::Null {
            return Err(Error::Refused(format!(
                "{} files lie in '{name}', which has kept nothing of them; remove them first",
                files.len()
            )));
        }
        settings.set_draining(pool.id, true);
        state.store(&settings)?;
        mirror::renew_settings(&settings);
        Removed::Draining(files.len() as u64, files.iter().map(|(_, bytes)| *bytes).sum())
    };
    store.close()?;
    Ok(removed)
}

/// Refuses to be without a pool that files can go to.
pub(crate) fn refuse_last(settings: &SpaceSettings, pool: &PoolSettings) -> Result<()> {
    let takes =
        |other: &PoolSettings| other.id != pool.id && !other.draining && !other.absent && other.kind != Kind::Null;
    if settings.pools.iter().any(takes) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "'{}' is the only pool of the space that takes files; add another one first, with `ullage pool add`",
        pool.name
    )))
}

/// At the end of a space: takes out all pools that were to be emptied, and are. Everything is on disk by now. One that was not there is not looked
/// at: a start with it takes back first what was removed meanwhile.
pub(crate) fn all_drained(state: &State, mut settings: SpaceSettings, kv: &dyn Kv) -> Result<()> {
    let draining = settings.pools.iter().filter(|pool| pool.draining && !pool.absent);
    for pool in draining.cloned().collect::<Vec<PoolSettings>>() {
        if refuse_last(&settings, &pool).is_err() || !lies_in(kv, PoolId(pool.id))?.is_empty() {
            continue;
        }
        if mirror::is_only_holder(&settings, &pool) {
            tracing::warn!(
                "the pool '{}' was emptied, and stays in the space until another one has a copy of the catalog that is as new: make room there, \
                 and start the space once more",
                pool.name
            );
            continue;
        }
        let cleared = take_out(state, &mut settings, &pool)?;
        // Nobody else writes there any more.
        mirror::renew_settings(&settings);
        match cleared {
            Ok(0) => tracing::info!("the pool '{}' was emptied, and is none of the space any more", pool.name),
            Ok(left) => tracing::warn!(
                "the pool '{}' is none of the space any more; {left} files that are none of its are left in {}",
                pool.name,
                pool.path.display()
            ),
            Err(why) => {
                tracing::warn!("the pool '{}' is none of the space any more; its directory stays: {why}", pool.name);
            }
        }
    }
    Ok(())
}

/// First from the settings: what is left of its directory then is nobody's.
pub(crate) fn take_out(
    state: &State,
    settings: &mut SpaceSettings,
    pool: &PoolSettings,
) -> Result<std::result::Result<u64, String>> {
    settings.next_pool = settings.next_number();
    settings.pools.retain(|other| other.id != pool.id);
    state.store(settings)?;
    if pool.kind == Kind::Null {
        return Ok(Ok(0));
    }
    let files = pool.files();
    let space = state.uuid_in(settings)?;
    let cleared = || -> std::result::Result<u64, String> {
        let own = pool.uuid.as_deref().and_then(Uuid::parse).ok_or("it was never used")?;
        ullage_pool::clear(&files, space, own, &[mirror::IN_POOL, turns::IN_POOL]).map_err(|error| error.to_string())
    };
    Ok(cleared())
}
