//! Having the kernel ask before the next write to a file that is open there.
//!
//! A process apart sets the file's attributes to what they are, through the mount. For that the kernel takes the file's lock, which every
//! write holds from its question to its end: so no write is under way when the answer is given, and the next one asks. The process
//! is of a real-time class, to which the kernel hands the lock before any other: if it waits before a writer is let
//! go on, that writer makes one call and no more.

use super::waiting;
use crate::node::Node;
use crate::{Caller, Envoy, Space, sys, threads};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_types::NodeId;

/// How long is waited for it at most: where it can be done, it comes before all others.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the thread that starts them waits for something to do before it looks whether it is still needed.
const ASLEEP: Duration = Duration::from_millis(500);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_micros(20);
/// Processes that wait for something to do, at most.
const READY: usize = 8;
/// So many files are refreshed at a time, each by a thread and a process: whoever sets a limit may have thousands refreshed.
const MOST: usize = 32;
/// One that waits for its file's lock for so long, which a writer has whose disk may hang, is not one of them: the others go on.
const STUCK: Duration = Duration::from_millis(500);

/// What is to be refreshed, and by whom.
type Job = (NodeId, Arc<Refresher>);

#[derive(Debug, Default)]
struct Jobs {
    /// In order, those first that somebody waits for who holds up others.
    waiting: VecDeque<Job>,
    /// Since when each thread is at its file, by the thread's number.
    begun: FxHashMap<u64, Instant>,
    /// The number of the last one.
    last: u64,
    starter: Option<JoinHandle<()>>,
    stop: bool,
}

impl Jobs {
    /// What is to be done next by a thread apart, if one more may be at work now. Gives back its number, too.
    fn begin(&mut self) -> Option<(u64, Job)> {
        let number = self.last + 1;
        let job = self.go_on(number)?;
        self.last = number;
        Some((number, job))
    }

    /// The thread of this number is at no file now. Gives back what it does next, if one more may be done.
    fn go_on(&mut self, number: u64) -> Option<Job> {
        self.begun.remove(&number);
        let busy = self.begun.values().filter(|since| since.elapsed() < STUCK).count();
        let job = if self.stop || busy >= MOST { None } else { self.waiting.pop_front() }?;
        self.begun.insert(number, Instant::now());
        Some(job)
    }

    /// Puts this before all that waits, if it waits.
    fn bring_forward(&mut self, refresher: &Arc<Refresher>) {
        let at = self.waiting.iter().position(|(_, it)| Arc::ptr_eq(it, refresher));
        if let Some(job) = at.filter(|at| *at > 0).and_then(|at| self.waiting.remove(at)) {
            self.waiting.push_front(job);
        }
    }

    /// Nobody does what waits: it is not waited for.
    fn give_up(&mut self) {
        self.waiting.drain(..).for_each(|(_, refresher)| refresher.process.store(DONE, Relaxed));
    }
}

/// The threads that have it done. One more starts them, which is of a real-time class too, and so are they, and the processes that they
/// start, from the beginning: whoever asks for one may have to wait long for its turn.
#[derive(Default)]
pub(crate) struct Refreshers {
    jobs: Mutex<Jobs>,
    bell: Condvar,
    /// The processes that do it now, and those that wait for something to do.
    at_work: Mutex<Vec<i32>>,
    ready: Mutex<Vec<Box<dyn Envoy>>>,
    /// It could not be done the last time, which was said.
    failed: AtomicBool,
}

/// The refresh of one file.
#[derive(Debug, Default)]
pub(crate) struct Refresher {
    /// The number of the process that does it, 0 before it began and -1 when it is done.
    process: AtomicI32,
    /// That of the one that most likely has the file open.
    opener: u32,
}

const DONE: i32 = -1;

impl Refresher {
    pub(crate) fn is_done(&self) -> bool {
        self.process.load(Relaxed) == DONE
    }

