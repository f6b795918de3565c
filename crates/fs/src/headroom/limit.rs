//! Limits are set while files are open and written. For a moment nobody comes to open a file, nor to write to one: all is measured, and whoever
//! comes next meets the limit.
//!
//! Who sets one may do so since a disk misbehaves. So what may have to be waited for of a pool is done before that moment, and in it nobody is
//! waited for longer than everybody can wait: else no limit is set.

use crate::Space;
use crate::node::Node;
use crate::open_file::{Measure, OpenFile};
use crate::pools::pool_of;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use ullage_catalog::{Error, Limit, Subject};
use ullage_types::PoolId;

/// How long a pool may need to measure one file, while nobody waits but who sets the limit.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long everybody may wait at once, and how often that is tried.
const MOMENT: Duration = Duration::from_millis(300);
const TRIES: u32 = 10;

/// Open ones.
type Files = Vec<Arc<Node>>;

/// Why a limit was not set.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The file system below this pool does not answer.
    #[error(
        "the limit is as it was: the pool '{0}' does not answer, and its files cannot be measured; try again when it does"
    )]
    Stuck(String),
    /// Somebody makes a file, or writes to one, and stands still.
    #[error(
        "the limit is as it was: somebody makes a file or writes to one, and waits for a pool; try again when all pools answer"
    )]
    Busy,
    /// What is open cannot be measured.
    #[error("the limit is as it was: no thread can be started ({0}); try again in a moment")]
    Thread(std::io::Error),
    /// The catalog's reason.
    #[error(transparent)]
    Catalog(#[from] Error),
}

impl Space {
    /// Sets or (with [`Limit::NONE`]) takes away a limit, durably. Everything open is measured first. Gives back how many
    /// open files are written in the kernel and go on being so: the brake stops those only who write by system calls.
    ///
    /// # Errors
    /// Nothing was changed then, unless it is the catalog's disk that failed.
    pub fn set_limit(&self, subject: Subject, limit: Limit) -> Result<u64, LimitError> {
        self.change_limit(subject, |_| limit)
    }

    /// The same for what a limit is to be instead of what it is by then: others may change it meanwhile.
    ///
    /// # Errors
    /// As [`Space::set_limit`].
    pub fn change_limit(&self, subject: Subject, change: impl Fn(Limit) -> Limit) -> Result<u64, LimitError> {
        let changed = || change(self.catalog.limit(subject).unwrap_or(Limit::NONE));
        if !changed().is_none() {
            self.can_look().map_err(LimitError::Thread)?;
        }
        let mut again = 1..TRIES;
        let (open, unseen) = loop {
            self.measure_ahead()?;
            let next = again.next();
            match self.set_limit_at_once(subject, &changed, next.is_none()) {
                Err(LimitError::Stuck(_) | LimitError::Busy) if next.is_some() => std::thread::sleep(MOMENT),
                outcome => break outcome?,
            }
        };
        for node in &open {
            let is_free = || self.is_bounded(&node.inode).is_ok_and(|bounded| !bounded);
            if is_free() {
                let mut open = node.open.lock();
                // Another limit may have been set meanwhile.
                if is_free() {
                    self.lift_fence(&mut open);
                }
            }
        }
        self.brake_all(&unseen);
        for node in &unseen {
            if let Err(error) = self.hold_for_holes_anew(node) {
                node.not_measured(error);
            }
        }
        self.catalog.sync()?;
        // What is lent room is bound to the block as ever, but where a call that began before does not end.
        let exact = |open: &OpenFile| open.lends() && (open.grant.lent() == 0 || open.braked.is_none());
        Ok(unseen.iter().filter(|node| !exact(&node.open.lock())).count() as u64)
    }

    /// Measures all that is open, in a thread of its own: who waits for a disk cannot be called back.
    fn measure_ahead(&self) -> Result<(), LimitError> {
        let Some(space) = self.own().upgrade() else { return Ok(()) };
        let (begins, begun) = mpsc::channel();
        let measure = move || {
            for node in space.nodes.all() {
                let Some(pool) = pool_of(&node.inode) else { continue };
                if begins.send(pool).is_err() {
                    break;
                }
                space.write_out_bare(&node);
                space.measure_for_limit(&node, &mut node.open.lock());
            }
            // Who waits for this is to be the last who has it.
            drop(space);
            drop(begins);
        };
        std::thread::Builder::new().name("measurer".into()).spawn(measure).map_err(LimitError::Thread)?;
        let mut last = None;
        loop {
            match begun.recv_timeout(PATIENCE) {
                Ok(pool) => last = Some(pool),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(self.stuck(last)),
            }
        }
    }

