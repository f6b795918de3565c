//! Changes of the pools of a space that is up: one at a time, and none once it ends.

use crate::open::OpenSpace;
use crate::{Error, Result, SpaceSettings};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use ullage_kv::shown;
use ullage_types::PoolId;

/// How long a change that is under way is waited for: it may wait for a disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Held while the settings change: together two could take all pools away, and both write them.
#[derive(Default)]
pub(crate) struct Changes {
    now: Mutex<()>,
    over: AtomicBool,
}

impl Changes {
    /// Waits for the turn of one change, which ends when this is dropped.
    pub(crate) fn begin(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.now.try_lock_for(PATIENCE).ok_or_else(|| {
            let text = "another change of the space's pools is under way, and its disk may not answer; try again when it has ended";
            Error::Refused(text.into())
        })?;
        if self.over.load(SeqCst) {
            return Err(Error::Refused("the space is about to end; try again when it is down".into()));
        }
        Ok(turn)
    }

    /// Nobody begins one any more. Whether none is under way either: one that waits for a disk may still write the settings.
    pub(crate) fn end(&self) -> bool {
        self.over.store(true, SeqCst);
        self.now.try_lock_for(PATIENCE).is_some()
    }
}

impl OpenSpace {
    /// The settings as they are now, with the pools that the space was started without.
    pub(crate) fn settings_now(&self) -> Result<SpaceSettings> {
        let mut settings = self.state.existing()?;
        if settings.uuid != self.settings.uuid {
            return Err(Error::Refused(format!(
                "{} is of another space by now: put back the one of this space, whose uuid is {}",
                shown(&self.state.settings_path()).display(),
                self.settings.uuid
            )));
        }
        for pool in &mut settings.pools {
            pool.absent = self.space.pools().get(PoolId(pool.id)).is_ok_and(|running| !running.is_there());
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_begins_when_the_space_ends() {
        let changes = Changes::default();
        drop(changes.begin().unwrap());
        assert!(changes.end());
        assert!(changes.begin().err().unwrap().to_string().contains("about to end"));
    }
}
