//! Settling: some time after its last handle, a backing file is measured once more and closed.
//!
//! Where nothing is limited, its first measurement after the last handle comes a moment later too, in the background or when somebody asks
//! what is used: nobody waits for a RELEASE, but the caller's next request does, and what is removed at once need not be measured.
//!
//! A mapping outlives RELEASE and goes on writing, so a file counts as settled only when nobody can write to it any
//! more: a read lease can be had only then.

use crate::aside::Aside;
use crate::headroom::late::{begin_writing, late_mark};
use crate::headroom::owing::Owing;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::pools::pool_of;
use crate::{Outcome, Space};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// At the end, all files together are waited for so long to be written to by nobody. One that still is costs the next start
/// a look at its leaf.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// How long somebody who has a file is waited for when all is to be measured.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often files that are open are looked at: what is held for the map of one that nothing was given to meanwhile is let go of after three looks.
const IDLE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Instant, Arc<Node>)>,
    /// Those that were not measured when they were closed; all of them wait, too.
    unmeasured: Vec<Arc<Node>>,
    stop: bool,
}

/// The queue of nodes to settle, and the thread that does it.
#[derive(Default)]
pub(crate) struct Settler {
    queue: Mutex<Queue>,
    bell: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while files are closed to make room for others. No node's lock is waited for under it.
    closing: Mutex<()>,
    /// Held while what was closed is measured. Never waited for by who holds a node's lock.
    measuring: Mutex<()>,
    /// Those that are kept open for longer.
    owing: Owing,
    /// Who writes files out before they are closed, and who closes those that lie with others.
    aside: Arc<Aside>,
    /// Who measures those.
    looks: Arc<Aside>,
    /// Given up while files are closed to make room: to close one takes another descriptor of it.
    spare: Mutex<Option<File>>,
}

impl Settler {
    fn keep_spare(&self) {
        *self.spare.lock() = File::open("/dev/null").ok();
    }

    pub(crate) fn start(space: &Arc<Space>) {
        space.settler.keep_spare();
        let weak = Arc::downgrade(space);
        let thread = std::thread::Builder::new()
            .name("settler".into())
            .spawn(move || run(&weak))
            .expect("a thread can be started");
        *space.settler.thread.lock() = Some(thread);
    }

    /// Queues a node that has no handles left.
    pub(crate) fn push(&self, node: &Arc<Node>, open: &mut OpenFile) {
        if !std::mem::replace(&mut open.queued, true) {
            self.queue.lock().waiting.push_back((Instant::now(), node.clone()));
        }
    }

    /// The same for who does not wait for its lock.
    pub(crate) fn push_in_use(&self, node: &Arc<Node>) {
        self.queue.lock().waiting.push_back((Instant::now(), node.clone()));
    }

    /// The same, for one that was not measured yet.
    fn push_unmeasured(&self, node: &Arc<Node>, open: &mut OpenFile) {
        self.push(node, open);
        if !std::mem::replace(&mut open.unmeasured, true) {
            self.queue.lock().unmeasured.push(node.clone());
        }
    }

    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.bell.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(weak: &Weak<Space>) {
    const TICK: Duration = Duration::from_millis(250);
    let mut looked = Instant::now();
    loop {
        let Some(space) = weak.upgrade() else { return };
        let owing = space.settler.owing.count();
        let mut queue = space.settler.queue.lock();
        if !queue.stop {
            space.settler.bell.wait_for(&mut queue, TICK);
        }
        let stop = queue.stop;
        if !stop && !queue.unmeasured.is_empty() {
            drop(queue);
            space.measure_closed_within(Duration::ZERO);
            queue = space.settler.queue.lock();
        }
        if stop {
            drop(queue);
            // Who is at work puts back what he could not close.
            space.settler.aside.wait();
            space.settler.looks.wait();
            queue = space.settler.queue.lock();
        }
        let due = |queue: &mut Queue| {
            let full = queue.waiting.len() + owing > space.options.linger_max;
            let (since, _) = queue.waiting.front()?;
            (stop || full || since.elapsed() >= space.options.linger).then(|| queue.waiting.pop_front())?
        };
        let mut batch = Vec::new();
        while let Some((_, node)) = due(&mut queue) {
            batch.push(node);
        }
        drop(queue);
        if stop {
            batch.extend(space.settler.owing.take().into_iter().map(|(_, node)| node));
            space.settle_all(&batch);
            return;
        }
        space.give_back_kept(false);
        space.begin_missed_looks();
        batch = space.settler.owing.keep(&space, batch);
        // Before others are written out: while a disk is at that, it takes nothing else.
        if looked.elapsed() >= IDLE {
            space.let_go_of_idle();
            batch.extend(space.settler.owing.due(&space));
            looked = Instant::now();
        }
        space.settle_in_turn(batch);
    }
}

impl Space {
    /// Runs what opens a file, and when this process has too many open, once more after closing all that can be.
    pub(crate) fn with_files<T, E>(&self, open: impl Fn() -> Result<T, E>, full: impl Fn(&E) -> bool) -> Result<T, E> {
        match open() {
            Err(error) if full(&error) => {}
            outcome => return outcome,
        }
        // One at a time: who comes meanwhile would find nothing left to close, and is helped by what is being closed.
        let _turn = self.settler.closing.lock();
        match open() {
            Err(error) if full(&error) => {
                drop(self.settler.spare.lock().take());
                self.close_lingering();
                let outcome = open();
                self.settler.keep_spare();
                outcome
            }
            outcome => outcome,
        }
    }

