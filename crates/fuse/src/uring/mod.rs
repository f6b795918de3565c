//! Requests over io_uring: one queue and one thread for every CPU there can be, so that a request is carried out on
//! the CPU that sent it. FORGET, INTERRUPT and notifications still go over the device.

mod buffers;
#[cfg(test)]
mod fallback_tests;
mod inbox;
mod peer;
mod queue;
mod ring;

use crate::affinity;
use crate::core::Core;
use crate::courtesy::{Courtesy, Machine};
pub(crate) use queue::MOST_ENTRIES;
use queue::Queue;
use ring::Ring;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

/// Whether a ring can be set up here at all.
pub(crate) fn probe() -> io::Result<()> {
    Ring::new(2, std::fs::File::open("/dev/null")?.as_fd()).map(drop)
}

/// The queues' threads, and whether the kernel now sends its requests to them.
pub(crate) struct Started {
    pub threads: Vec<JoinHandle<()>>,
    pub live: io::Result<()>,
}

/// Registers `depth` entries for each possible CPU. The kernel starts sending when the last queue is there; if one
/// cannot be made, it is told to go on over the device, and the threads that were started idle until the end.
pub(crate) fn start(core: &Arc<Core>, depth: usize) -> Started {
    let mut threads = Vec::new();
    let mut live = Ok(());
    let machine = Machine::new();
    for cpu in 0..affinity::possible() {
        if let Err(error) = start_queue(core, cpu, depth, machine.clone(), &mut threads) {
            live = Err(io::Error::new(error.kind(), format!("queue of CPU {cpu}: {error}")));
            break;
        }
    }
    if live.is_err()
        && let Err(error) = decline(core)
    {
        // The kernel holds back every request until the rings are there: nobody may wait for that.
        tracing::error!(%error, "the kernel cannot be told to do without io_uring; breaking the connection off");
        core.connection.abort();
    }
    Started { threads, live }
}

fn start_queue(
    core: &Arc<Core>,
    cpu: usize,
    depth: usize,
    machine: Option<Arc<Machine>>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    let (report, reported) = sync_channel(1);
    let core = Arc::clone(core);
    threads.push(std::thread::Builder::new().name(format!("fuse-queue-{cpu}")).spawn(move || {
        let bound = affinity::pin(cpu);
        let serving = core.connection.servers.enlist();
        if !bound {
            tracing::debug!(cpu, "the queue's thread may not run on its CPU and runs where it may");
        }
        let machine = machine.filter(|_| bound);
        match Queue::new(core, cpu as u16, depth, machine.clone()) {
            Ok(queue) => {
                let _ = report.send(Ok(()));
                queue.run(Courtesy::new(machine, serving.standing()));
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        }
    })?);
    reported.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
}

/// Makes the kernel give up on io_uring for this connection: it does so when a registration fails.
fn decline(core: &Core) -> io::Result<()> {
    let buffers = buffers::Buffers::new(core.max_transfer)?;
    let mut ring = Ring::new(2, core.connection.device())?;
    ring.register(0, &buffers, u16::MAX)?;
    let mut completions = Vec::new();
    ring.wait(1, &mut completions)?;
    match completions.first() {
        Some(it) if it.result < 0 => Ok(()),
        _ => Err(io::Error::other("a registration that had to fail did not")),
    }
}
