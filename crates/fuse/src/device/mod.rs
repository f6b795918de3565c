//! Requests over `/dev/fuse`: each thread reads one, carries it out and writes the reply.

mod crowd;
mod follow;
mod turns;

pub(crate) use follow::Follow;
pub(crate) use turns::{Place, SPARES, Turns};

use crate::abi::{self, InHeader};
use crate::connection::{DeathWatch, write_reply};
use crate::core::Core;
use crate::counters::Tally;
use crate::courtesy::Machine;
use crate::decode::decode;
use crate::dispatch::Answer;
use crate::message::Message;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_fs::{WaitsFor, hurried};
use ullage_types::NodeId;

/// Room before the data of a WRITE: its headers, rounded up.
const HEADERS: usize = 4096;
/// Requests up to this long are copied when a worker takes them.
const SMALL: usize = 64 << 10;

/// One reader.
pub(crate) struct Reader {
    device: Arc<OwnedFd>,
    core: Arc<Core>,
    tally: Arc<Tally>,
    waiting: Waiting,
}

/// A reader waits at the device only when it is needed there.
pub(crate) struct Line {
    pub place: Place,
    /// Where it follows its callers: the CPU it is at home on, and what is known of all of them.
    pub follow: Option<(usize, Option<Arc<Machine>>)>,
}

/// How a reader waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Asleep in the kernel.
    Asleep,
    /// Polling for so long, then asleep.
    Spinning(Duration),
    /// Looking every [`NAP`] while there is something to do: for what nobody waits for. Whoever sends to a reader asleep
    /// pays for waking it, which on an idle CPU takes longer than a whole FORGET.
    Napping,
}

/// How long a FORGET may lie about.
const NAP: Duration = Duration::from_millis(2);
/// How long after the last request a napping reader goes to sleep.
const AWAKE: Duration = Duration::from_secs(1);

impl Reader {
    /// A reader of a descriptor of its own.
    pub fn new(device: OwnedFd, core: Arc<Core>, waiting: Waiting) -> std::io::Result<Self> {
        if waiting != Waiting::Asleep {
            rustix::fs::fcntl_setfl(&device, rustix::fs::fcntl_getfl(&device)? | rustix::fs::OFlags::NONBLOCK)?;
        }
        let tally = core.counters.tally();
        Ok(Self { device: Arc::new(device), core, tally, waiting })
    }

    /// Serves until the connection ends.
    pub fn run(self, line: Line) {
        let serving = self.core.connection.servers.enlist();
        let _watch = DeathWatch(Arc::clone(&self.core.connection));
        let size = self.core.max_transfer + HEADERS;
        let mut buffer = vec![0; size];
        let mut out = vec![0; self.core.max_transfer];
        let mut scratch = Vec::new();
        let Line { mut place, follow } = line;
        let mut follow = follow.map(|(home, machine)| Follow::new(home, machine, serving.standing()));
        while place.wait() {
            let asked = Instant::now();
            match self.receive(&mut buffer) {
                Ok(length) => {
                    let waited = asked.elapsed();
                    let caller = caller(&buffer[..length]);
                    place.took();
                    let blocks = self.is_blocking(&buffer[..length]);
                    if blocks
                        || !handle(&self.core, &self.device, &buffer[..length], &mut out, &mut scratch, Haste::Now)
                    {
                        let waits_for = self.core.dispatcher.waits_for(node(&buffer[..length]), !blocks);
                        // Copying a small request is cheaper than a fresh large buffer.
                        let request = if length <= SMALL {
                            buffer[..length].to_vec()
                        } else {
                            std::mem::replace(&mut buffer, vec![0; size])
                        };
                        self.hand_over(waits_for, request, length);
                    }
                    if let Some(follow) = &mut follow {
                        follow.consider(caller, place.is_alone());
                    }
                    place.did(caller, waited);
                }
                // ENOENT: the request was interrupted before it could be copied.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => {
                    self.core.connection.set_gone();
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "reading requests failed; breaking the connection off");
                    self.core.connection.abort();
                    return;
                }
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let patience = match self.waiting {
            Waiting::Asleep => return rustix::io::read(&*self.device, buffer),
            Waiting::Spinning(time) => time,
            Waiting::Napping => AWAKE,
        };
        let until = Instant::now() + patience;
        loop {
            match rustix::io::read(&*self.device, &mut *buffer) {
                Err(Errno::AGAIN) if Instant::now() >= until => break,
                Err(Errno::AGAIN) if self.waiting == Waiting::Napping => std::thread::sleep(NAP),
                Err(Errno::AGAIN) => std::hint::spin_loop(),
                done => return done,
            }
        }
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)], None)?;
        Err(Errno::AGAIN)
    }

    /// Counts the request and tells whether it belongs on a worker.
    fn is_blocking(&self, bytes: &[u8]) -> bool {
        let Ok(message) = Message::from_device(bytes, self.core.dialect) else { return false };
        self.tally.add(message.header.opcode);
        decode(&message, self.core.dialect).is_ok_and(|request| request.blocks(self.core.blocking_io))
    }

    fn hand_over(&self, waits_for: WaitsFor, request: Vec<u8>, length: usize) {
        let (core, device) = (Arc::clone(&self.core), Arc::clone(&self.device));
        self.core.workers.submit(waits_for, move |space| {
            handle(&core, &device, &request[..length], &mut space.out, &mut space.scratch, Haste::None);
        });
    }
}