    /// The last handle of a file with a name has gone: what is known by now is written down, and the backing file stays open until
    /// it is settled, also where that cannot be written down now. The pages may still be on their way through a mapping.
    pub(crate) fn closed(&self, node: &Arc<Node>, open: &mut OpenFile) -> Outcome<()> {
        // A limit must know at once what is free below it.
        if self.measures_at_close(open) {
            self.settler.push(node, open);
            return self.record_measure(node, open);
        }
        self.settler.push_unmeasured(node, open);
        Ok(())
    }

    /// Whether a file is measured when its last handle goes.
    pub(crate) fn measures_at_close(&self, open: &OpenFile) -> bool {
        self.catalog.has_limits() || open.grant.held > 0 || open.lends()
    }

    /// Measures what was closed and not measured then: from here on the totals are right but for what somebody stands still with, because its
    /// pool does not answer. The caller holds no node's lock.
    pub fn measure_closed(&self) {
        self.measure_closed_within(PATIENCE);
    }

    /// Whether that is to be done, which may take a disk.
    pub(crate) fn has_unmeasured(&self) -> bool {
        let Settler { queue, measuring, looks, .. } = &self.settler;
        !queue.lock().unmeasured.is_empty() || measuring.is_locked() || looks.is_at_work()
    }

    fn measure_closed_within(&self, patience: Duration) {
        // Who has it waits no longer than that for pools that do not answer.
        let Some(_turn) = self.settler.measuring.try_lock_for(patience) else { return };
        let (until, mut far) = (Instant::now() + patience, Vec::new());
        let nodes = std::mem::take(&mut self.settler.queue.lock().unmeasured);
        for node in nodes {
            if self.lies_far(&node) {
                far.push(node);
                continue;
            }
            let Some(mut open) = node.open.try_lock_until(until) else {
                self.settler.queue.lock().unmeasured.push(node);
                continue;
            };
            self.measure_at_last(&node, &mut open);
        }
        if !far.is_empty() || self.settler.looks.is_at_work() {
            self.measure_far(far, until);
        }
    }

    fn measure_at_last(&self, node: &Node, open: &mut OpenFile) {
        open.unmeasured = false;
        if node.inode.lock().record.nlink == 0 {
            return;
        }
        if let Err(error) = self.record_measure(node, open) {
            node.not_measured(error);
        }
    }

    /// The same for files whose pools may not answer, and for those that somebody has begun with: they are waited for until then.
    fn measure_far(&self, nodes: Vec<Arc<Node>>, until: Instant) {
        let measure = |space: &Self, node: &Arc<Node>| space.measure_at_last(node, &mut node.open.lock());
        let left = match self.own().upgrade() {
            Some(space) => {
                let patience = until.saturating_duration_since(Instant::now());
                self.settler.looks.run(&space, nodes, patience, measure)
            }
            None => nodes,
        };
        self.settler.queue.lock().unmeasured.extend(left);
        self.settler.looks.wait_until(until);
    }

    /// Whether a file lies in a pool that may have to ask others, who may not answer, even for what an open file looks like.
    pub(crate) fn lies_far(&self, node: &Node) -> bool {
        self.pools.are_any_remote() && pool_of(&node.inode).is_some_and(|pool| self.pools.is_remote(pool))
    }

