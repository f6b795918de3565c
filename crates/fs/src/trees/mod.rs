//! Keeps the plain trees of `mirror` pools in step with the catalog, in the background.
//!
//! An operation says only *which* name or file changed. The thread here looks at what the catalog says of it by then and makes
//! the tree like that, so that changes may come twice, late, or in another order, and a crash costs nothing but a look at the
//! whole tree: whatever is done last is right.
//!
//! A directory that moved is to be taken from where it stood in the tree, not built again where it belongs. So where it
//! stood is remembered before anybody can see in the catalog that it moved: [`Trees::hold`].

mod follow;
mod kept;

use crate::pools::Pools;
use crate::{Outcome, hurry};
use follow::Follower;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_catalog::{Catalog, Inode};
use ullage_pool::Tree;
use ullage_types::{FileId, PoolId, ROOT};

/// With more than this waiting it is quicker to look at everything.
const WAITING_MAX: usize = 1 << 18;
/// What could not be done is tried again after so long: first, and at most, doubled each time.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// What may differ between catalog and trees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// What a name in a directory is.
    Name(FileId, Box<[u8]>),
    /// Owner, permissions or times of a file.
    Attributes(FileId),
    /// What every name in a directory is: it is new in the tree. One change, since there may be millions.
    Names(FileId),
    /// Everything in a directory and below it.
    All(FileId),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Change>,
    known: FxHashSet<Change>,
    /// Something is being worked on that is no longer in `waiting`.
    busy: bool,
    stop: bool,
    /// There were too many to be remembered: everything is to be looked at once more.
    again: bool,
    /// What could not be done, as where a disk was full, and is to be tried again.
    late: FxHashSet<Change>,
    /// When that is, and how long it is put off the next time.
    retry: Option<(Instant, Duration)>,
}

impl Queue {
    fn push(&mut self, change: Change) {
        if self.known.insert(change.clone()) {
            self.waiting.push_back(change);
        }
    }

    /// Tries a change again in a while; whether it is the first that is to be.
    fn put_off(&mut self, change: Change) -> bool {
        let pause = self.retry.map_or(RETRY.0, |(_, pause)| pause);
        let first = pause == RETRY.0;
        if self.late.is_empty() {
            self.retry = Some((Instant::now() + pause, pause));
        }
        if self.late.len() < WAITING_MAX {
            self.late.insert(change);
        } else {
            self.late = FxHashSet::from_iter([Change::All(ROOT)]);
        }
        first
    }

    /// Has what was put off tried now, where it is time for that or there will be none.
    fn take_up(&mut self, now: bool) {
        let Some((due, pause)) = self.retry else { return };
        if self.waiting.is_empty() && (now || due <= Instant::now()) {
            // Once all of it is done the next begins anew.
            self.retry = (!self.late.is_empty()).then(|| (due, (pause * 2).min(RETRY.1)));
            for change in std::mem::take(&mut self.late) {
                self.push(change);
            }
        }
    }

    fn pop(&mut self) -> Option<Change> {
        if self.waiting.is_empty() && std::mem::take(&mut self.again) {
            self.waiting.push_back(Change::All(ROOT));
        }
        let next = self.waiting.pop_front()?;
        self.known.remove(&next);
        Some(next)
    }
}

/// Where in a tree a directory stands that moved.
type Stood = (FileId, Box<[u8]>);
/// Directories that moved, and where each still stands.
type Moving = FxHashMap<FileId, Stood>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// One for each tree. Held by the thread while it reads a directory's place in the catalog and takes what is said of it here: if it moves
    /// again, it moves from that place. Not held while it is put there: a pool's file system may not answer, and renames need this.
    /// Taken before all locks of the catalog.
    moving: Mutex<Vec<Moving>>,
    bell: Condvar,
    /// Something could not be done: the next start looks at everything.
    failed: AtomicBool,
}

/// The thread reads no place meanwhile.
pub(crate) struct Held<'a>(MutexGuard<'a, Vec<Moving>>);

impl Held<'_> {
    /// A file has moved from here. Only directories are remembered: of other files any name is as good as another.
    pub(crate) fn moves(&mut self, file: &Inode, from: FileId, name: &[u8]) {
        if file.is_directory() {
            for moving in self.0.iter_mut() {
                // Where it stands in the tree is where it was when it moved first since it was put there.
                moving.entry(file.id).or_insert_with(|| (from, name.into()));
            }
        }
    }
}

