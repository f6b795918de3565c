//! How often a space was started, ended in order, and changed between two turns of its mirror: a number in its state, and one in each
//! pool.
//!
//! A state that is older than its pools (restored from a copy of before, or what a rebuilt one took the place of) does not know what was
//! made since: it would drop those files as nobody's, and give their numbers out again.

use crate::error::io_error;
use crate::held::Held;
use crate::settings::config::{read_small, replace};
use crate::{Error, Layout, PoolSettings, Result, SpaceSettings, State};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// In the state.
pub(crate) const IN_STATE: &str = "turns";
/// In the directory of a pool's backing files.
pub(crate) const IN_POOL: &str = ".ullage-turns";

/// Refuses a state that is older than one of its pools.
pub(crate) fn refuse_older(state: &State, settings: &SpaceSettings) -> Result<()> {
    match older(state, settings)? {
        Some(why) => Err(Error::Refused(why)),
        None => Ok(()),
    }
}

/// Why a state cannot be used with these pools; nothing if it can.
pub(crate) fn older(state: &State, settings: &SpaceSettings) -> Result<Option<String>> {
    let own = read(&state.turns_path())?.unwrap_or(0);
    for (name, files) in places(settings) {
        let path = files.join(IN_POOL);
        if read(&path)?.is_some_and(|there| there > own) {
            return Ok(Some(format!(
                "the state {0} is older than the pool '{name}', which was used with a newer one since: put that back, or make a new \
                 one of what is in the pools with `ullage rebuild`; to go on with this one and lose what was made since, remove {1}",
                state.dir().display(),
                path.display()
            )));
        }
    }
    Ok(None)
}

/// What to know of each pool that was not used with this state last. That is no fault of a space that was started without it; of one that was
/// put back from a copy of before nothing else would say so.
pub fn behind(state: &State, settings: &SpaceSettings) -> Vec<String> {
    let Ok(Some(own)) = read(&state.turns_path()) else { return Vec::new() };
    // A crash may have come between the two.
    let is_behind =
        |files: &Path| matches!(read(&files.join(IN_POOL)), Ok(Some(there)) if there < own.saturating_sub(1));
    let behind = places(settings).filter(|(_, files)| is_behind(files));
    let told = |(name, _)| {
        format!(
            "the pool '{name}' is older than the state: the space was used without it, or its disk could not be written, or it was put back \
             from a copy of before. Then files in it are as they were, and those made since cannot be read (EIO): `ullage check` names them \
             once the space is down"
        )
    };
    behind.map(told).collect()
}

/// The numbers of a space that is up.
pub(crate) struct Turns {
    state: Held,
    counted: Mutex<Counted>,
}

struct Counted {
    number: u64,
    pools: Vec<Pool>,
}

struct Pool {
    name: String,
    files: Held,
    failed: bool,
}

impl Pool {
    fn hold(name: &str, files: &Path) -> Result<Self> {
        Ok(Self { name: name.to_owned(), files: Held::open(files)?, failed: false })
    }
}

impl Turns {
    /// Those of a state that is not older than its pools.
    pub(crate) fn hold(state: &State, settings: &SpaceSettings) -> Result<Self> {
        let pools = places(settings).map(|(name, files)| Pool::hold(name, &files)).collect::<Result<_>>()?;
        let counted = Counted { number: newest(state, settings)?, pools };
        Ok(Self { state: Held::open(&state.place())?, counted: Mutex::new(counted) })
    }

    /// What was counted last.
    pub(crate) fn now(&self) -> u64 {
        self.counted.lock().number
    }

    /// A pool that is added to the space counts with it from now on.
    pub(crate) fn join(&self, pool: &PoolSettings) -> Result<()> {
        let pool = Pool::hold(&pool.name, &pool.files())?;
        let mut counted = self.counted.lock();
        let path = pool.files.join(IN_POOL);
        replace(&path, &counted.number.to_string()).map_err(io_error("write", &path))?;
        counted.pools.push(pool);
        Ok(())
    }

    /// Counts one more, in the state and then in the pools: where only the first was done, the state is ahead. A pool that cannot be
    /// written is behind, which does no harm.
    pub(crate) fn count(&self) -> Result<()> {
        let Counted { number, pools } = &mut *self.counted.lock();
        *number = number.saturating_add(1);
        let text = number.to_string();
        let own = self.state.join(IN_STATE);
        replace(&own, &text).map_err(io_error("write", &own))?;
        for pool in pools {
            let written = replace(&pool.files.join(IN_POOL), &text);
            let failed = std::mem::replace(&mut pool.failed, written.is_err());
            if let (false, Err(error)) = (failed, written) {
                tracing::warn!(pool = pool.name, "its {IN_POOL} cannot be written: {error}");
            }
        }
        Ok(())
    }
}

/// Whether what was left in the state with this number is of the same time as it and as its plain trees.
pub(crate) fn is_of_now(state: &State, settings: &SpaceSettings, left: &Path) -> Result<bool> {
    let Some(number) = read(left)? else { return Ok(false) };
    let trees = settings.with_files().filter(|pool| pool.layout == Layout::Mirror);
    for path in trees.map(|pool| pool.files().join(IN_POOL)).chain([state.turns_path()]) {
        if read(&path)? != Some(number) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A new state of what is in the pools is as new as they are.
pub(crate) fn take_over(state: &State, settings: &SpaceSettings) -> Result<()> {
    state.replace(&state.turns_path(), &newest(state, settings)?.to_string())
}

fn newest(state: &State, settings: &SpaceSettings) -> Result<u64> {
    let mut newest = read(&state.turns_path())?.unwrap_or(0);
    for (_, files) in places(settings) {
        newest = newest.max(read(&files.join(IN_POOL))?.unwrap_or(0));
    }
    Ok(newest)
}

fn places(settings: &SpaceSettings) -> impl Iterator<Item = (&str, PathBuf)> {
    settings.with_files().map(|pool| (pool.name.as_str(), pool.files()))
}

/// None where there is no number: nobody counted there yet, or what is there is no number.
fn read(path: &Path) -> Result<Option<u64>> {
    match read_small(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData) =>
        {
            Ok(None)
        }
        Err(error) => Err(io_error("read", path)(error)),
    }
}
