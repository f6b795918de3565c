//! Before much of a limit is taken at once.
//!
//! What is written unseen is looked at now and then (`brake.rs`): seldom where much is left, since nobody writes that fast. But an allocation, a
//! copy that shares blocks, a move or a change of owner takes any amount in a moment. So who is about to do that has all that is watched looked
//! at first, as if it was done; what is near the limit then asks before each write.

use super::refresh::Refresher;
use crate::{Outcome, Space, hurry};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_catalog::Inode;

/// Less than this, alone or several together between two looks, is covered by what those leave.
const AT_ONCE: u64 = 32 << 20;
/// More than any disk has: what is asked for is added up.
const MOST: u64 = 1 << 50;
/// How long the look is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a call under way is, which may be his own who asks.
const IN_LINE: Duration = Duration::from_millis(50);

/// What is taken at once.
#[derive(Debug, Default)]
pub(crate) struct AtOnce {
    /// By those who are about to.
    now: AtomicU64,
    /// Since the last round of looks began.
    since: AtomicU64,
}

/// What somebody is about to take. Until this is dropped files are looked at as if it was taken.
#[derive(Debug)]
pub(crate) struct Taking<'a>(&'a AtOnce, u64);

impl AtOnce {
    /// How much somebody is about to take.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// All that was taken until now is seen.
    pub(crate) fn looks_begin(&self) {
        self.since.store(0, Relaxed);
    }

    /// Whether so much more, with what was taken since the last looks, has to wait for the next ones.
    fn is_much(&self, bytes: u64) -> bool {
        self.since.fetch_add(bytes, Relaxed).saturating_add(bytes) >= AT_ONCE
    }

    fn take(&self, bytes: u64) -> Taking<'_> {
        self.now.fetch_add(bytes, Relaxed);
        Taking(self, bytes)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(self.1, Relaxed);
    }
}

impl Space {
    /// So many bytes are about to be taken of some limit: those who write unseen, and will be near it then, ask from now on.
    ///
    /// # Errors
    /// [`crate::Errno::LATER`] where the calling thread may not wait for that.
    pub(crate) fn before_taking(&self, bytes: u64) -> Outcome<Option<Taking<'_>>> {
        let bytes = bytes.min(MOST);
        if !self.brake.watches() || !self.brake.at_once.is_much(bytes) {
            return Ok(None);
        }
        hurry::may_wait()?;
        let taking = self.brake.at_once.take(bytes);
        let until = Instant::now() + PATIENCE;
        Refresher::wait_in_line(self.brake.look_now(until), until, IN_LINE);
        Ok(Some(taking))
    }

    /// The same for a file that gets blocks: no more than it can have, however much is asked for. What is only held comes back to who needs it, and
    /// where its pool is full it goes to another.
    ///
    /// # Errors
    /// As [`Space::before_taking`].
    pub(crate) fn before_taking_for(&self, file: &Inode, bytes: u64) -> Outcome<Option<Taking<'_>>> {
        if !self.brake.watches() {
            return Ok(None);
        }
        let (uid, directory) = self.bounded_by(file)?;
        let most = match self.catalog.unused(uid, &directory) {
            Some(most) => most,
            None if self.pools.members().any(|member| member.reserve.0 > 0) => MOST,
            // What nothing bounds takes of no limit.
            None => return Ok(None),
        };
        self.before_taking(bytes.min(most))
    }

    /// The same, of what moves: a file, or all that lies below a directory.
    ///
    /// # Errors
    /// As [`Space::before_taking`].
    pub(crate) fn before_taking_all(&self, of: &Inode) -> Outcome<Option<Taking<'_>>> {
        self.before_taking(Self::charged_to(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_between_two_looks_is_added_up() {
        let at_once = AtOnce::default();
        assert!(!at_once.is_much(AT_ONCE / 2) && !at_once.is_much(AT_ONCE / 4) && at_once.is_much(AT_ONCE / 4));
        at_once.looks_begin();
        assert!(!at_once.is_much(AT_ONCE / 2) && at_once.is_much(MOST));
    }

    /// An allocation may ask for 8 EiB, and the sum of several was less than each: the thread that looks added to that.
    #[test]
    fn what_nobody_can_have_is_added_up_too() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = crate::headroom::lend::tests::lending(dir.path());
        let at_once = &space.brake.at_once;
        let all: Vec<_> = (0..1000).map(|_| at_once.take(MOST)).collect();
        assert_eq!(at_once.now(), 1000 * MOST);
        space.look_after(Some(&node));
        // Whether or not somebody is watched by now.
        for _ in 0..3 {
            drop(space.before_taking(u64::MAX / 2).unwrap());
        }
        drop(all);
        assert_eq!(at_once.now(), 0);
        space.brake.stop();
    }
}
