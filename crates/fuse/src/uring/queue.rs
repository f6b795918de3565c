//! One CPU's queue: its entries, and the thread that serves them.
//!
//! A request that finds no entry waits in the kernel until an entry is *committed* on this queue: registering another
//! does not fetch it. While workers hold entries nothing may be committed for long, so the queue keeps more entries
//! in the kernel than workers can take at once, and where it may have run out all the same, it makes the kernel send
//! a message that is answered at once ([`crate::connection::Connection::poke`]), until a commit fetches nothing.

use super::buffers::Buffers;
use super::inbox::{Inbox, Parcel};
use super::peer::{Peers, Taken};
use super::ring::{Completion, Ring};
use crate::affinity;
use crate::connection::DeathWatch;
use crate::core::Core;
use crate::counters::Tally;
use crate::courtesy::{Courtesy, Machine};
use crate::decode::decode;
use crate::dispatch::Answer;
use crate::message::Message;
use crate::request::Request;
use std::io;
use std::sync::{Arc, Once};
use ullage_fs::{WaitsFor, irreplaceable};
use ullage_types::NodeId;

/// Tag of the watch on the inbox; entries are tagged by their index.
const INBOX: u64 = u64::MAX;
/// Entries of a queue at least.
const LEAST_DEPTH: usize = 2;
/// Entries a queue grows to.
pub(crate) const MOST_ENTRIES: usize = 1024;
/// Submissions a ring holds.
const RING_ENTRIES: u32 = 128;

/// Whose an entry is.
enum Entry {
    /// The kernel may write to the buffers at any time.
    Kernel(Buffers),
    /// Being handled, by us, a worker or a peer, or with a peer in the kernel.
    Away,
}

/// One queue. Made, run and dropped on its own thread.
pub(crate) struct Queue {
    core: Arc<Core>,
    ring: Ring,
    id: u16,
    entries: Vec<Entry>,
    in_kernel: usize,
    /// Entries the kernel shall have at least.
    least_in_kernel: usize,
    /// The entry committed last, until its submission has been seen through.
    last_commit: Option<u64>,
    /// Since the last submission a request was given to a worker, or a peer fetched one that had waited.
    look_again: bool,
    /// Registrations wait for the next submission: who looked for waiting requests before that found nothing of what comes until then.
    registers: bool,
    /// A regular file among them, so that the kernel knows it; 0 if there was none.
    regular_node: NodeId,
    inbox: Arc<Inbox>,
    /// Threads that may wait.
    peers: Peers,
    tally: Arc<Tally>,
    completions: Vec<Completion>,
    out: Vec<u8>,
    scratch: Vec<u8>,
    /// Said once.
    lacks_memory: Once,
    ended: bool,
}

impl Queue {
    /// Registers the queue of a CPU with `depth` entries.
    pub fn new(core: Arc<Core>, id: u16, depth: usize, machine: Option<Arc<Machine>>) -> io::Result<Self> {
        let inbox = Arc::new(Inbox::new()?);
        let mut queue = Self {
            peers: Peers::new(machine, Arc::clone(&inbox)),
            ring: Ring::new(RING_ENTRIES, core.connection.device())?,
            id,
            entries: Vec::new(),
            in_kernel: 0,
            least_in_kernel: depth.max(LEAST_DEPTH) / 2,
            last_commit: None,
            look_again: false,
            registers: false,
            regular_node: NodeId(0),
            inbox,
            tally: core.counters.tally(),
            completions: Vec::new(),
            out: vec![0; core.max_transfer],
            scratch: Vec::new(),
            lacks_memory: Once::new(),
            ended: false,
            core,
        };
        queue.ring.watch(INBOX, queue.inbox.readable())?;
        for _ in 0..depth.max(LEAST_DEPTH) {
            queue.grow()?;
        }
        // A registration that the kernel refuses completes within the submission.
        queue.ring.wait(0, &mut queue.completions)?;
        if let Some(refused) = queue.completions.iter().find(|it| it.tag != INBOX && it.result < 0) {
            return Err(io::Error::from_raw_os_error(-refused.result));
        }
        Ok(queue)
    }

    /// Registers one more entry.
    fn grow(&mut self) -> io::Result<()> {
        let buffers = Buffers::new(self.core.ring_payload)?;
        self.ring.register(self.entries.len() as u64, &buffers, self.id)?;
        self.entries.push(Entry::Kernel(buffers));
        self.in_kernel += 1;
        Ok(())
    }

