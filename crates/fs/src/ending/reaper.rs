//! The free-after-sync queue: a backing file goes back to its pool once the transaction that dropped its file is
//! durable (DESIGN, "Backing files outlive their names", condition a).

use crate::pools::Pools;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_catalog::{Backing, Catalog};
use ullage_kv::Seq;
use ullage_pool::{Binding, Locator};
use ullage_types::{FileId, PoolId};

/// Between two looks at what is durable by now.
const LOOK: Duration = Duration::from_millis(20);
/// For a file of so many bytes it is looked at once.
const LARGE: u64 = 1 << 20;
/// What waits is made durable at once when it is more than this part of what is free in its pool; else within a second, with all other
/// changes.
const SHARE: u64 = 4;
/// Or when it is so many bytes: as natively, the memory of a large file is free for the next one.
const MUCH: u64 = 64 << 20;
/// How long the end of a removed file may be on its way from the kernel.
const LATELY: Duration = Duration::from_secs(1);
/// How long a pool that always takes files back may need for a large one.
const TAKING: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Seq, FileId, Backing, u64)>,
    /// Large files that the kernel is to forget.
    expected: FxHashMap<FileId, (PoolId, u64, Instant)>,
    /// Bytes of large files that their pool has been given, and when.
    given: FxHashMap<PoolId, (u64, Instant)>,
    /// Bytes that are to come free.
    bytes: FxHashMap<PoolId, u64>,
    /// Somebody waits for that.
    missed: bool,
    stop: bool,
}

/// What the thread shares with those who give it work.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    bell: Condvar,
}

/// The queue and the thread that empties it.
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    since: Instant,
    /// When something was removed last, in milliseconds after `since`, and one more.
    removed: AtomicU64,
    /// Whether a large file waits, or is expected.
    large: AtomicBool,
}

impl Reaper {
    pub(crate) fn start(catalog: Arc<Catalog>, pools: Arc<Pools>) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || run(&theirs, &catalog, &pools))
            .expect("a thread can be started");
        Self {
            shared,
            thread: Mutex::new(Some(thread)),
            since: Instant::now(),
            removed: AtomicU64::new(0),
            large: AtomicBool::new(false),
        }
    }

    /// Queues a backing file of so many bytes whose file went in the commit `seq`.
    pub(crate) fn push(&self, file: FileId, seq: Seq, backing: Backing, bytes: u64) {
        let mut queue = self.shared.queue.lock();
        queue.expected.remove(&file);
        *queue.bytes.entry(backing.pool).or_default() += bytes;
        queue.waiting.push_back((seq, file, backing, bytes));
        if queue.waiting.len() == 1 || bytes >= LARGE {
            self.shared.bell.notify_one();
        }
    }

    /// A file of so many bytes lost its last name. Its backing file comes here when the kernel has forgotten it.
    pub(crate) fn expects(&self, file: FileId, pool: PoolId, bytes: u64) {
        if bytes >= LARGE {
            self.shared.queue.lock().expected.insert(file, (pool, bytes, Instant::now()));
            self.large.store(true, Relaxed);
        }
        self.removed.store(self.since.elapsed().as_millis() as u64 + 1, Relaxed);
    }

    /// Pools of which much is to come free, measured by what is, and how much.
    pub(crate) fn overdue(&self, pools: &Pools) -> Vec<(PoolId, u64)> {
        if !self.large.load(Relaxed) {
            return Vec::new();
        }
        let mut queue = self.shared.queue.lock();
        queue.expected.retain(|_, (.., since)| since.elapsed() < LATELY);
        let mut bytes = queue.bytes.clone();
        queue
            .given
            .retain(|pool, (_, since)| since.elapsed() < TAKING && pools.get(*pool).is_ok_and(|it| it.is_freeing()));
        for (pool, (given, _)) in &queue.given {
            *bytes.entry(*pool).or_default() += given;
        }
        for (pool, expected, _) in queue.expected.values() {
            *bytes.entry(*pool).or_default() += expected;
        }
        bytes.retain(|_, bytes| *bytes > 0);
        self.large.store(!bytes.is_empty(), Relaxed);
        drop(queue);
        bytes.retain(|pool, bytes| is_much(pools, *pool, *bytes));
        bytes.into_iter().collect()
    }

    /// Has what waits given back as soon as that can be. Gives back whether anything does.
    pub(crate) fn hurry(&self) -> bool {
        let mut queue = self.shared.queue.lock();
        queue.missed = true;
        self.shared.bell.notify_one();
        !queue.waiting.is_empty()
    }

    /// Whether files that were removed still have their blocks, or may have.
    pub(crate) fn is_expecting(&self) -> bool {
        let removed = self.removed.load(Relaxed);
        let lately = removed > 0 && self.since.elapsed() < Duration::from_millis(removed) + LATELY;
        lately || !self.shared.queue.lock().waiting.is_empty()
    }

    /// Ends the thread; what is durable by now is given back first.
    pub(crate) fn stop(&self) {
        self.shared.queue.lock().stop = true;
        self.shared.bell.notify_one();
        // A pool that it gives something back to may have had the last hold of the space for a moment.
        let others = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.lock().take().filter(others) {
            let _ = thread.join();
        }
    }
}

