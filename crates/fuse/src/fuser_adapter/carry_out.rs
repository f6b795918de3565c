//! One request: a call, and its answer, here or on a worker.

use crate::fuser_adapter::dispatch::{Adapter, errno};
use crate::fuser_adapter::kernel::Connection;
use crate::fuser_adapter::wire::Body;
use fuser::{ReplyAttr, ReplyEntry, Request};
use std::io;
use std::sync::Arc;
use ullage_fs::{AttributesFor, Entry, Errno, Filesystem, Outcome, hurried};
use ullage_types::NodeId;

/// Which calls are a worker's from the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Those that wait for disks, and the node that they are about.
    Always(NodeId),
    /// Those that find that they would have to.
    Maybe,
}

/// What it takes to carry requests out.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) fs: Arc<dyn Filesystem>,
    pub(super) connection: Arc<Connection>,
}

/// Where an answer goes.
pub(super) struct To<'a> {
    pub(super) fs: &'a dyn Filesystem,
    connection: &'a Connection,
    unique: u64,
}

impl Parts {
    pub(super) fn to(&self, unique: u64) -> To<'_> {
        To { fs: &*self.fs, connection: &self.connection, unique }
    }
}

impl Adapter {
    /// Makes a call and answers, on this thread or a worker's. `bytes` are what the request brings; they are copied for a worker only.
    pub(super) fn carry_out<T>(
        &self,
        request: &Request,
        opcode: u32,
        waits: Waits,
        bytes: &[u8],
        call: impl Fn(&dyn Filesystem, &[u8]) -> Outcome<T> + Send + 'static,
        answer: impl FnOnce(&To<'_>, Outcome<T>) + Send + 'static,
    ) {
        let _turn = self.turn(request, opcode);
        let unique = request.unique().0;
        let waits_for = match waits {
            Waits::Always(node) => self.parts.fs.waits_for(node),
            Waits::Maybe => match hurried(|| call(&*self.parts.fs, bytes)) {
                Err(Errno::LATER) => ullage_fs::waits_for(),
                outcome => return answer(&self.parts.to(unique), outcome),
            },
        };
        let (parts, bytes) = (self.parts.clone(), bytes.to_vec());
        self.workers.submit(waits_for, move |_| answer(&parts.to(unique), call(&*parts.fs, &bytes)));
    }
}

impl To<'_> {
    /// Replies ourselves in place of a reply object of `fuser`, which would otherwise answer EIO when dropped.
    /// Forgetting it leaks one count on the session's descriptor, and no memory.
    pub(super) fn send<R>(&self, reply: R, body: &Body) -> io::Result<()> {
        std::mem::forget(reply);
        self.connection.reply(self.unique, body.bytes())
    }

    pub(super) fn entry(&self, reply: ReplyEntry, outcome: Outcome<Entry>) {
        match outcome {
            Ok(entry) => {
                if self.send(reply, &Body::default().entry(&entry)).is_err() {
                    self.fs.forget(entry.node, 1);
                }
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn attributes(&self, reply: ReplyAttr, outcome: Outcome<AttributesFor>) {
        match outcome {
            Ok(answer) => drop(self.send(reply, &Body::default().attributes(&answer))),
            Err(error) => reply.error(errno(error)),
        }
    }
}
