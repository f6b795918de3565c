//! Having the kernel ask before the next write to a file that is open there.
//!
//! A thread sets the file's attributes to what they are, through the mount. For that the kernel takes the file's lock, which every write holds
//! from its question to its end: so no write is under way when the answer is given, and the next one asks. The thread
//! is of a real-time class, to which the kernel hands the lock before any other: if it waits before a writer is let
//! go on, that writer makes one call and no more.

use crate::node::Node;
use crate::{Caller, Space, sys, waiting};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long is waited for such a thread at most.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_micros(20);

/// The threads that do it.
#[derive(Debug, Default)]
pub(crate) struct Refreshers {
    threads: Mutex<Vec<i32>>,
    /// It could not be done: said once.
    failed: AtomicBool,
}

/// One such thread: its number, 0 before it began and -1 when it is done.
#[derive(Debug, Default)]
pub(crate) struct Refresher(AtomicI32);

const DONE: i32 = -1;

impl Refresher {
    /// Waits until it is done. Gives up after a while: a call under way may take as long as it likes.
    pub(crate) fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        while self.0.load(Relaxed) != DONE && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether it is done, or waits for the file's lock; none while it is neither.
    fn stands(&self) -> Option<bool> {
        match self.0.load(Relaxed) {
            0 => None,
            DONE => Some(true),
            thread => waiting::waits_in(thread, libc::SYS_fchmodat).then_some(false),
        }
    }
}

impl Space {
    /// Whether a SETATTR is a refresher's: it is to change nothing.
    pub(crate) fn is_refresh(&self, caller: Caller) -> bool {
        self.brake.is_used() && self.brake.refreshers.threads.lock().contains(&(caller.pid as i32))
    }

    /// Starts to have the kernel ask before the next write to a file, unless that was begun already and is not done.
    pub(crate) fn refresh(&self, node: &Arc<Node>) -> Arc<Refresher> {
        let mut open = node.open.lock();
        if let Some(under_way) = open.refresher.as_ref().filter(|it| it.0.load(Relaxed) != DONE) {
            return under_way.clone();
        }
        let refresher = Arc::new(Refresher::default());
        open.refresher = Some(refresher.clone());
        drop(open);
        let (space, node, own) = (self.own(), node.clone(), refresher.clone());
        let started = std::thread::Builder::new().name("refresher".into()).spawn(move || {
            if let Some(space) = space.upgrade() {
                space.refresh_here(&node, &own);
            }
            own.0.store(DONE, Relaxed);
        });
        if let Err(error) = started {
            self.brake.refreshers.complain(&error);
            refresher.0.store(DONE, Relaxed);
        }
        refresher
    }

    /// The same, and waits until it waits for the file's lock, which a writer holds who asks us now.
    pub(crate) fn refresh_behind(&self, node: &Arc<Node>) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.brake.refreshers.failed.load(Relaxed) {
            match self.refresh(node).stands() {
                Some(false) => return,
                // That was for a writer before.
                Some(true) => {}
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    fn refresh_here(&self, node: &Node, own: &Refresher) {
        let Some(kernel) = self.kernel() else { return };
        sys::go_first();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.brake.refreshers.threads.lock().push(thread);
        own.0.store(thread, Relaxed);
        let refreshed = kernel.refresh(node.id);
        self.brake.refreshers.threads.lock().retain(|it| *it != thread);
        if let Err(error) = refreshed {
            self.brake.refreshers.complain(&error);
        }
    }
}

impl Refreshers {
    fn complain(&self, error: &std::io::Error) {
        if !self.failed.swap(true, Relaxed) {
            tracing::warn!("who had a file open before a limit bounded it cannot be stopped: {error}");
        }
    }
}