/// The trees of a space, and the thread that keeps them.
#[derive(Default)]
pub(crate) struct Trees {
    shared: Option<Arc<Shared>>,
    /// Until it begins.
    follower: Mutex<Option<Follower>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Trees {
    /// The trees of these pools; `in_step` when they were left so.
    pub(crate) fn new(catalog: &Arc<Catalog>, pools: &Arc<Pools>, in_step: bool) -> Self {
        let trees: Vec<(PoolId, Arc<Tree>)> =
            pools.members().filter_map(|member| Some((member.id, member.tree.clone()?))).collect();
        if trees.is_empty() {
            return Self::default();
        }
        let moving = Mutex::new(vec![Moving::default(); trees.len()]);
        let shared = Arc::new(Shared { moving, ..Shared::default() });
        let here = trees.iter().fold(true, |here, (_, tree)| tree.claim() && here);
        if !(in_step && here) {
            shared.queue.lock().push(Change::All(ROOT));
        }
        let follower = Mutex::new(Some(Follower::new(catalog.clone(), trees, shared.clone())));
        Self { shared: Some(shared), follower, thread: Mutex::default() }
    }

    /// Starts to keep them. Not before whoever changes both trees and catalog is done.
    pub(crate) fn begin(&self) {
        let (Some(shared), Some(follower)) = (self.shared.clone(), self.follower.lock().take()) else { return };
        let thread = std::thread::Builder::new().name("trees".into()).spawn(move || run(&shared, follower));
        *self.thread.lock() = Some(thread.expect("a thread can be started"));
    }

    /// What `name` in a directory is has changed.
    pub(crate) fn name(&self, directory: FileId, name: &[u8]) {
        self.push(|| Change::Name(directory, name.into()));
    }

    /// To be held from before a directory moves until [`Held::moves`] was told from where and both names are among the changes:
    /// what was taken from one name and is not yet known to belong to another would be purged. None without trees.
    pub(crate) fn hold(&self) -> Outcome<Option<Held<'_>>> {
        self.shared.as_ref().map(|shared| hurry::locked(&shared.moving).map(Held)).transpose()
    }

    /// Owner, permissions or times of a file have changed.
    pub(crate) fn attributes(&self, file: FileId) {
        self.push(|| Change::Attributes(file));
    }

    fn push(&self, change: impl FnOnce() -> Change) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.queue.lock();
        let idle = queue.waiting.is_empty() && !queue.busy;
        if queue.waiting.len() < WAITING_MAX {
            queue.push(change());
        } else {
            queue.again = true;
        }
        if idle {
            shared.bell.notify_all();
        }
    }

    /// Whether there is any tree.
    pub(crate) fn any(&self) -> bool {
        self.shared.is_some()
    }

    /// Changes that the trees do not show yet.
    pub(crate) fn waiting(&self) -> usize {
        let Some(shared) = &self.shared else { return 0 };
        let queue = shared.queue.lock();
        queue.waiting.len() + queue.late.len() + usize::from(queue.busy)
    }

    /// Ends the thread when it has done what waits. Whether there are trees, and in step then.
    pub(crate) fn stop(&self) -> bool {
        let Some(shared) = &self.shared else { return false };
        shared.queue.lock().stop = true;
        shared.bell.notify_all();
        match self.thread.lock().take().map(JoinHandle::join) {
            Some(Ok(())) => !shared.failed.load(Relaxed),
            Some(Err(_)) => {
                tracing::error!("the thread that keeps the plain trees failed");
                false
            }
            None => false,
        }
    }
}

fn run(shared: &Shared, mut follower: Follower) {
    /// Directories' times and purges wait until nothing came for so long.
    const QUIET: Duration = Duration::from_millis(200);
    let (mut quiet_since, mut last_try) = (None, false);
    loop {
        let (next, stop) = {
            let mut queue = shared.queue.lock();
            queue.busy = false;
            if queue.stop && queue.waiting.is_empty() && !queue.again && !last_try {
                last_try = true;
                queue.take_up(true);
            }
            while queue.waiting.is_empty() && !queue.again && !queue.stop {
                if let (false, Some((due, _))) = (follower.has_rest(), queue.retry) {
                    shared.bell.wait_until(&mut queue, due);
                    queue.take_up(false);
                } else if !follower.has_rest() {
                    shared.bell.wait(&mut queue);
                } else if quiet_since.get_or_insert_with(Instant::now).elapsed() >= QUIET {
                    break;
                } else {
                    shared.bell.wait_for(&mut queue, QUIET);
                }
            }
            let next = queue.pop();
            queue.busy = next.is_some() || follower.has_rest();
            (next, queue.stop)
        };
        match next {
            Some(change) => {
                quiet_since = None;
                follower.follow(&change, &mut |more| shared.queue.lock().push(more));
            }
            None => {
                follower.finish(&mut |more| shared.queue.lock().push(more));
                let done = !follower.has_rest() && shared.queue.lock().waiting.is_empty();
                if stop && last_try && done {
                    break;
                }
            }
        }
        if follower.failures > 0 {
            shared.failed.store(true, Relaxed);
        }
    }
    if follower.sync().is_err() || !shared.queue.lock().late.is_empty() {
        shared.failed.store(true, Relaxed);
    }
    shared.queue.lock().busy = false;
}
