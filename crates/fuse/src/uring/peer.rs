//! Further threads for one CPU's queue, which may wait.
//!
//! The thread of [`super::queue`] has many entries, so nothing that takes long may be done on it. A worker would do it on any CPU, and wake the queue
//! for the reply. A peer runs on the caller's CPU: it is given what takes long with its entry, and commits the reply itself. Then the entry
//! is its own, and as the kernel takes the one that was committed last, what a caller alone asks for next comes to it as well.
//!
//! With what nobody waits for, as the release of a handle, the entry goes back to the queue: the caller's next request comes meanwhile, and one
//! thread answers both in one turn, where two would take turns on the CPU.

use super::buffers::Buffers;
use super::inbox::{Inbox, Parcel};
use super::queue::{carry_out, has_ended};
use super::ring::{Completion, Ring};
use crate::affinity;
use crate::connection::DeathWatch;
use crate::core::Core;
use crate::counters::Tally;
use crate::courtesy::{Courtesy, Machine};
use crate::decode::decode;
use crate::mapped::Mapped;
use crate::message::Message;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

/// Peers of a queue at most, far above what waits at once: the kernel keeps the entry of one until it gets to it, below those committed later.
const MOST: usize = 64;
/// How long one waits for an entry: those that many callers at once needed end then.
const LINGER: Duration = Duration::from_secs(5);
/// Submissions a ring holds: one is under way at a time.
const RING_ENTRIES: u32 = 4;
/// The entry's tag.
const TAG: u64 = 0;

/// An entry with a request in it.
pub(super) struct Taken {
    pub index: usize,
    pub buffers: Buffers,
}

/// The peers of one queue.
pub(super) struct Peers {
    threads: Vec<JoinHandle<()>>,
    /// None where threads do not give way.
    machine: Option<Arc<Machine>>,
    inbox: Arc<Inbox>,
    idle: Arc<Idle>,
}

/// A thread, and where what it is given goes.
type Waiting<T> = (ThreadId, SyncSender<T>);

/// Peers without an entry. Who came last goes first: what it needs is at hand. None when the queue has ended.
struct Idle<T = Taken>(Mutex<Option<Vec<Waiting<T>>>>);

impl<T> Idle<T> {
    fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    fn pop(&self) -> Option<SyncSender<T>> {
        self.0.lock().as_mut()?.pop().map(|(_, gives)| gives)
    }

    /// Adds the calling thread, and gives back where its next entry comes.
    fn push(&self) -> Option<Receiver<T>> {
        let (gives, given) = sync_channel(1);
        self.0.lock().as_mut()?.push((thread::current().id(), gives));
        Some(given)
    }

    /// The calling thread's next entry. None, and it is no longer among these, where none comes for so long, or the queue has ended.
    fn next(&self, given: &Receiver<T>, linger: Duration) -> Option<T> {
        match given.recv_timeout(linger) {
            // Who has been taken from here is just being given one.
            Err(RecvTimeoutError::Timeout) if !self.leave() => given.recv().ok(),
            outcome => outcome.ok(),
        }
    }

    /// Whether the calling thread was among these.
    fn leave(&self) -> bool {
        let mut idle = self.0.lock();
        let Some(idle) = idle.as_mut() else { return false };
        let own = thread::current().id();
        idle.iter().position(|(peer, _)| *peer == own).map(|index| idle.remove(index)).is_some()
    }
}

impl Peers {
    /// None yet.
    pub fn new(machine: Option<Arc<Machine>>, inbox: Arc<Inbox>) -> Self {
        Self { threads: Vec::new(), machine, inbox, idle: Arc::new(Idle::new()) }
    }