    /// Closes every backing file that nothing holds. The caller may hold a node's lock, so that none is waited for.
    fn close_lingering(&self) {
        let mut waiting = std::mem::take(&mut self.settler.queue.lock().waiting);
        waiting.extend(self.settler.owing.take());
        if waiting.is_empty() {
            return;
        }
        tracing::warn!(files = waiting.len(), "too many open files: closing those out of use");
        for (_, node) in &waiting {
            if let Some(mut open) = node.open.try_lock() {
                let _ = self.measure_closely(node, &mut open, false);
            }
        }
        // What is not durable is not closed below.
        let _ = self.catalog.sync();
        for (since, node) in waiting {
            if let Some(mut open) = node.open.try_lock() {
                if open.handles == 0 {
                    self.write_out_given_locked(&mut open);
                }
                self.settle_locked(&node, open, false);
                continue;
            }
            self.settler.queue.lock().waiting.push_back((since, node));
        }
    }

    /// At the end: everything is measured, then made durable, then closed.
    fn settle_all(&self, nodes: &[Arc<Node>]) {
        // The kernel puts its own descriptors of ended handles away a moment later. What somebody has mapped stays so.
        let until = Instant::now() + LAST_WAIT;
        for node in nodes {
            let ending = || {
                self.write_out_bare(node);
                let (settled, measured) = self.measure_closely(node, &mut node.open.lock(), true);
                if let Err(error) = &measured {
                    node.not_measured(*error);
                }
                !settled && measured.is_ok()
            };
            while ending() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Err(error) = self.catalog.sync() {
            tracing::error!("the catalog could not be written: {error}");
            return;
        }
        for node in nodes {
            self.settle(node, true);
        }
    }

    /// Settles files that were closed a while ago. Those that have to be written out for that, or lie with others, have it done beside this thread,
    /// which others wait for: their disk may hang.
    fn settle_in_turn(self: &Arc<Self>, batch: Vec<Arc<Node>>) {
        let (mut waiting, mut later) = (Vec::new(), Vec::new());
        for node in batch {
            if node.open.is_locked() {
                // Who has it may stand still with its disk.
                later.push(node);
            } else if self.lies_far(&node) || self.is_to_be_written_out(&node) {
                waiting.push(node);
            } else {
                self.settle_locked(&node, node.open.lock(), false);
            }
        }
        let settle = |space: &Self, node: &Arc<Node>| {
            space.write_out_given(node);
            space.settle(node, false);
        };
        later.extend(self.settler.aside.run(self, waiting, Duration::ZERO, settle));
        for node in &later {
            self.settler.push_in_use(node);
        }
    }

    fn is_to_be_written_out(&self, node: &Node) -> bool {
        let held = |open: &OpenFile| open.grant.given_waits().is_some() || late_mark(open).is_some();
        node.open.try_lock().is_none_or(|open| held(&open)) || self.bare(node).is_some()
    }

    /// Lets go of what was given a while ago, and has found its way to the disk as a rule. To be called again and again.
    fn let_go_of_idle(self: &Arc<Self>) {
        let idle = |node: &Arc<Node>| {
            let looks = node.open.try_lock()?.grant.given.idle()?;
            (looks > 0).then(|| (node.clone(), looks))
        };
        let (begins, ends): (Vec<_>, Vec<_>) =
            self.holders().iter().filter_map(idle).partition(|(_, looks)| *looks == 1);
        let nodes = |of: Vec<(Arc<Node>, u32)>| of.into_iter().map(|(node, _)| node).collect::<Vec<_>>();
        let write = |space: &Self, node: &Arc<Node>| {
            if let Err(error) = space.let_go_of_given(node) {
                node.not_measured(error);
            }
        };
        let begin = |_: &Self, node: &Arc<Node>| begin_writing(node);
        // What is not done now is done at the next look, or the one after that.
        self.settler.aside.run(self, nodes(ends), Duration::ZERO, write);
        self.settler.aside.run(self, nodes(begins), Duration::ZERO, begin);
    }

    /// Measures and closes a node's backing file if nothing holds it any more. What somebody still has mapped is
    /// measured at each GETATTR and looked at again later.
    fn settle(&self, node: &Arc<Node>, last: bool) {
        self.write_out_bare(node);
        self.settle_locked(node, node.open.lock(), last);
    }

    fn settle_locked(&self, node: &Arc<Node>, mut open: MutexGuard<'_, OpenFile>, last: bool) {
        open.queued = false;
        if open.handles > 0 {
            return;
        }
        if open.backing.is_some() {
            let (settled, measured) = self.measure_unused(node, &mut open);
            // What is held is given back first.
            let free = last || settled && open.grant.held == 0;
            if let Err(error) = &measured {
                node.not_measured(*error);
            }
            if settled
                && measured.is_ok()
                && let Err(error) = self.show_times(node, &mut open)
            {
                tracing::debug!(?error, "a plain tree shows other times of file {}", node.inode.id);
            }
            let durable = |open: &OpenFile| {
                open.backing.as_deref().is_none_or(|b| !b.claimed || b.recorded <= self.catalog.durable())
            };
            // It may have changed since all was made durable: what ext4 keeps for later has its blocks when it is written.
            let is_durable = durable(&open) || last && self.catalog.sync().is_ok() && durable(&open);
            if !free || measured.is_err() || !is_durable {
                if !last {
                    self.settler.push(node, &mut open);
                }
                return;
            }
            self.close_backing(&mut open, settled);
        }
        self.let_go_locked(node, open);
    }
}

/// Whether a pool refused since this process has too many files open.
pub(crate) fn is_full(error: &ullage_pool::Error) -> bool {
    matches!(error, ullage_pool::Error::Io { source, .. }
        if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))
}

#[cfg(test)]
mod tests {
    use crate::Filesystem;
    use crate::headroom::lend::tests::{lending, lending_file};
    use crate::open_file::handle;
    use crate::test_kernel::TestKernel;
    use std::fs::File;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};
    use ullage_types::FileId;

