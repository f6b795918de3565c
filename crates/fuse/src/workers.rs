//! Threads for calls that wait for disks: a pool that hangs stalls its own requests only.
//!
//! So many as the mount's options say are enough as long as calls return. Where all of them are stuck, others come one by one, each when no call
//! was begun for a moment, or in the place of one whose call lasts, within a bound that is far above what hangs at once. What waits for one thing
//! takes no more than a part of them (`lines.rs`).

use crate::connection::{Connection, DeathWatch};
use crate::lines::Lines;
use crate::mapped::Mapped;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_fs::{WaitsFor, be_ordinary};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// How long calls lie about while all threads that usually do are stuck, before another one comes.
const PATIENCE: Duration = Duration::from_millis(10);
/// A thread whose call lasts so long does not count among those that there usually are.
const LASTING: Duration = Duration::from_secs(1);
/// Threads at most, for each that there usually is.
const STUCK: usize = 16;
/// So many times what waits for one thing may take as many as there are for all.
const PARTS: usize = 4;

/// Buffers of a worker, kept from job to job.
pub(crate) struct Space {
    /// Takes a reply's body.
    pub out: Mapped,
    /// Takes the data of READ.
    pub scratch: Vec<u8>,
}

impl Space {
    fn new(largest_reply: usize) -> Self {
        Self { out: Mapped::new(largest_reply), scratch: Vec::new() }
    }
}

type Job = Box<dyn FnOnce(&mut Space) + Send>;

/// A job that there is no thread for.
struct Refused {
    /// What kept one from being started.
    why: io::Error,
    job: Job,
    largest_reply: usize,
}

impl Refused {
    /// Does the job on the calling thread: late is better than never. What is answered with an error instead nobody asks for again:
    /// a file would stay open for ever, and what was written to a mapping be lost.
    fn run_here(self) {
        (self.job)(&mut Space::new(self.largest_reply));
    }
}

struct State {
    jobs: Lines<Job>,
    idle: usize,
    threads: usize,
    /// Calls begun, ever.
    begun: u64,
    /// Those that go on, by their number, and since when.
    going_on: BTreeMap<u64, Instant>,
    /// A thread more than usual waits whether it is needed.
    spare: bool,
    closing: bool,
}

impl State {
    fn stuck(&self) -> usize {
        self.going_on.values().take_while(|since| since.elapsed() > LASTING).count()
    }
}

/// The workers of one connection.
pub(crate) struct Workers {
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
    /// As long as calls return.
    usual: usize,
    largest_reply: usize,
    /// Where they may run: wherever whoever mounts may.
    cpus: Option<CpuSet>,
    /// What is broken off when one of them panics.
    connection: Option<Arc<Connection>>,
}

impl Workers {
    /// Workers that grow to `usual`, and beyond that by what is stuck; replies are up to `largest_reply` bytes long.
    pub fn new(usual: usize, largest_reply: usize, connection: Option<Arc<Connection>>) -> Arc<Self> {
        let usual = usual.max(1);
        Arc::new(Self {
            state: Mutex::new(State {
                jobs: Lines::new(usual * STUCK / PARTS),
                idle: 0,
                threads: 0,
                begun: 0,
                going_on: BTreeMap::new(),
                spare: false,
                closing: false,
            }),
            work: Condvar::new(),
            ended: Condvar::new(),
            usual,
            largest_reply,
            cpus: sched_getaffinity(None).ok(),
            connection,
        })
    }

    /// Hands over a job. When there is no thread at all and none can be started, does it on the calling one.
    pub fn submit(self: &Arc<Self>, waits_for: WaitsFor, job: impl FnOnce(&mut Space) + Send + 'static) {
        if let Err(refused) = self.try_submit(waits_for, job) {
            tracing::error!(error = %refused.why, "no worker could be started");
            refused.run_here();
        }
    }

