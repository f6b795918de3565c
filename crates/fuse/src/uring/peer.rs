//! Further threads for one CPU's queue, which may wait: each has a single entry.
//!
//! The thread of [`super::queue`] has many entries, so nothing that takes long may be done on it: handing it to a worker wakes two more threads, the
//! worker and, for the reply, the queue. Whoever has one entry only holds up nobody but the caller, since the kernel gives what comes
//! meanwhile to other entries; and as it takes the one that was committed last, a caller alone is answered by the same thread all the time.
//!
//! The queue's own thread answers while all of them wait. What it may not wait for then goes, with its entry, to one more, up to a bound: whoever commits an
//! entry has it from there on, and is asked next.

use super::buffers::Buffers;
use super::inbox::Inbox;
use super::queue::{carry_out, has_ended};
use super::ring::{Completion, Ring};
use crate::affinity;
use crate::connection::DeathWatch;
use crate::core::Core;
use crate::courtesy::{Courtesy, Machine};
use crate::decode::decode;
use crate::message::Message;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Peers of a queue at most. More than wait at once in most cases; each costs a thread where the machine has many CPUs.
const MOST: usize = 8;
/// Submissions a ring holds: one is under way at a time.
const RING_ENTRIES: u32 = 4;
/// The entry's tag.
const TAG: u64 = 0;

/// The peers of one queue.
pub(super) struct Peers {
    threads: Vec<JoinHandle<()>>,
    /// None where threads do not give way.
    machine: Option<Arc<Machine>>,
    inbox: Arc<Inbox>,
}

impl Peers {
    /// None yet.
    pub fn new(machine: Option<Arc<Machine>>, inbox: Arc<Inbox>) -> Self {
        Self { threads: Vec::new(), machine, inbox }
    }

    /// Starts one more, where there may be, with an entry and the request in it. Gives the entry back otherwise.
    pub fn take(
        &mut self,
        core: &Arc<Core>,
        queue: u16,
        index: usize,
        buffers: Buffers,
    ) -> Result<(), Option<Buffers>> {
        if self.threads.len() >= MOST {
            return Err(Some(buffers));
        }
        let (core, machine, inbox) = (Arc::clone(core), self.machine.clone(), Arc::clone(&self.inbox));
        let held = Arc::new(Mutex::new(Some(buffers)));
        let given = Arc::clone(&held);
        let started = std::thread::Builder::new().name(format!("fuse-peer-{queue}")).spawn(move || {
            let Some(buffers) = given.lock().take() else { return };
            // The thread that starts it gives way, maybe.
            let _ = crate::sys::set_scheduler(false);
            let bound = affinity::pin(queue.into());
            let serving = core.connection.servers.enlist();
            Peer::new(core, queue, inbox, buffers)
                .run(index, Courtesy::new(machine.filter(|_| bound), serving.standing()));
        });
        match started {
            Ok(thread) => {
                self.threads.push(thread);
                Ok(())
            }
            Err(error) => {
                tracing::debug!(queue, %error, "a queue gets no further thread");
                Err(held.lock().take())
            }
        }
    }
}

impl Drop for Peers {
    /// Waits until all have ended, which they do when the connection has.
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // Who panicked has broken the connection off.
            let _ = thread.join();
        }
    }
}

/// One of them. Made, run and dropped on its own thread.
struct Peer {
    core: Arc<Core>,
    queue: u16,
    inbox: Arc<Inbox>,
    /// The entry's memory while it is ours; what the kernel has while `in_kernel`. None once it is the queue's again.
    buffers: Option<Buffers>,
    in_kernel: bool,
    out: Vec<u8>,
    scratch: Vec<u8>,
}

impl Peer {
    fn new(core: Arc<Core>, queue: u16, inbox: Arc<Inbox>, buffers: Buffers) -> Self {
        let out = vec![0; core.max_transfer];
        Self { core, queue, inbox, buffers: Some(buffers), in_kernel: false, out, scratch: Vec::new() }
    }

    fn run(mut self, index: usize, mut courtesy: Courtesy) {
        let connection = Arc::clone(&self.core.connection);
        let _watch = DeathWatch(Arc::clone(&connection));
        let Some(commit_id) = self.carry_out() else { return };
        let served = match Ring::new(RING_ENTRIES, connection.device()) {
            Ok(mut ring) => self.serve(&mut ring, commit_id, &mut courtesy),
            Err(error) => {
                tracing::debug!(queue = self.queue, %error, "a queue has one thread less");
                if let Some(buffers) = self.buffers.take() {
                    self.inbox.put(index, buffers, commit_id);
                }
                Ok(())
            }
        };
        if let Err(error) = served {
            tracing::error!(queue = self.queue, %error, "a queue failed; breaking the connection off");
            connection.abort();
        }
    }

    /// Gives the reply back, and serves until the connection ends or the kernel refuses a reply.
    fn serve(&mut self, ring: &mut Ring, mut commit_id: u64, courtesy: &mut Courtesy) -> io::Result<()> {
        let tally = self.core.counters.tally();
        let mut completions = Vec::new();
        loop {
            ring.commit(TAG, commit_id, self.queue)?;
            self.in_kernel = true;
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
            self.in_kernel = false;
            let Some(Completion { result, .. }) = completions.pop() else { return Ok(()) };
            if result < 0 {
                if !has_ended(result) {
                    let error = io::Error::from_raw_os_error(-result);
                    tracing::error!(queue = self.queue, %error, "the kernel refused a reply");
                }
                return Ok(());
            }
            courtesy.consider();
            let (opcode, blocks) = self.look();
            tally.add(opcode);
            let done = if blocks { courtesy.pause(|| self.carry_out()) } else { self.carry_out() };
            let Some(id) = done else { return Ok(()) };
            commit_id = id;
        }
    }

    /// What is asked for, and whether it may take long.
    fn look(&self) -> (u32, bool) {
        let Some((header, payload)) = self.buffers.as_ref().map(Buffers::request) else { return (0, false) };
        let Ok(message) = Message::from_ring(header, payload) else { return (0, false) };
        let blocks = decode(&message, self.core.dialect).is_ok_and(|request| request.blocks(self.core.blocking_io));
        (message.header.opcode, blocks)
    }

    fn carry_out(&mut self) -> Option<u64> {
        let buffers = self.buffers.as_mut()?;
        Some(carry_out(&self.core, buffers, &mut self.out, &mut self.scratch))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // As the queue does: what the kernel still has is never used again.
        if self.in_kernel {
            std::mem::forget(self.buffers.take());
        }
    }
}
