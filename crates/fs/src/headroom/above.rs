//! What there is above the reserve of a pool: what files hold of it, and what was written and does not show there yet.
//!
//! btrfs has blocks in use from when it writes them out, long after a file was measured to have them. Until the pool was
//! written out, what was written counts as if it were held still.

use crate::{Errno, Outcome, Space};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use ullage_types::PoolId;

/// What of the room above the reserves of pools is taken.
#[derive(Debug, Default)]
pub(crate) struct Above {
    pools: Mutex<FxHashMap<PoolId, Taken>>,
    /// Held while a pool is written out: who comes meanwhile waits for that.
    writing: Mutex<()>,
}

/// Of one pool.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Held for writes.
    held: u64,
    /// Written, and maybe not in use yet.
    unshown: u64,
}

impl Taken {
    fn all(self) -> u64 {
        self.held.saturating_add(self.unshown)
    }
}

impl Space {
    /// Holds so much of a pool that has a reserve.
    pub(crate) fn hold_in_pool(&self, pool: PoolId, bytes: u64) -> Outcome<()> {
        let reserve = self.pools.reserve(pool);
        if reserve == 0 {
            return Ok(());
        }
        let mut pools = self.headroom.above.pools.lock();
        // Asked under the lock: what was let go of before is in use by now.
        let free = self.pools.get(pool)?.usage()?.free.0;
        let taken = pools.entry(pool).or_default();
        if free < reserve.saturating_add(taken.all()).saturating_add(bytes) {
            return Err(Errno::ENOSPC);
        }
        taken.held += bytes;
        Ok(())
    }

    /// Lets go of so much, of which so many bytes may have been written.
    pub(crate) fn let_go_in_pool(&self, pool: PoolId, bytes: u64, written: u64) {
        let unshown = if self.pools.shows_late(pool) { written } else { 0 };
        if bytes == 0 && unshown == 0 || self.pools.reserve(pool) == 0 {
            return;
        }
        if let Some(taken) = self.headroom.above.pools.lock().get_mut(&pool) {
            taken.held = taken.held.saturating_sub(bytes);
            taken.unshown = taken.unshown.saturating_add(unshown);
        }
    }

    /// What is left above a pool's reserve; none where it has none.
    pub(crate) fn room_in_pool(&self, pool: PoolId) -> Outcome<Option<u64>> {
        let reserve = self.pools.reserve(pool);
        if reserve == 0 {
            return Ok(None);
        }
        let taken = self.headroom.above.pools.lock().get(&pool).copied().unwrap_or_default();
        Ok(Some(self.pools.get(pool)?.usage()?.free.0.saturating_sub(reserve.saturating_add(taken.all()))))
    }

    /// Has pools show all that was written to them, where less than `wanted` is left otherwise. Waits for disks.
    pub(crate) fn show_written(&self, wanted: u64) {
        let unshown = |pool| self.headroom.above.pools.lock().get(&pool).map_or(0, |taken: &Taken| taken.unshown);
        for member in self.pools.members() {
            if unshown(member.id) == 0 {
                continue;
            }
            let _turn = self.headroom.above.writing.lock();
            let written = unshown(member.id);
            let is_short = self.room_in_pool(member.id).is_ok_and(|room| room.is_some_and(|room| room < wanted));
            if written == 0 || !is_short {
                continue;
            }
            if let Err(error) = member.pool.sync() {
                tracing::warn!(%error, "pool '{}' could not be written out: what is free there is not known", member.name);
                continue;
            }
            if let Some(taken) = self.headroom.above.pools.lock().get_mut(&member.id) {
                // More may have come meanwhile.
                taken.unshown -= written;
            }
        }
    }
}
