//! Threads for calls that wait for disks. There are as many as are stuck, within a bound: a pool that hangs
//! stalls its own requests only.

use crate::connection::{Connection, DeathWatch};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Buffers of a worker, kept from job to job.
pub(crate) struct Space {
    /// Takes a reply's body.
    pub out: Vec<u8>,
    /// Takes the data of READ.
    pub scratch: Vec<u8>,
}

type Job = Box<dyn FnOnce(&mut Space) + Send>;

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closing: bool,
}

/// The workers of one connection.
pub(crate) struct Workers {
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
    max_threads: usize,
    largest_reply: usize,
    connection: Arc<Connection>,
}

impl Workers {
    /// Workers that grow to `max_threads`; replies are up to `largest_reply` bytes long.
    pub fn new(max_threads: usize, largest_reply: usize, connection: Arc<Connection>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { jobs: VecDeque::new(), idle: 0, threads: 0, closing: false }),
            work: Condvar::new(),
            ended: Condvar::new(),
            max_threads: max_threads.max(1),
            largest_reply,
            connection,
        })
    }

    /// Hands over a job. Fails only when there is no thread at all and none can be started.
    pub fn submit(self: &Arc<Self>, job: impl FnOnce(&mut Space) + Send + 'static) -> io::Result<()> {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle && state.threads < self.max_threads {
            state.threads += 1;
            let pool = Arc::clone(self);
            if let Err(error) = std::thread::Builder::new().name("fuse-worker".into()).spawn(move || pool.run()) {
                state.threads -= 1;
                if state.threads == 0 {
                    state.jobs.pop_back();
                    return Err(error);
                }
            }
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Waits until every job is done and every thread has ended.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.work.notify_all();
        while state.threads > 0 {
            self.ended.wait(&mut state);
        }
    }

    fn run(self: Arc<Self>) {
        let _watch = DeathWatch(Arc::clone(&self.connection));
        let _count = Leaving(&self);
        let mut space = Space { out: vec![0; self.largest_reply], scratch: Vec::new() };
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job(&mut space);
                state = self.state.lock();
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                let waited = self.work.wait_for(&mut state, IDLE);
                state.idle -= 1;
                if waited.timed_out() && state.jobs.is_empty() {
                    return;
                }
            }
        }
    }
}

/// Counts a thread out, however it ends.
struct Leaving<'a>(&'a Workers);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.ended.notify_all();
    }
}
