//! The free-after-sync queue: a backing file goes back to its pool once the transaction that dropped its file is
//! durable (DESIGN, "Backing files outlive their names", condition a).

use crate::pools::Pools;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use ullage_catalog::{Backing, Catalog};
use ullage_kv::Seq;
use ullage_pool::{Binding, Locator};
use ullage_types::FileId;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Seq, FileId, Backing)>,
    stop: bool,
}

/// The queue and the thread that empties it.
pub(crate) struct Reaper {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reaper {
    pub(crate) fn start(catalog: Arc<Catalog>, pools: Arc<Pools>) -> Self {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || run(&theirs, &catalog, &pools))
            .expect("a thread can be started");
        Self { shared, thread: Mutex::new(Some(thread)) }
    }

    /// Queues a backing file whose file went in the commit `seq`.
    pub(crate) fn push(&self, file: FileId, seq: Seq, backing: Backing) {
        let mut queue = self.shared.0.lock();
        queue.waiting.push_back((seq, file, backing));
        if queue.waiting.len() == 1 {
            self.shared.1.notify_one();
        }
    }

    /// Ends the thread; what is durable by now is given back first.
    pub(crate) fn stop(&self) {
        self.shared.0.lock().stop = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &(Mutex<Queue>, Condvar), catalog: &Catalog, pools: &Pools) {
    loop {
        let stop = {
            let mut queue = shared.0.lock();
            while queue.waiting.is_empty() && !queue.stop {
                shared.1.wait(&mut queue);
            }
            queue.stop
        };
        let first = shared.0.lock().waiting.front().map(|(seq, ..)| *seq);
        if let Some(first) = first
            && !stop
        {
            catalog.kv().wait_durable(first, Duration::from_secs(1));
        }
        let durable = catalog.durable();
        loop {
            let next = {
                let mut queue = shared.0.lock();
                match queue.waiting.front() {
                    Some((seq, ..)) if *seq <= durable => queue.waiting.pop_front(),
                    _ => None,
                }
            };
            let Some((_, file, backing)) = next else { break };
            if let Ok(pool) = pools.get(backing.pool) {
                pool.release(Binding { file, generation: backing.generation, locator: Locator(backing.locator) });
            }
        }
        if stop {
            return;
        }
    }
}