/// The thread has hold of the catalog and the pools: with nobody to end it, their store would stay open, and locked, for good.
impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Queue {
    fn next(&self, durable: Seq) -> Option<(FileId, Backing, u64)> {
        let next = self.waiting.front().filter(|(seq, ..)| *seq <= durable);
        next.map(|(_, file, backing, bytes)| (*file, backing.clone(), *bytes))
    }

    /// The first one was given to its pool.
    fn gave(&mut self) {
        let Some((_, _, backing, bytes)) = self.waiting.pop_front() else { return };
        // A pool that nothing is to come free in is not asked for anything.
        if let Entry::Occupied(mut all) = self.bytes.entry(backing.pool) {
            *all.get_mut() -= bytes;
            if *all.get() == 0 {
                all.remove();
            }
        }
        if bytes >= LARGE {
            let (given, since) = self.given.entry(backing.pool).or_insert((0, Instant::now()));
            let before = if since.elapsed() < TAKING { *given } else { 0 };
            (*given, *since) = (before + bytes, Instant::now());
        }
    }
}

/// Whether so many bytes are more than a part of what is free in a pool above its reserve. Not where that is not known.
fn is_much(pools: &Pools, pool: PoolId, bytes: u64) -> bool {
    pools.free(pool).is_some_and(|free| bytes > free.saturating_sub(pools.reserve(pool)) / SHARE)
}

/// Whether so much is to come free that somebody may miss it soon.
fn is_urgent(pools: &Pools, bytes: &FxHashMap<PoolId, u64>) -> bool {
    bytes.values().any(|bytes| *bytes >= MUCH) || bytes.iter().any(|(pool, bytes)| is_much(pools, *pool, *bytes))
}

fn run(shared: &Shared, catalog: &Catalog, pools: &Pools) {
    loop {
        let mut queue = shared.queue.lock();
        while queue.waiting.is_empty() && !queue.stop {
            shared.bell.wait(&mut queue);
        }
        let stop = queue.stop;
        let waits = queue.waiting.front().is_some_and(|(seq, ..)| *seq > catalog.durable());
        if waits && !stop {
            let (missed, bytes) = (std::mem::take(&mut queue.missed), queue.bytes.clone());
            // Who removes something waits for the lock, and pools are not asked with it held.
            let hurries = || (missed || is_urgent(pools, &bytes)) && catalog.sync().is_ok();
            if !MutexGuard::unlocked(&mut queue, hurries) && !queue.missed && !queue.stop {
                shared.bell.wait_for(&mut queue, LOOK);
            }
        }
        drop(queue);
        let durable = catalog.durable();
        loop {
            let next = shared.queue.lock().next(durable);
            let Some((file, backing, bytes)) = next else { break };
            let id = backing.pool;
            if let Ok(pool) = pools.get(backing.pool) {
                pool.release(Binding { file, generation: backing.generation, locator: Locator(backing.locator) });
            }
            pools.gave_back(id, bytes);
            shared.queue.lock().gave();
        }
        if stop {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pools::away::tests::space_of;
    use std::time::{Duration, Instant};
    use ullage_kv::{EngineKind, Options, Store};

    /// A start that failed could not be tried once more: its own store was still locked, by the thread that waited for what it was to give back.
    #[test]
    fn a_space_that_was_never_in_use_leaves_its_store_to_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools, node) = space_of(dir.path(), 1);
        assert!(Store::open(dir.path(), EngineKind::Memory, Options::default()).is_err(), "it is in use");
        drop((space, pools, node));
        let until = Instant::now() + Duration::from_secs(20);
        while let Err(error) = Store::open(dir.path(), EngineKind::Memory, Options::default()) {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