    fn try_submit(
        self: &Arc<Self>,
        waits_for: WaitsFor,
        job: impl FnOnce(&mut Space) + Send + 'static,
    ) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.jobs.push(waits_for, Box::new(job));
        if state.jobs.waiting() > state.idle
            && let Err(why) = self.grow(&mut state)
            && let Some(job) = state.jobs.take_back(waits_for)
        {
            return Err(Refused { why, job, largest_reply: self.largest_reply });
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// One thread more, where there may be. Fails only when there is none at all.
    fn grow(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let spare = state.threads - state.stuck() >= self.usual;
        if state.threads >= self.usual * STUCK || spare && state.spare {
            return Ok(());
        }
        let pool = Arc::clone(self);
        match std::thread::Builder::new().name("fuse-worker".into()).spawn(move || pool.run(spare)) {
            Ok(_) => {
                state.threads += 1;
                state.spare |= spare;
                Ok(())
            }
            Err(_) if state.threads > 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits until no call was begun for a moment though some are there. Gives back false when all have been begun.
    fn is_needed(state: &mut MutexGuard<'_, State>) -> bool {
        while state.jobs.waiting() > 0 {
            let begun = state.begun;
            // Nobody wakes it: who is idle is to be woken for a call.
            MutexGuard::unlocked(state, || std::thread::sleep(PATIENCE));
            if state.begun == begun && state.jobs.waiting() > 0 {
                return true;
            }
        }
        false
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

    fn run(self: Arc<Self>, spare: bool) {
        let _watch = self.connection.clone().map(DeathWatch);
        // Work that somebody waits for for a whole flush of a disk may not end up behind all others on one CPU.
        be_ordinary(self.cpus.as_ref());
        let _count = Leaving(&self);
        let mut space = Space::new(self.largest_reply);
        let mut state = self.state.lock();
        if spare {
            let needed = Self::is_needed(&mut state);
            state.spare = false;
            if !needed {
                return;
            }
        }
        loop {
            if let Some((waits_for, job)) = state.jobs.begin() {
                state.begun += 1;
                let number = state.begun;
                state.going_on.insert(number, Instant::now());
                if state.jobs.waiting() > state.idle {
                    // There is one at least.
                    let _ = self.grow(&mut state);
                }
                drop(state);
                job(&mut space);
                state = self.state.lock();
                state.going_on.remove(&number);
                state.jobs.done(waits_for);
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                let waited = self.work.wait_for(&mut state, IDLE);
                state.idle -= 1;
                if waited.timed_out() && state.jobs.waiting() == 0 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity;
    use ullage_types::PoolId;

    #[test]
    fn a_worker_that_a_queue_starts_is_bound_to_no_cpu_and_gives_way_to_nobody() {
        let cpus = sched_getaffinity(None).unwrap();
        let first = affinity::allowed()[0];
        let queue = std::thread::spawn(move || {
            affinity::pin(first);
            let gives_way = crate::sys::set_scheduler(true).is_ok();
            let worker = std::thread::spawn(move || {
                let now = || (sched_getaffinity(None).unwrap(), class());
                let before = now();
                be_ordinary(Some(&cpus));
                (before, now())
            });
            (gives_way, worker.join().unwrap())
        });
        let (gives_way, (before, after)) = queue.join().unwrap();
        assert_eq!(before.0.count(), 1, "it was like the queue");
        assert_eq!(before.1, if gives_way { libc::SCHED_IDLE } else { libc::SCHED_OTHER });
        assert_eq!(after.0, cpus);
        if rustix::process::geteuid().is_root() {
            assert_eq!(after.1, libc::SCHED_OTHER);
        }
    }

    /// So many jobs that end when what this gives is dropped.
    fn submit_stuck(workers: &Arc<Workers>, waits_for: WaitsFor, count: usize) -> std::sync::mpsc::Sender<()> {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        for _ in 0..count {
            let stuck = Arc::clone(&stuck);
            assert!(workers.try_submit(waits_for, move |_| assert!(stuck.lock().recv().is_err())).is_ok());
        }
        release
    }

    #[test]
    fn calls_go_on_while_all_the_usual_workers_and_more_are_stuck() {
        let workers = Workers::new(2, 16, None);
        let release = submit_stuck(&workers, WaitsFor::Anything, 7);
        let (tells, told) = std::sync::mpsc::channel();
        assert!(workers.try_submit(WaitsFor::Anything, move |_| tells.send(()).unwrap()).is_ok());
        told.recv_timeout(Duration::from_secs(10)).expect("it waits for none of them");
        drop(release);
        workers.close();
        assert_eq!(workers.state.lock().threads, 0);
    }

    /// Regression: what hung in one pool held all workers there may be, or what came next waited until as many were there as hung, one each 10 ms.
    #[test]
    fn calls_go_on_at_once_however_many_that_wait_for_something_else_are_stuck() {
        let workers = Workers::new(8, 16, None);
        let release = submit_stuck(&workers, WaitsFor::Pool(PoolId(1)), 1000);
        for _ in 0..20 {
            let (tells, told) = std::sync::mpsc::channel();
            assert!(workers.try_submit(WaitsFor::Pool(PoolId(2)), move |_| tells.send(()).unwrap()).is_ok());
            told.recv_timeout(Duration::from_secs(10)).expect("it waits for none of them");
            let threads = workers.state.lock().threads;
            assert!(threads <= 8 * STUCK / PARTS + 8, "{threads}");
        }
        drop(release);
        workers.close();
        assert_eq!(workers.state.lock().threads, 0);
    }

    /// Regression: one worker beside those that were stuck did all that there was to do, as long as its calls returned.
    #[test]
    fn as_many_as_usual_come_beside_those_that_are_stuck() {
        let workers = Workers::new(4, 16, None);
        let release = submit_stuck(&workers, WaitsFor::Anything, 4);
        std::thread::sleep(LASTING + LASTING / 10);
        let (tells, told) = std::sync::mpsc::channel();
        for _ in 0..100 {
            let tells = tells.clone();
            let job = move |_: &mut Space| {
                std::thread::sleep(Duration::from_millis(2));
                tells.send(std::thread::current().id()).unwrap();
            };
            assert!(workers.try_submit(WaitsFor::Anything, job).is_ok());
        }
        let threads: std::collections::HashSet<_> = told.iter().take(100).collect();
        assert!(threads.len() >= 3, "{}", threads.len());
        drop(release);
        workers.close();
    }

    /// Where no thread could be started the device answered EAGAIN, for it could encode no reply: without buffers there is none.
    #[test]
    fn what_no_thread_can_be_started_for_is_done_here_and_has_room_for_its_reply() {
        let (tells, told) = std::sync::mpsc::channel();
        let job = move |space: &mut Space| tells.send((space.out.len(), std::thread::current().id())).unwrap();
        Refused { why: io::ErrorKind::WouldBlock.into(), job: Box::new(job), largest_reply: 4096 }.run_here();
        assert_eq!(told.recv().unwrap(), (4096, std::thread::current().id()));
    }

    #[test]
    fn no_more_come_than_usual_while_calls_return() {
        let as_usual = || {
            let workers = Workers::new(2, 16, None);
            let seen = Arc::new(Mutex::new(std::collections::HashSet::new()));
            for _ in 0..50 {
                let seen = Arc::clone(&seen);
                let job = move |_: &mut Space| {
                    std::thread::sleep(Duration::from_millis(1));
                    seen.lock().insert(std::thread::current().id());
                };
                assert!(workers.try_submit(WaitsFor::Anything, job).is_ok());
            }
            workers.close();
            seen.lock().len() == 2
        };
        // Both may have to wait for a CPU for longer than calls take.
        assert!((0..10).any(|_| as_usual()));
    }

    /// The calling thread's scheduling class: field 41 of its stat.
    fn class() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().parse().unwrap()
    }
}
