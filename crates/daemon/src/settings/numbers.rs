//! The numbers of pools, by which files are bound to them: another one, written into a `space.toml` by hand, would lead to none of them.

use crate::mirror::known_settings;
use crate::{Error, Result, SpaceSettings, State};
use ullage_kv::shown;

/// Refuses a pool that had another number when it was last used, as the copy of the settings in it says.
pub(crate) fn refuse_renumbered(state: &State, settings: &SpaceSettings) -> Result<()> {
    for pool in settings.with_files().filter(|pool| pool.uuid.is_some()) {
        let known = known_settings(&pool.files(), &settings.uuid);
        let before = known.iter().flat_map(|known| &known.pools).find(|before| before.uuid == pool.uuid);
        if let Some(before) = before.filter(|before| before.id != pool.id) {
            return Err(Error::Refused(format!(
                "{}: the pool '{}' has the number {} in this space, and its files would not be found by another: write `id = {2}` there, \
                 not {}",
                shown(&state.settings_path()).display(),
                pool.name,
                before.id,
                pool.id
            )));
        }
    }
    Ok(())
}