    /// Gives a request to one of them. Gives it back where none is idle and no further one can be started.
    pub fn give(&mut self, core: &Arc<Core>, queue: u16, mut taken: Taken) -> Result<(), Taken> {
        while let Some(peer) = self.idle.pop() {
            match peer.send(taken) {
                Ok(()) => return Ok(()),
                Err(gone) => taken = gone.0,
            }
        }
        self.threads.retain(|peer| !peer.is_finished());
        if self.threads.len() >= MOST {
            return Err(taken);
        }
        match self.start(core, queue) {
            Ok(peer) => peer.send(taken).map_err(|gone| gone.0),
            Err(error) => {
                tracing::debug!(queue, %error, "a queue gets no further thread");
                Err(taken)
            }
        }
    }

    fn start(&mut self, core: &Arc<Core>, queue: u16) -> io::Result<SyncSender<Taken>> {
        let (gives, given) = sync_channel(1);
        let (core, machine) = (Arc::clone(core), self.machine.clone());
        let (inbox, idle) = (Arc::clone(&self.inbox), Arc::clone(&self.idle));
        let thread = thread::Builder::new().name(format!("fuse-peer-{queue}")).spawn(move || {
            // The thread that starts it gives way, maybe.
            let _ = crate::sys::set_scheduler(false);
            let bound = affinity::pin(queue.into());
            let serving = core.connection.servers.enlist();
            let courtesy = Courtesy::new(machine.filter(|_| bound), serving.standing());
            Peer::new(core, queue, inbox, courtesy).run(given, &idle);
        })?;
        self.threads.push(thread);
        Ok(gives)
    }
}

impl Drop for Peers {
    /// Waits until all have ended: those with an entry do when the connection has.
    fn drop(&mut self) {
        *self.idle.0.lock() = None;
        for thread in self.threads.drain(..) {
            // Who panicked has broken the connection off.
            let _ = thread.join();
        }
    }
}

/// How it ended that a peer had an entry.
enum Ended {
    /// With a request that nobody waits for.
    Other(Taken),
    /// It is gone.
    Lost,
    /// So is the connection.
    Over,
}

/// What is known of a request before it is carried out.
#[derive(Default)]
struct Next {
    opcode: u32,
    /// It may take long.
    blocks: bool,
    /// Nobody waits for it.
    unattended: bool,
}

/// One of them. Made, run and dropped on its own thread.
struct Peer {
    core: Arc<Core>,
    queue: u16,
    inbox: Arc<Inbox>,
    courtesy: Courtesy,
    tally: Arc<Tally>,
    /// What the kernel has.
    in_kernel: Option<Buffers>,
    out: Mapped,
    scratch: Vec<u8>,
}

impl Peer {
    fn new(core: Arc<Core>, queue: u16, inbox: Arc<Inbox>, courtesy: Courtesy) -> Self {
        let (out, tally) = (Mapped::new(core.max_transfer), core.counters.tally());
        Self { core, queue, inbox, courtesy, tally, in_kernel: None, out, scratch: Vec::new() }
    }

    /// Serves until the connection ends, or nothing comes for long.
    fn run(mut self, mut given: Receiver<Taken>, idle: &Idle) {
        let connection = Arc::clone(&self.core.connection);
        let _watch = DeathWatch(Arc::clone(&connection));
        let mut ring = Ring::new(RING_ENTRIES, connection.device())
            .inspect_err(
                |error| tracing::debug!(queue = self.queue, %error, "the queue's thread gives the replies back"),
            )
            .ok();
        while let Some(taken) = idle.next(&given, LINGER) {
            let back = match self.serve(ring.as_mut(), taken) {
                Ok(Ended::Other(taken)) => Some(Parcel::Request(taken)),
                Ok(Ended::Lost) => None,
                Ok(Ended::Over) => return,
                Err(error) => {
                    tracing::error!(queue = self.queue, %error, "a queue failed; breaking the connection off");
                    return connection.abort();
                }
            };
            // Idle first: the queue's thread may need one for this very request.
            let Some(next) = idle.push() else { return };
            given = next;
            if let Some(back) = back {
                self.inbox.put(back);
            }
        }
    }

