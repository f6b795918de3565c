//! Samplers: what tells which opaque pages are referenced. One trait, three ways.

mod chosen;
mod clear_refs;
mod idle_bitmap;
mod losses;
mod lru_gen;
mod physical;
mod probe;
mod vectors;
mod worker;

pub use clear_refs::ClearRefs;
pub use idle_bitmap::IdleBitmap;
pub use lru_gen::LruGen;
pub use probe::{Candidate, Choice, choose};
pub use worker::Worker;

use crate::control::Sample;
use crate::error::Result;
use crate::histogram::Histogram;
use std::time::Duration;

/// A range of a process's memory that was not referenced in the whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleRange {
    /// The process.
    pub pid: i32,
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// What a sampler is asked for: which processes, in which shape, and when.
#[derive(Clone, Debug)]
pub struct Request {
    /// Opaque processes.
    pub pids: Vec<i32>,
    /// The shape of the histogram wanted.
    pub shape: Histogram,
    /// LRU position up to which accesses are noise.
    pub noise_position: u64,
    /// Length of a period now.
    pub period: Duration,
    /// Opaque processes that use fewer CPUs than this are idle.
    pub idle_cpus: f64,
    /// Now.
    pub now: Duration,
}

/// One way of sampling page references.
pub trait Sampler: Send {
    /// Its name, for `status`.
    fn name(&self) -> &'static str;

    /// Forgets what was referenced: a new window begins.
    fn begin_window(&mut self, request: &Request) -> Result<()>;

    /// What was referenced since the window began.
    fn sample(&mut self, request: &Request) -> Result<Sample>;

    /// Ranges known to be idle, for eviction; empty where a sampler cannot tell ranges.
    fn idle_ranges(&mut self, _pids: &[i32]) -> Vec<IdleRange> {
        Vec::new()
    }
}
