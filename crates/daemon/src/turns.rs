//! How often a space was started, and ended in order: a number in its state, and one in each pool.
//!
//! A state that is older than its pools (restored from a copy of before, or what a rebuilt one took the place of) does not know what was
//! made since: it would drop those files as nobody's, and give their numbers out again.

use crate::config::replace;
use crate::error::io_error;
use crate::{Error, Kind, Result, SpaceSettings, State};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// In the directory of a pool's backing files.
const NAME: &str = ".ullage-turns";

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
    for (name, path) in places(settings) {
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

/// Counts one more, in the state and then in the pools. A pool that cannot be written is behind, which does no harm.
pub(crate) fn count(state: &State, settings: &SpaceSettings) -> Result<()> {
    let turns = newest(state, settings)?.saturating_add(1).to_string();
    state.replace(&state.turns_path(), &turns)?;
    for (name, path) in places(settings) {
        if let Err(error) = replace(&path, &turns) {
            tracing::warn!(pool = name, "{} cannot be written: {error}", path.display());
        }
    }
    Ok(())
}

/// A new state of what is in the pools is as new as they are.
pub(crate) fn take_over(state: &State, settings: &SpaceSettings) -> Result<()> {
    state.replace(&state.turns_path(), &newest(state, settings)?.to_string())
}

fn newest(state: &State, settings: &SpaceSettings) -> Result<u64> {
    let mut newest = read(&state.turns_path())?.unwrap_or(0);
    for (_, path) in places(settings) {
        newest = newest.max(read(&path)?.unwrap_or(0));
    }
    Ok(newest)
}

fn places(settings: &SpaceSettings) -> impl Iterator<Item = (&str, PathBuf)> {
    let with_files = settings.pools.iter().filter(|pool| pool.kind != Kind::Null);
    with_files.map(|pool| (pool.name.as_str(), pool.files().join(NAME)))
}

/// None where there is no number: nobody counted there yet, or what is there is no number.
fn read(path: &Path) -> Result<Option<u64>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidData) =>
        {
            Ok(None)
        }
        Err(error) => Err(io_error("read", path)(error)),
    }
}