    /// Carries out one request, and those that come to the same entry after it, until one comes that nobody waits for.
    fn serve(&mut self, ring: Option<&mut Ring>, mut taken: Taken) -> io::Result<Ended> {
        let mut completions = Vec::new();
        let Some(ring) = ring else {
            let commit_id = self.carry_out(&mut taken.buffers, true);
            self.inbox.put(Parcel::Reply(taken, commit_id));
            return Ok(Ended::Lost);
        };
        let mut blocks = true;
        loop {
            let commit_id = self.carry_out(&mut taken.buffers, blocks);
            let turn = self.inbox.turn();
            ring.commit(TAG, commit_id, self.queue)?;
            self.in_kernel = Some(taken.buffers);
            if let Some(suspicion) = self.inbox.waiting.suspicion() {
                if ring.try_wait(0, &mut completions)? && completions.is_empty() {
                    self.inbox.waiting.refute(suspicion);
                } else {
                    // It may take long, and others may wait behind it, whatever the queue's thread did to have them fetched.
                    self.inbox.wake();
                }
            }
            while completions.is_empty() {
                ring.try_wait(1, &mut completions)?;
            }
            let Some((Completion { result, .. }, buffers)) = completions.pop().zip(self.in_kernel.take()) else {
                return Ok(Ended::Over);
            };
            taken.buffers = buffers;
            if has_ended(result) {
                return Ok(Ended::Over);
            }
            if result < 0 {
                let error = io::Error::from_raw_os_error(-result);
                tracing::error!(queue = self.queue, %error, "the kernel refused a reply");
                return Ok(Ended::Lost);
            }
            self.courtesy.consider();
            let next = self.look(&taken.buffers);
            // The queue's thread may be held up by what it has had since before.
            let is_held_up = turn.is_some() && self.inbox.turn() == turn;
            if next.unattended && !is_held_up {
                return Ok(Ended::Other(taken));
            }
            self.tally.add(next.opcode);
            blocks = next.blocks;
        }
    }

    fn look(&self, buffers: &Buffers) -> Next {
        let (header, payload) = buffers.request();
        let Ok(message) = Message::from_ring(header, payload) else { return Next::default() };
        let (blocks, unattended) = decode(&message, self.core.dialect)
            .map_or((false, false), |request| (request.blocks(self.core.blocking_io), request.is_unattended()));
        Next { opcode: message.header.opcode, blocks, unattended }
    }

    /// What takes long gives way to nobody: others may wait for what it holds.
    fn carry_out(&mut self, buffers: &mut Buffers, blocks: bool) -> u64 {
        let Self { core, out, scratch, .. } = self;
        let mut work = || carry_out(core, buffers, out, scratch);
        if blocks { self.courtesy.pause(work) } else { work() }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // As the queue does: what the kernel still has is never used again.
        std::mem::forget(self.in_kernel.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    #[test]
    fn a_peer_that_nothing_comes_to_ends_and_is_given_nothing_more() {
        let idle = Idle::<u32>::new();
        let given = idle.push().unwrap();
        idle.pop().unwrap().send(7).unwrap();
        assert_eq!(idle.next(&given, MOMENT), Some(7));
        let given = idle.push().unwrap();
        assert_eq!(idle.next(&given, MOMENT), None);
        assert!(idle.pop().is_none());
    }

    #[test]
    fn a_peer_that_is_just_being_given_an_entry_waits_for_it() {
        let idle = Idle::<u32>::new();
        let given = idle.push().unwrap();
        let gives = idle.pop().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(10 * MOMENT);
                gives.send(7).unwrap();
            });
            assert_eq!(idle.next(&given, MOMENT), Some(7));
        });
        let given = idle.push().unwrap();
        let gives = idle.pop().unwrap();
        drop(gives);
        assert_eq!(idle.next(&given, MOMENT), None, "nobody gives it one any more");
        *idle.0.lock() = None;
        assert!(idle.push().is_none());
    }
}
