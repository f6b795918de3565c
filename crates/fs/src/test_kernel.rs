//! A kernel for tests: it counts registrations, and answers who refreshes a file as it is told.

use crate::{Envoy, Kernel};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use ullage_types::NodeId;

type Drops = dyn Fn((i64, i64)) + Send + Sync;

#[derive(Default)]
pub(crate) struct TestKernel {
    /// Registrations that were not ended.
    pub registered: AtomicI64,
    /// How often what it keeps of a file was to be dropped.
    pub dropped: AtomicUsize,
    /// Called with the range of what is to be dropped.
    pub drops: Option<Box<Drops>>,
    /// What a refresh gives back: an error's number, or 0.
    pub answer: Arc<AtomicI32>,
    /// How long that takes.
    pub takes: Duration,
    pub envoys: Arc<Envoys>,
    /// Called when a registration ends.
    pub ended: Option<Box<dyn Fn() + Send + Sync>>,
}

/// What became of refreshes.
#[derive(Default)]
pub(crate) struct Envoys {
    now: AtomicUsize,
    /// So many at a time, at most.
    pub most: AtomicUsize,
    pub refreshed: AtomicUsize,
}

impl Kernel for TestKernel {
    fn register(&self, _: BorrowedFd<'_>) -> io::Result<u32> {
        Ok(self.registered.fetch_add(1, Relaxed) as u32)
    }

    fn unregister(&self, _: u32) {
        self.registered.fetch_sub(1, Relaxed);
        self.ended.iter().for_each(|ended| ended());
    }

    fn invalidate_node(&self, _: NodeId, offset: i64, length: i64) -> io::Result<()> {
        self.dropped.fetch_add(1, Relaxed);
        self.drops.iter().for_each(|drops| drops((offset, length)));
        Ok(())
    }

    fn invalidate_name(&self, _: NodeId, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn envoy(&self) -> io::Result<Box<dyn Envoy>> {
        Ok(Box::new(TestEnvoy { answer: self.answer.clone(), takes: self.takes, envoys: self.envoys.clone() }))
    }

    fn passthrough(&self) -> bool {
        true
    }

    fn device(&self) -> Option<(u32, u32)> {
        None
    }
}

struct TestEnvoy {
    answer: Arc<AtomicI32>,
    takes: Duration,
    envoys: Arc<Envoys>,
}

impl Envoy for TestEnvoy {
    fn process(&self) -> i32 {
        1
    }

    fn refresh(&mut self, _: NodeId, _: u32) -> io::Result<()> {
        let now = self.envoys.now.fetch_add(1, Relaxed) + 1;
        self.envoys.most.fetch_max(now, Relaxed);
        std::thread::sleep(self.takes);
        self.envoys.now.fetch_sub(1, Relaxed);
        self.envoys.refreshed.fetch_add(1, Relaxed);
        match self.answer.load(Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn look(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn unnamed(&mut self) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }

    fn write(&mut self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}