    /// Serves until the connection ends.
    pub fn run(mut self, mut courtesy: Courtesy) {
        let connection = Arc::clone(&self.core.connection);
        let _watch = DeathWatch(Arc::clone(&connection));
        if let Err(error) = self.serve(&mut courtesy) {
            tracing::error!(queue = self.id, %error, "a queue failed; breaking the connection off");
            connection.abort();
        }
        connection.set_gone();
    }

    fn serve(&mut self, courtesy: &mut Courtesy) -> io::Result<()> {
        self.inbox.works();
        loop {
            courtesy.consider();
            let mut completions = std::mem::take(&mut self.completions);
            for Completion { tag, result, last } in completions.drain(..) {
                if tag == INBOX {
                    self.empty_inbox(last)?;
                } else {
                    self.completed(tag as usize, result)?;
                }
            }
            self.completions = completions;
            if self.ended && self.in_kernel == 0 {
                return Ok(());
            }
            let suspicion = self.inbox.waiting.suspicion();
            let registers = std::mem::take(&mut self.registers);
            if std::mem::take(&mut self.look_again) && (suspicion.is_some() || registers) && self.last_commit.is_none()
            {
                // The registrations have to be there before the message is.
                if !self.ring.try_wait(0, &mut self.completions)? {
                    (self.look_again, self.registers) = (true, registers);
                    std::thread::yield_now();
                    continue;
                }
                if self.core.connection.poke(self.regular_node).is_err() {
                    self.poke_by_statfs();
                }
                if !self.completions.is_empty() {
                    continue;
                }
            }
            // A commit fetches a waiting request within the submission. One that did not found none.
            self.inbox.rests();
            let waited = self.ring.try_wait(1, &mut self.completions)?;
            self.inbox.works();
            if waited
                && let Some(tag) = self.last_commit.take()
                && !self.completions.iter().any(|it| it.tag == tag)
                && let Some(suspicion) = suspicion
            {
                self.inbox.waiting.refute(suspicion);
            }
        }
    }

    /// An entry has come back from the kernel: with a request, or for good.
    fn completed(&mut self, index: usize, result: i32) -> io::Result<()> {
        let Some(Entry::Kernel(buffers)) =
            self.entries.get_mut(index).map(|entry| std::mem::replace(entry, Entry::Away))
        else {
            return Err(io::Error::other(format!("completion of entry {index}, which the kernel does not have")));
        };
        self.in_kernel -= 1;
        match -result {
            0 => self.handle(index, buffers),
            _ if has_ended(result) => {
                self.ended = true;
                Ok(())
            }
            errno => {
                // A commit that was refused: the kernel no longer waits for that request and keeps the entry.
                let error = io::Error::from_raw_os_error(errno);
                tracing::error!(queue = self.id, index, %error, "the kernel refused a reply");
                self.keep_some_in_kernel()
            }
        }
    }

    fn handle(&mut self, index: usize, mut buffers: Buffers) -> io::Result<()> {
        let (header, payload) = buffers.request();
        let answer = match Message::from_ring(header, payload) {
            Ok(message) => {
                self.tally.add(message.header.opcode);
                match decode(&message, self.core.dialect) {
                    Ok(request) if request.blocks(self.core.blocking_io) => {
                        if !matches!(request, Request::Fsyncdir | Request::Syncfs) {
                            self.regular_node = message.node();
                        }
                        let waits_for = self.core.dispatcher.waits_for(message.node(), false);
                        return self.hand_over(waits_for, index, buffers);
                    }
                    Ok(request) => {
                        match irreplaceable(|| {
                            self.core.dispatcher.answer(&message, request, &mut self.out, &mut self.scratch)
                        }) {
                            Answer::Later => {
                                let waits_for = self.core.dispatcher.waits_for(message.node(), true);
                                return self.hand_over(waits_for, index, buffers);
                            }
                            answer => answer,
                        }
                    }
                    Err(ullage_fs::Errno(errno)) => Answer::Error(errno),
                }
            }
            Err(malformed) => {
                tracing::error!(queue = self.id, ?malformed, "malformed request");
                Answer::Error(libc::EIO)
            }
        };
        let commit_id = leave(&mut buffers, answer, &self.out, &self.scratch);
        self.give_back(index, buffers, commit_id)
    }

    fn hand_over(&mut self, waits_for: WaitsFor, index: usize, buffers: Buffers) -> io::Result<()> {
        self.look_again = true;
        if let Err(taken) = self.peers.give(&self.core, self.id, Taken { index, buffers }) {
            self.submit(waits_for, taken);
        }
        self.keep_some_in_kernel()
    }

