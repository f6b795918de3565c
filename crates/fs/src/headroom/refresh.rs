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

/// What is to be refreshed, and by whom.
type Job = (Arc<Node>, Arc<Refresher>);

#[derive(Debug, Default)]
struct Jobs {
    waiting: Vec<Job>,
    starter: Option<JoinHandle<()>>,
    stop: bool,
}

impl Jobs {
    /// Nobody does what waits: it is not waited for.
    fn give_up(&mut self) {
        self.waiting.drain(..).for_each(|(_, refresher)| refresher.0.store(DONE, Relaxed));
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

/// The number of the process that does it, 0 before it began and -1 when it is done.
#[derive(Debug, Default)]
pub(crate) struct Refresher(AtomicI32);

const DONE: i32 = -1;

impl Refresher {
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Relaxed) == DONE
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
        match self.0.load(Relaxed) {
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
        let refresher = Arc::new(Refresher::default());
        open.refresher = Some(refresher.clone());
        drop(open);
        self.brake.refreshers.jobs.lock().waiting.push((node.clone(), refresher.clone()));
        self.start_refreshers();
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
            match self.refresh(node).stands() {
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
                own.0.store(envoy.process(), Relaxed);
                let refreshed = self.refresh_by(&mut *envoy, node);
                if refreshed.is_ok() {
                    // What was missing for a while may be there again: memory, a process more.
                    if self.brake.refreshers.failed.swap(false, Relaxed) {
                        self.lender.recover();
                    }
                    own.0.store(DONE, Relaxed);
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
        own.0.store(DONE, Relaxed);
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
    pub(crate) fn refresh_by(&self, envoy: &mut dyn Envoy, node: NodeId) -> io::Result<()> {
        let process = envoy.process();
        self.brake.refreshers.at_work.lock().push(process);
        let refreshed = match envoy.refresh(node) {
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
        if jobs.waiting.is_empty() {
            refreshers.bell.wait_for(&mut jobs, ASLEEP);
        }
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        for (node, refresher) in waiting {
            let (weak, own) = (weak.clone(), refresher.clone());
            let started = std::thread::Builder::new().name("refresh".into()).spawn(move || match weak.upgrade() {
                Some(space) => space.refresh_apart(node.id, &own),
                None => own.0.store(DONE, Relaxed),
            });
            if let Err(error) = started {
                space.cannot_refresh(&error);
                refresher.0.store(DONE, Relaxed);
            }
        }
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
}