    /// Sets it once nobody opens a file or writes to one, and nothing is to be written out for it unless this is the `last` try. Gives back what
    /// is open, and what of that is under the limit and may be written without being seen here.
    fn set_limit_at_once(
        &self,
        subject: Subject,
        limit: &dyn Fn() -> Limit,
        last: bool,
    ) -> Result<(Files, Files), LimitError> {
        let _modes = self.headroom.modes.try_write_for(MOMENT).ok_or(LimitError::Busy)?;
        let _alone = self.headroom.flow.try_write_for(MOMENT).ok_or(LimitError::Busy)?;
        let open = self.nodes.all();
        for node in &open {
            self.measure_anew(node, last)?;
        }
        // Nobody else changes it now.
        self.catalog.set_limit(subject, limit())?;
        let bound = |node: &&Arc<Node>| match subject {
            Subject::User(uid) => node.inode.lock().record.uid == uid,
            Subject::Directory(file) => self.catalog.get(file).is_ok_and(|directory| self.lies_below(node, &directory)),
        };
        let until = Instant::now() + MOMENT;
        let is_unseen = |node: &&Arc<Node>| {
            // Who works on it now may have opened it before.
            let Some(mut open) = node.open.try_lock_until(until) else { return true };
            // What was closed meanwhile was not measured, and is no longer left for later.
            if open.unmeasured && node.inode.lock().record.nlink > 0 {
                self.measure_for_limit(node, &mut open);
            }
            self.may_be_written_unseen(&mut open)
        };
        let unseen = open.iter().filter(bound).filter(is_unseen).cloned().collect();
        Ok((open, unseen))
    }

    /// Measures a file that changed since it was measured ahead.
    fn measure_anew(&self, node: &Arc<Node>, last: bool) -> Result<(), LimitError> {
        let lock = || node.open.try_lock_for(MOMENT).ok_or_else(|| self.stuck(pool_of(&node.inode)));
        {
            let mut open = lock()?;
            let Some(backing) = &open.backing else { return Ok(()) };
            let recorded = node.inode.lock().record.blocks;
            let (baseline, discards, measured) = (backing.baseline, backing.discards, Measure::of(&backing.file));
            let rests = |now: Measure| now == baseline && now.blocks == recorded;
            if discards || !open.grant.is_loose() && measured.is_ok_and(|now| rests(self.charged(&mut open, now))) {
                return Ok(());
            }
        }
        // While everybody waits, no disk is waited for that need not be.
        if !last && self.bare(node).is_some_and(|bare| !bare.pays) {
            return Err(LimitError::Busy);
        }
        self.write_out_bare(node);
        let mut open = lock()?;
        self.measure_for_limit(node, &mut open);
        Ok(())
    }

    fn measure_for_limit(&self, node: &Node, open: &mut OpenFile) {
        if let Err(error) = self.measure_closely(node, open, false).1 {
            node.not_measured(error);
        }
    }

    fn stuck(&self, pool: Option<PoolId>) -> LimitError {
        let member = pool.and_then(|pool| self.pools.member(pool));
        member.map_or(LimitError::Busy, |member| LimitError::Stuck(member.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending;

    /// Everybody who came to open a file waited for who stood still with one.
    #[test]
    fn nobody_waits_while_what_is_open_is_measured_for_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let root = Subject::Directory(space.catalog.root().id);
        let limit = Limit { bytes: Some(1 << 40), inodes: None };
        std::thread::scope(|scope| {
            let held = node.open.lock();
            let setting = scope.spawn(|| space.set_limit(root, limit));
            std::thread::sleep(Duration::from_millis(200));
            let free = space.headroom.modes.try_read().is_some() && space.headroom.flow.try_read().is_some();
            let waits = !setting.is_finished();
            drop(held);
            setting.join().unwrap().unwrap();
            assert!(waits && free, "{waits}, {free}");
        });
        // Who makes a file, or writes to one, is waited for a moment at a time.
        for lock in [&space.headroom.modes, &space.headroom.flow] {
            let _held = lock.read();
            let refused = space.set_limit(root, Limit::NONE);
            assert!(matches!(refused, Err(LimitError::Busy)), "{refused:?}");
            assert_eq!(space.catalog.limit(root).unwrap(), limit);
        }
        space.set_limit(root, Limit::NONE).unwrap();
    }
}