    /// Gives a request to a worker.
    fn submit(&self, waits_for: WaitsFor, mut taken: Taken) {
        let (core, inbox) = (Arc::clone(&self.core), Arc::clone(&self.inbox));
        self.core.workers.submit(waits_for, move |space| {
            let commit_id = carry_out(&core, &mut taken.buffers, &mut space.out, &mut space.scratch);
            inbox.put(Parcel::Reply(taken, commit_id));
        });
    }

    fn keep_some_in_kernel(&mut self) -> io::Result<()> {
        if self.in_kernel < self.least_in_kernel {
            self.inbox.waiting.suspect();
        }
        while !self.ended && self.in_kernel < self.least_in_kernel && self.entries.len() < MOST_ENTRIES {
            if !self.grow_where_there_is_memory()? {
                break;
            }
            self.registers = true;
        }
        Ok(())
    }

    /// Registers one more entry, unless there is no memory for it: what comes then waits until some that there are have come back.
    fn grow_where_there_is_memory(&mut self) -> io::Result<bool> {
        match self.grow() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                let most = self.entries.len();
                self.lacks_memory.call_once(|| {
                    tracing::warn!(queue = self.id, %error, "no more requests at once than {most}");
                });
                Ok(false)
            }
            grown => grown.map(|()| true),
        }
    }

    /// The longer way to a message on this CPU, where no regular file is at hand: somebody else calls statfs(2).
    fn poke_by_statfs(&self) {
        let (cpu, mountpoint) = (self.id.into(), self.core.connection.mountpoint().to_owned());
        let spawned = std::thread::Builder::new().name("fuse-poke".into()).spawn(move || {
            affinity::pin(cpu);
            // The queue's thread, which it is like, may be of the class that waits for all others.
            let _ = crate::sys::set_scheduler(false);
            rustix::fs::statfs(mountpoint)
        });
        if let Err(error) = spawned {
            tracing::warn!(queue = self.id, %error, "requests may wait in the kernel until the next one comes");
        }
    }

    /// Queues the reply in `buffers`; it goes with the next submission.
    fn give_back(&mut self, index: usize, buffers: Buffers, commit_id: u64) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ring.commit(index as u64, commit_id, self.id)?;
        self.last_commit = Some(index as u64);
        self.entries[index] = Entry::Kernel(buffers);
        self.in_kernel += 1;
        Ok(())
    }

    fn empty_inbox(&mut self, watch_again: bool) -> io::Result<()> {
        if watch_again && !self.ended {
            self.ring.watch(INBOX, self.inbox.readable())?;
        }
        self.look_again = true;
        for parcel in self.inbox.take() {
            match parcel {
                Parcel::Reply(Taken { index, buffers }, commit_id) => self.give_back(index, buffers, commit_id)?,
                Parcel::Request(Taken { index, buffers }) => self.handle(index, buffers)?,
            }
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernel may still write to what it was not asked to give back, some time after the ring is closed:
        // that memory is never used again.
        for entry in self.entries.drain(..) {
            if let Entry::Kernel(buffers) = entry {
                std::mem::forget(buffers);
            }
        }
    }
}

/// Whether an entry that comes back with this comes back for good: the connection is gone.
pub(super) fn has_ended(result: i32) -> bool {
    matches!(-result, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
}

/// Carries out the request in `buffers` and leaves the reply there; gives back the identity to commit it under.
pub(super) fn carry_out(core: &Core, buffers: &mut Buffers, out: &mut [u8], scratch: &mut Vec<u8>) -> u64 {
    let (header, payload) = buffers.request();
    let answer = match Message::from_ring(header, payload) {
        Ok(message) => match decode(&message, core.dialect) {
            Ok(request) => core.dispatcher.answer(&message, request, out, scratch),
            Err(ullage_fs::Errno(errno)) => Answer::Error(errno),
        },
        Err(_) => Answer::Error(libc::EIO),
    };
    leave(buffers, answer, out, scratch)
}

fn leave(buffers: &mut Buffers, answer: Answer, out: &[u8], scratch: &[u8]) -> u64 {
    match answer {
        // Nothing silent comes over a ring; if it did, its entry has to be given back all the same.
        Answer::Silent => buffers.reply(0, &[]),
        Answer::Error(errno) => buffers.reply(errno, &[]),
        // Who may wait never says so.
        Answer::Later => buffers.reply(libc::EAGAIN, &[]),
        Answer::Buffer(length) => buffers.reply(0, &out[..length]),
        Answer::Scratch => buffers.reply(0, scratch),
    }
}