/// The thread that waits for the answer; 0 where nobody does, or it is none that is known here.
fn caller(bytes: &[u8]) -> u32 {
    abi::read::<InHeader>(bytes).map_or(0, |header| header.pid)
}

/// What it is about.
fn node(bytes: &[u8]) -> NodeId {
    NodeId(abi::read::<InHeader>(bytes).map_or(0, |header| header.nodeid))
}

/// Whether others wait for the calling thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Haste {
    Now,
    None,
}

/// Carries out one request and replies. Gives back false, and has done nothing, where it would have to wait and may not.
fn handle(core: &Core, device: &OwnedFd, bytes: &[u8], out: &mut [u8], scratch: &mut Vec<u8>, haste: Haste) -> bool {
    let message = match Message::from_device(bytes, core.dialect) {
        Ok(message) => message,
        Err(malformed) => {
            tracing::error!(?malformed, length = bytes.len(), "malformed request");
            if let Some(unique) = malformed.unique {
                send(device, unique, Answer::Error(libc::EIO), &[], &[]);
            }
            return true;
        }
    };
    let answer = match decode(&message, core.dialect) {
        Ok(request) if haste == Haste::Now => hurried(|| core.dispatcher.answer(&message, request, out, scratch)),
        Ok(request) => core.dispatcher.answer(&message, request, out, scratch),
        Err(ullage_fs::Errno(errno)) => Answer::Error(errno),
    };
    if answer == Answer::Later {
        return false;
    }
    send(device, message.header.unique, answer, out, scratch);
    true
}

fn send(device: &OwnedFd, unique: u64, answer: Answer, out: &[u8], scratch: &[u8]) {
    let (errno, body): (i32, &[u8]) = match answer {
        Answer::Silent => return,
        Answer::Error(errno) => (errno, &[]),
        // Who may wait never says so.
        Answer::Later => (libc::EAGAIN, &[]),
        Answer::Buffer(length) => (0, &out[..length]),
        Answer::Scratch => (0, scratch),
    };
    match write_reply(device.as_fd(), unique, errno, body) {
        // ENOENT: the request is no longer waited for; the others: the connection ended meanwhile.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::PERM | Errno::NOTCONN) => {}
        Err(error) => {
            tracing::error!(unique, errno, length = body.len(), %error, "the kernel refused a reply");
            let _ = write_reply(device.as_fd(), unique, libc::EIO, &[]);
        }
    }
}
