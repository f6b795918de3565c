//! Work that waits for a disk, done by threads beside who needs it: each pool's by one of its own. Nobody waits longer than he likes for a
//! disk that hangs, and none is waited for by who has nothing to do with it.

use crate::node::Node;
use crate::pools::{Whence, pool_of};
use crate::{Space, threads};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_types::PoolId;

/// What takes longer is not waited for by who comes then, and has no more patience.
const HANGS: Duration = Duration::from_secs(5);

/// The pools that somebody works at, and since when.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    at_work: Mutex<FxHashMap<Whence, Instant>>,
    done: Condvar,
}

impl Aside {
    /// Does something to each of these files, and waits until it was done or patience ends. Gives back those to which nothing is done, since
    /// their pool is still being worked at for somebody else.
    pub(crate) fn run(
        self: &Arc<Self>,
        space: &Arc<Space>,
        nodes: Vec<Arc<Node>>,
        patience: Duration,
        what: impl Fn(&Space, &Arc<Node>) + Clone + Send + 'static,
    ) -> Vec<Arc<Node>> {
        let until = Instant::now() + patience;
        let mut pools = FxHashMap::<Whence, Vec<_>>::default();
        for node in nodes {
            pools.entry(pool_of(&node.inode)).or_default().push(node);
        }
        let (mut begun, mut left) = (Vec::new(), Vec::new());
        for (whence, nodes) in pools {
            let (theirs, what) = (nodes.clone(), what.clone());
            let work = move |space: &Space| theirs.iter().for_each(|node| what(space, node));
            if self.start(space, whence, (until, patience.max(HANGS)), work) {
                begun.push(whence);
            } else {
                left.extend(nodes);
            }
        }
        for whence in begun {
            self.wait_for(whence, until);
        }
        left
    }

    /// The same for each of these pools. Gives back whether it was begun with all of them.
    pub(crate) fn run_at(
        self: &Arc<Self>,
        space: &Arc<Space>,
        pools: &[PoolId],
        patience: Duration,
        what: impl Fn(&Space, PoolId) + Clone + Send + 'static,
    ) -> bool {
        let until = Instant::now() + patience;
        let begin = |&pool: &PoolId| {
            let what = what.clone();
            self.start(space, Some(pool), (until, patience.max(HANGS)), move |space| what(space, pool))
        };
        let begun: Vec<_> = pools.iter().map(begin).collect();
        for pool in pools {
            self.wait_for(Some(*pool), until);
        }
        begun.into_iter().all(|begun| begun)
    }

    /// Begins to work at a pool, as soon as nobody does. Gives back whether it has.
    fn start(
        self: &Arc<Self>,
        space: &Arc<Space>,
        whence: Whence,
        (until, hangs): (Instant, Duration),
        work: impl FnOnce(&Space) + Send + 'static,
    ) -> bool {
        if !self.begin(whence, until, hangs) {
            return false;
        }
        let (turn, space) = (Turn { aside: self.clone(), whence }, space.clone());
        let started = threads::start("aside", move || {
            let _turn = turn;
            work(&space);
        });
        if let Err(error) = &started {
            tracing::warn!("a disk is not waited for, since no thread could be started for it: {error}");
        }
        started.is_ok()
    }

    /// Waits until nobody works at any pool.
    pub(crate) fn wait(&self) {
        let mut at_work = self.at_work.lock();
        while !at_work.is_empty() {
            self.done.wait(&mut at_work);
        }
    }

    /// Waits until nobody works at any pool, but for those that hang, or the time has come.
    pub(crate) fn wait_until(&self, until: Instant) {
        let mut at_work = self.at_work.lock();
        while at_work.values().any(|since| since.elapsed() < HANGS)
            && !self.done.wait_until(&mut at_work, until).timed_out()
        {}
    }

    /// Whether somebody works at a pool.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.at_work.lock().is_empty()
    }

    fn begin(&self, whence: Whence, until: Instant, hangs: Duration) -> bool {
        let mut at_work = self.at_work.lock();
        while let Some(since) = at_work.get(&whence) {
            if since.elapsed() >= hangs || self.done.wait_until(&mut at_work, until).timed_out() {
                return false;
            }
        }
        at_work.insert(whence, Instant::now());
        true
    }

    fn wait_for(&self, whence: Whence, until: Instant) {
        let mut at_work = self.at_work.lock();
        while at_work.contains_key(&whence) && !self.done.wait_until(&mut at_work, until).timed_out() {}
    }
}

/// That a pool is worked at, until it is dropped.
struct Turn {
    aside: Arc<Aside>,
    whence: Whence,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.aside.at_work.lock().remove(&self.whence);
        self.aside.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending;
    use std::sync::mpsc;

    #[test]
    fn who_needs_what_a_hanging_disk_has_waits_for_it_as_long_as_he_likes() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let aside = Arc::new(Aside::default());
        let (ends, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let hang = move |_: &Space, _: &Arc<Node>| {
            hangs.lock().recv().unwrap_err();
        };
        let moment = Duration::from_millis(50);
        let began = Instant::now();
        assert!(aside.run(&space, vec![node.clone()], moment, hang.clone()).is_empty());
        assert_eq!(
            aside.run(&space, vec![node.clone()], moment, hang.clone()).len(),
            1,
            "somebody waits for it already"
        );
        aside.wait_until(Instant::now() + moment);
        assert!(aside.is_at_work());
        assert!(began.elapsed() >= 3 * moment && began.elapsed() < Duration::from_secs(20));
        drop(ends);
        aside.wait();
        assert!(!aside.is_at_work());
        let (tells, told) = mpsc::channel();
        let tell = move |_: &Space, _: &Arc<Node>| tells.send(()).unwrap();
        assert!(aside.run(&space, vec![node], Duration::from_secs(20), tell).is_empty());
        told.try_recv().expect("it was waited for");
    }
}
