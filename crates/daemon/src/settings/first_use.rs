//! The uuid of a space that is being made, written down before the first pool carries it. So a first use that ends half way,
//! by a crash or a full disk, is taken up by the next one, which may name other pools.

use crate::error::io_error;
use crate::{Result, SpaceSettings, State};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use ullage_pool::Uuid;

fn path(state: &State) -> PathBuf {
    state.place().join("uuid")
}

/// Gives a new space the uuid that its pools may carry already.
pub(crate) fn take_up(state: &State, settings: &mut SpaceSettings) -> Result<()> {
    if state.settings_path().exists() {
        return Ok(());
    }
    match fs::read_to_string(path(state)) {
        Ok(text) => {
            if let Some(uuid) = Uuid::parse(text.trim()) {
                settings.uuid = uuid.to_string();
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("read", path(state))(error)),
    }
}

/// Whether another first use has begun since this one looked: what carries its uuid is not somebody else's.
pub(crate) fn is_overtaken(state: &State, settings: &SpaceSettings) -> bool {
    let begun = || fs::read_to_string(path(state)).ok().map(|text| text.trim().to_owned());
    let made = || Some(state.load().ok()??.uuid);
    begun().or_else(made).is_some_and(|uuid| uuid != settings.uuid)
}

/// Returns when it is on disk, where there are no settings yet.
pub(crate) fn begin(state: &State, settings: &SpaceSettings) -> Result<()> {
    if state.settings_path().exists() { Ok(()) } else { state.replace(&path(state), &format!("{}\n", settings.uuid)) }
}

/// The settings are there. A file that stays means nothing beside them.
pub(crate) fn end(state: &State) {
    let _ = fs::remove_file(path(state));
}
