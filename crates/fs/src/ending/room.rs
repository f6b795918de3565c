//! Room that is on its way: a removed file has its blocks and its inode until its removal is durable (`reaper.rs`), and who removes it to make room
//! expects that room at once.

use crate::node::Node;
use crate::open_file::OpenFile;
use crate::ops::Stream;
use crate::{Errno, Outcome, Space, hurry};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_catalog::Inode;
use ullage_types::PoolId;

/// How long is waited at most, and for how long when nothing comes free or is known to.
const PATIENCE: Duration = Duration::from_secs(2);
const IN_VAIN: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(5);
/// Beside the blocks that are asked for, the file system needs some of its own.
const SLACK: u64 = 1 << 20;

impl Space {
    /// Does what takes so many bytes of a file's pool, the `whole` or as much as there is room for. Where the pool has not so many, once more when those of removed files are free, and
    /// once more when the file lies in another one.
    pub(crate) fn with_room<T>(
        &self,
        node: &Arc<Node>,
        bytes: u64,
        whole: bool,
        work: impl Fn(&Stream) -> Outcome<T>,
    ) -> Outcome<T> {
        let in_its_pool = || -> Outcome<_> {
            let stream = Self::stream_of(node)?;
            let outcome = match work(&stream) {
                Err(Errno::ENOSPC) if self.gains_room(stream.pool, bytes)? => work(&stream),
                outcome => outcome,
            };
            Ok((stream.pool, outcome))
        };
        match in_its_pool()? {
            (pool, Err(Errno::ENOSPC)) if self.goes_elsewhere(node, pool, bytes, whole)? => in_its_pool()?.1,
            (_, outcome) => outcome,
        }
    }

    /// Gets a new backing file; where no pool can make one, as soon as those of removed files leave an inode, or those that were ready.
    pub(crate) fn with_inode<T>(&self, make: impl Fn() -> Outcome<T>) -> Outcome<T> {
        let (began, mut hoped) = (Instant::now(), Instant::now());
        let mut shown = false;
        loop {
            let outcome = make();
            if !matches!(outcome, Err(Errno::ENOSPC)) {
                return outcome;
            }
            if !std::mem::replace(&mut shown, true) && self.show_all()? {
                continue;
            }
            let (expects, frees) = (self.reaper.is_expecting(), self.pools.are_freeing());
            if !expects && !frees {
                return outcome;
            }
            hurry::may_wait()?;
            if expects && (self.reaper.hurry() || frees) {
                hoped = Instant::now();
            }
            if began.elapsed() > PATIENCE || hoped.elapsed() > IN_VAIN {
                return outcome;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Has all pools show what was given back to them that are down to their reserve. Gives back whether any was.
    fn show_all(&self) -> Outcome<bool> {
        let pools: Vec<_> = self.pools.members().map(|member| member.id).collect();
        self.show_pools(&pools, 1)
    }

    /// A file lost its last name.
    pub(crate) fn expect_room(&self, file: &Inode) {
        // The end of its last handle may be on its way still, and what was written through it is not recorded, or not yet.
        // Who works on it may stand still with its disk, and so may who looks: that is not waited for, the name is gone already.
        let look = |open: &OpenFile| if self.is_shown_at_once(open) { open.unrecorded() } else { None };
        let measured = self.nodes.find(file.id).and_then(|node| look(&*node.open.try_lock()?));
        let (pool, recorded) = {
            let state = file.lock();
            (state.record.backing.as_ref().map(|place| place.pool), state.record.blocks)
        };
        if let Some(pool) = pool {
            self.reaper.expects(file.id, pool, measured.unwrap_or(recorded) * 512);
        }
    }

    /// Whether a pool that is short of so many bytes gets more within a while.
    fn gains_room(&self, pool: PoolId, bytes: u64) -> Outcome<bool> {
        let reserve = self.pools.reserve(pool);
        // Who is refused at a reserve has the pool show what was given back to it.
        let late = || if reserve > 0 { self.pools.unfreed(pool) } else { 0 };
        let free = || self.pools.ask_usage(pool).map(|usage| usage.free.0.saturating_sub(reserve));
        let (before, enough) = (free()?, bytes.saturating_add(SLACK));
        let given_back = late() > 0;
        if before >= enough || !given_back && !self.reaper.is_expecting() {
            return Ok(false);
        }
        hurry::may_wait()?;
        Ok(given_back || self.wait_for_room(before, enough, || Some(free().ok()?.saturating_add(late()))) > before)
    }

    /// Before a file is given out to be written in the kernel, where nobody would be asked: waits for what was just removed, where that
    /// is much of what is free.
    pub(crate) fn await_removed(&self) -> Outcome<()> {
        for (pool, bytes) in self.reaper.overdue(&self.pools) {
            hurry::may_wait()?;
            // He may not want anything of that pool: it is not waited for where it does not answer.
            let Some(before) = self.pools.free(pool) else { continue };
            // Somebody else may write meanwhile.
            self.wait_for_room(before, before + bytes / 4 * 3, || self.pools.free(pool));
        }
        Ok(())
    }

    /// Waits until a pool that had so much free has enough, or nothing comes free any more. Gives back the most that was free.
    fn wait_for_room(&self, before: u64, enough: u64, free: impl Fn() -> Option<u64>) -> u64 {
        let (began, mut gained, mut most) = (Instant::now(), Instant::now(), before);
        let may_gain = |gained: Instant| self.reaper.hurry() || gained.elapsed() < IN_VAIN;
        while most < enough && began.elapsed() < PATIENCE && may_gain(gained) {
            std::thread::sleep(PAUSE);
            let free = free().unwrap_or(0);
            if free > most {
                (most, gained) = (free, Instant::now());
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use crate::pools::away::tests::space_on;
    use ullage_types::{FileId, PoolId};

    /// Regression: what was removed was not waited for at a reserve, which counted as room.
    #[test]
    fn what_was_removed_is_waited_for_at_a_reserve() {
        const GIB: u64 = 1 << 30;
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = space_on(dir.path(), &[7, 8], 2 * GIB, 2 * GIB);
        let one = PoolId(0);
        assert_eq!(space.gains_room(one, 4096), Ok(false), "nothing was removed");
        space.reaper.expects(FileId(77), one, 4 << 20);
        assert_eq!(space.reaper.overdue(&space.pools), [(one, 4 << 20)], "it is all there will be");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| space.gains_room(one, 4096));
            space.pools.gave_back(one, 4 << 20);
            assert_eq!(waits.join().unwrap(), Ok(true));
        });
    }
}