    /// It stayed open for ever, its leaf marked, and what it had grown by was never charged.
    #[test]
    fn a_file_that_cannot_be_measured_at_its_last_close_is_measured_later() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 65536);
        space.forget(node.id, 1);
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        assert!(space.do_release(node.id, handle(0, true, false)).is_err(), "its directory is not found");
        node.inode.lock().record.parent = parent;
        let until = Instant::now() + Duration::from_secs(20);
        while space.node(node.id).is_ok() {
            assert!(Instant::now() < until, "nobody closes it");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(node.open.lock().backing.is_none());
        assert!(node.inode.lock().record.blocks >= 128);
    }

    /// Its leaf stayed marked: the start after an orderly end looked through it, and spoke of an unclean one.
    #[test]
    fn a_file_that_changes_while_a_space_ends_is_closed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 65536);
        {
            let mut open = node.open.lock();
            (open.handles, open.writers) = (0, 0);
            let backing = open.backing.as_deref_mut().unwrap();
            backing.file = Arc::new(File::open(dir.path().join("backing")).unwrap());
            (backing.claimed, backing.writable) = (true, false);
        }
        space.settle(&node, true);
        assert!(node.open.lock().backing.is_none());
        assert!(node.inode.lock().record.blocks >= 128);
    }

    /// One closed a file that another had come to open meanwhile and was to make room for: each waited for the other, and soon everybody.
    #[test]
    fn who_closes_files_to_make_room_waits_for_nobody_who_comes_to_open_one() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let (closes, comes) = mpsc::channel();
        let ended = move || {
            closes.send(()).unwrap();
            // Until the other one waits for the file's lock; it is long enough that the lock is handed to him.
            std::thread::sleep(Duration::from_millis(100));
        };
        let kernel = TestKernel { ended: Some(Box::new(ended)), ..TestKernel::default() };
        space.attach(Arc::new(kernel));
        {
            let mut open = node.open.lock();
            (open.handles, open.writers) = (0, 0);
            open.backing.as_deref_mut().unwrap().registered = Some(1);
            space.settler.push(&node, &mut open);
        }
        assert!(space.nodes.forget(node.id, 1).is_some());
        let full = |space: &crate::Space| space.with_files(|| Err::<(), ()>(()), |()| true).unwrap_err();
        let (done, ends) = mpsc::channel();
        let (one, other) = ((space.clone(), done.clone()), (space, done));
        std::thread::spawn(move || {
            full(&one.0);
            one.1.send(()).unwrap();
        });
        std::thread::spawn(move || {
            comes.recv().unwrap();
            let _open = node.open.lock();
            full(&other.0);
            other.1.send(()).unwrap();
        });
        for _ in 0..2 {
            ends.recv_timeout(Duration::from_secs(20)).expect("both go on");
        }
    }
}
