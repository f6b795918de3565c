//! `simulate`: exact LRU stack distances of a trace against what the controller makes of it, and what
//! it would have lent out and cost.

mod machine;
mod trace;

pub use machine::{Machine, Scene, Second};
pub use trace::{Access, parse};

use crate::control::{Config, opaque_need};
use crate::histogram::Histogram;
use crate::lru::LruQueue;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Accesses in the trace.
    pub accesses: u64,
    /// Distinct pages.
    pub pages: u64,
    /// Memory opaque work needs by exact stack distances.
    pub exact_need_pages: u64,
    /// The same by the sampled estimate; `None` if the trace never primed the histogram.
    pub estimated_need_pages: Option<u64>,
    /// `(memory in pages, exact share of accesses that miss, estimated share)`.
    pub curve: Vec<(u64, f64, f64)>,
    /// Beside a process that wants all memory: pages lent to it on average.
    pub lent_pages: u64,
    /// Opaque accesses that missed, with that process and without it.
    pub misses_beside: u64,
    /// Without.
    pub misses_alone: u64,
}

/// Runs a trace through an exact LRU queue, and through the controller on a model of a machine of
/// `total_pages`, alone and beside a process that wants all of it.
pub fn run(trace: &[Access], config: &Config, total_pages: u64) -> Outcome {
    let shape = Histogram::for_memory(total_pages);
    let exact = exact(trace, &shape);
    let mut alone = Machine::new(config.clone(), total_pages);
    let misses = |seconds: &[Second]| seconds.iter().map(|second| second.misses).sum();
    let misses_alone = misses(&alone.run(trace, &Scene::default()));
    let beside = Scene { wanted: total_pages, ..Scene::default() };
    let seconds = Machine::new(config.clone(), total_pages).run(trace, &beside);
    let estimate = alone.controller().histogram();
    let share = |histogram: &Histogram, pages| histogram.misses_in(pages) / histogram.total().max(f64::MIN_POSITIVE);
    let pages: HashSet<u64> = trace.iter().map(|access| access.page).collect();
    Outcome {
        accesses: trace.len() as u64,
        pages: pages.len() as u64,
        exact_need_pages: opaque_need(config, &exact, total_pages),
        estimated_need_pages: (estimate.total() > 0.0).then(|| opaque_need(config, estimate, total_pages)),
        curve: (0..=40)
            .map(|step| total_pages * step / 40)
            .map(|pages| (pages, share(&exact, pages), share(estimate, pages)))
            .collect(),
        lent_pages: seconds.iter().map(|second| second.contributed).sum::<u64>() / (seconds.len() as u64).max(1),
        misses_beside: misses(&seconds),
        misses_alone,
    }
}

/// Exact stack distances. First accesses are no hits anywhere and are left out, as in the paper's
/// queue of pages that exist.
pub fn exact(trace: &[Access], shape: &Histogram) -> Histogram {
    let mut histogram = shape.empty_like();
    let mut queue = LruQueue::default();
    for access in trace {
        if let Some(position) = queue.access(access.page) {
            histogram.add(position, 1.0);
        }
    }
    histogram
}

#[cfg(test)]
mod tests;