    /// Waits until it is done, or gives up then: a call under way may take as long as it likes.
    pub(crate) fn wait(&self, until: Instant) {
        while !self.is_done() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// The same for several; for each that waits for the file's lock, which who asks may have himself, no longer than this: it comes before all
    /// others then.
    pub(crate) fn wait_in_line(all: Vec<Arc<Self>>, until: Instant, patience: Duration) {
        let mut left: Vec<(Arc<Self>, Option<Instant>)> = all.into_iter().map(|each| (each, None)).collect();
        loop {
            left.retain_mut(|(each, since)| match each.stands() {
                None => true,
                Some(true) => false,
                Some(false) => since.get_or_insert_with(Instant::now).elapsed() <= patience,
            });
            if left.is_empty() || Instant::now() >= until {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether it is done, or waits for the file's lock; none while it is neither.
    fn stands(&self) -> Option<bool> {
        match self.process.load(Relaxed) {
            0 => None,
            DONE => Some(true),
            process => waiting::waits_in(process, libc::SYS_fchmodat).then_some(false),
        }
    }
}

impl Space {
    /// Whether a SETATTR is a refresher's: it is to change nothing.
    pub(crate) fn is_refresh(&self, caller: Caller) -> bool {
        self.brake.is_used() && self.brake.refreshers.at_work.lock().contains(&(caller.pid as i32))
    }

    /// Starts to have the kernel ask before the next write to a file, unless that was begun already and is not done.
    pub(crate) fn refresh(&self, node: &Arc<Node>) -> Arc<Refresher> {
        let mut open = node.open.lock();
        if let Some(under_way) = open.refresher.as_ref().filter(|it| !it.is_done()) {
            return under_way.clone();
        }
        let refresher = Arc::new(Refresher { opener: open.opener, ..Refresher::default() });
        open.refresher = Some(refresher.clone());
        drop(open);
        self.brake.refreshers.jobs.lock().waiting.push_back((node.id, refresher.clone()));
        self.start_refreshers();
        refresher
    }

    /// The same before all others that were not begun.
    pub(crate) fn refresh_first(&self, node: &Arc<Node>) -> Arc<Refresher> {
        let refresher = self.refresh(node);
        if refresher.stands().is_none() {
            self.brake.refreshers.jobs.lock().bring_forward(&refresher);
        }
        refresher
    }

    /// Has what waits to be refreshed begun.
    pub(crate) fn start_refreshers(&self) {
        let refreshers = &self.brake.refreshers;
        let mut jobs = refreshers.jobs.lock();
        if jobs.starter.is_none() && !jobs.stop {
            let own = self.own();
            match threads::start("refreshers", move || start(&own)) {
                Ok(starter) => jobs.starter = Some(starter),
                Err(error) => {
                    jobs.give_up();
                    self.cannot_refresh(&error);
                }
            }
        }
        refreshers.bell.notify_one();
    }

    /// The same, and waits until it waits for the file's lock, which a writer holds who asks us now.
    /// Gives back whether it does.
    pub(crate) fn refresh_behind(&self, node: &Arc<Node>) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.brake.refreshers.failed.load(Relaxed) {
            match self.refresh_first(node).stands() {
                Some(false) => return true,
                // That was for a writer before.
                Some(true) => {}
                None => std::thread::sleep(PAUSE),
            }
        }
        false
    }

    /// Refreshes a file. When that is done the refresher says so, before its process may have something else to do.
    fn refresh_apart(&self, node: NodeId, own: &Refresher) {
        let mut refreshed = Ok(());
        for _ in 0..2 {
            refreshed = self.take_envoy().and_then(|mut envoy| {
                own.process.store(envoy.process(), Relaxed);
                let refreshed = self.refresh_by(&mut *envoy, node, own.opener);
                if refreshed.is_ok() {
                    // What was missing for a while may be there again: memory, a process more.
                    if self.brake.refreshers.failed.swap(false, Relaxed) {
                        self.lender.recover();
                    }
                    own.process.store(DONE, Relaxed);
                    self.keep_envoy(envoy);
                }
                refreshed
            });
            match &refreshed {
                // Somebody ended it, and maybe all of them.
                Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe) => {
                    self.brake.refreshers.dismiss();
                }
                _ => break,
            }
        }
        if let Err(error) = refreshed {
            self.cannot_refresh(&error);
        }
        own.process.store(DONE, Relaxed);
    }

    /// Says so, and lends nothing until it can be done again.
    fn cannot_refresh(&self, error: &io::Error) {
        self.brake.refreshers.complain(error);
        self.lender.fail();
    }

    /// A process that makes calls in the mount: one that waits for something to do, or a new one.
    pub(crate) fn take_envoy(&self) -> io::Result<Box<dyn Envoy>> {
        let ready = self.brake.refreshers.ready.lock().pop();
        ready.map_or_else(|| self.kernel().ok_or(ErrorKind::NotConnected)?.envoy(), Ok)
    }

    /// It has something to do no more.
    pub(crate) fn keep_envoy(&self, envoy: Box<dyn Envoy>) {
        let stopped = self.brake.refreshers.jobs.lock().stop;
        let mut ready = self.brake.refreshers.ready.lock();
        if !stopped && ready.len() < READY {
            ready.push(envoy);
        } else {
            drop(ready);
            // Its end is waited for.
            drop(envoy);
        }
    }

    /// Refreshes a file by this process. One that the kernel does not know any more nobody has open: nothing is left to be done.
    pub(crate) fn refresh_by(&self, envoy: &mut dyn Envoy, node: NodeId, opener: u32) -> io::Result<()> {
        let process = envoy.process();
        self.brake.refreshers.at_work.lock().push(process);
        let refreshed = match envoy.refresh(node, opener) {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => Ok(()),
            refreshed => refreshed,
        };
        self.brake.refreshers.at_work.lock().retain(|it| *it != process);
        refreshed
    }
}

fn start(weak: &Weak<Space>) {
    sys::go_first();
    loop {
        let Some(space) = weak.upgrade() else { return };
        let refreshers = &space.brake.refreshers;
        let mut jobs = refreshers.jobs.lock();
        if jobs.stop {
            return;
        }
        let Some((number, job)) = jobs.begin() else {
            refreshers.bell.wait_for(&mut jobs, ASLEEP);
            continue;
        };
        drop(jobs);
        let (weak, theirs) = (weak.clone(), job.clone());
        let started = std::thread::Builder::new().name("refresh".into()).spawn(move || work(&weak, number, theirs));
        if let Err(error) = started {
            let mut jobs = refreshers.jobs.lock();
            jobs.begun.remove(&number);
            if jobs.begun.is_empty() || jobs.stop {
                // Nobody takes it up: what waited when they stopped was given up by then.
                drop(jobs);
                space.cannot_refresh(&error);
                job.1.process.store(DONE, Relaxed);
            } else {
                // One of those that were started does it.
                jobs.waiting.push_front(job);
                refreshers.bell.wait_for(&mut jobs, ASLEEP);
            }
        }
    }
}

/// Refreshes one file after the other, as long as any wait.
fn work(weak: &Weak<Space>, number: u64, first: Job) {
    let mut next = Some(first);
    while let Some((node, refresher)) = next {
        let Some(space) = weak.upgrade() else { return refresher.process.store(DONE, Relaxed) };
        space.refresh_apart(node, &refresher);
        next = space.brake.refreshers.jobs.lock().go_on(number);
    }
}

impl Refreshers {
    /// Starts no more of them.
    pub(crate) fn stop(&self) {
        let starter = {
            let mut jobs = self.jobs.lock();
            jobs.stop = true;
            jobs.give_up();
            jobs.starter.take()
        };
        self.bell.notify_all();
        if let Some(starter) = starter {
            let _ = starter.join();
        }
        self.dismiss();
    }

    /// Ends the processes that wait for something to do.
    fn dismiss(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        // Their ends are waited for, and not below the lock.
        drop(ready);
    }

    fn complain(&self, error: &io::Error) {
        if !self.failed.swap(true, Relaxed) {
            tracing::warn!("who had a file open before a limit bounded it cannot be stopped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filesystem;
    use crate::headroom::lend::tests::lending;
    use crate::test_kernel::TestKernel;

    /// Refreshes a file in a space where room can be lent, with these answers; gives back whether it can afterwards.
    fn lends_after(answers: &[i32]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let kernel = Arc::new(TestKernel::default());
        space.attach(kernel.clone());
        space.lender.found(true);
        for answer in answers {
            kernel.answer.store(*answer, Relaxed);
            let refresher = space.refresh(&node);
            refresher.wait(Instant::now() + Duration::from_secs(60));
            assert_eq!(refresher.stands(), Some(true));
        }
        space.brake.stop();
        space.lends() == Some(true)
    }

    /// A file that was removed just before was taken for one whose writers cannot be stopped: nothing was lent any more, to anybody.
    #[test]
    fn a_file_that_is_gone_when_its_turn_comes_is_no_failure() {
        assert!(lends_after(&[libc::ESTALE]));
    }

    #[test]
    fn nothing_is_lent_while_nobody_can_be_stopped_and_again_afterwards() {
        assert!(!lends_after(&[0, libc::EIO]));
        assert!(lends_after(&[libc::ENOMEM, libc::EIO, 0]));
    }

    /// Each had a thread and a process at once: where thousands were open the machine had none left.
    #[test]
    fn of_many_files_a_few_are_refreshed_at_a_time_and_in_the_end_all() {
        const FILES: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let kernel = Arc::new(TestKernel { takes: Duration::from_millis(5), ..TestKernel::default() });
        space.attach(kernel.clone());
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let create = |n: usize| {
            let name = n.to_string();
            let (entry, _) = space.create(caller, NodeId(1), name.as_bytes(), 0o600, 0, libc::O_WRONLY as u32).unwrap();
            space.node(entry.node).unwrap()
        };
        let nodes: Vec<_> = (0..FILES).map(create).collect();
        let all: Vec<_> = nodes.iter().map(|node| space.refresh(node)).collect();
        let until = Instant::now() + Duration::from_secs(60);
        for each in all {
            each.wait(until);
            assert!(each.is_done());
        }
        let envoys = &kernel.envoys;
        assert_eq!(envoys.refreshed.load(Relaxed), FILES);
        assert!((2..=MOST).contains(&envoys.most.load(Relaxed)), "{} at a time", envoys.most.load(Relaxed));
        space.brake.stop();
    }

    /// Those that wait for the lock of a file whose disk hangs may be as many.
    #[test]
    fn files_that_cannot_be_refreshed_now_keep_no_others_from_it() {
        let mut jobs = Jobs::default();
        let refreshers: Vec<_> = (0..MOST as u64 + 3).map(|_| Arc::new(Refresher::default())).collect();
        jobs.waiting.extend((1..).map(NodeId).zip(refreshers.iter().cloned()));
        for n in 1..=MOST as u64 {
            assert_eq!(jobs.begin().map(|(_, (node, _))| node), Some(NodeId(n)));
        }
        assert!(jobs.begin().is_none());
        jobs.begun.values_mut().for_each(|since| *since -= STUCK);
        jobs.bring_forward(&refreshers[MOST + 2]);
        assert_eq!(jobs.begin().map(|(_, (node, _))| node), Some(NodeId(MOST as u64 + 3)));
        assert_eq!(jobs.go_on(1).map(|(node, _)| node), Some(NodeId(MOST as u64 + 1)));
    }
}
