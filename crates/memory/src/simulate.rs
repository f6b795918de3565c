//! `simulate`: exact LRU stack distances of a trace against what the sampled estimate makes of it.

use crate::control::{Config, opaque_need};
use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::histogram::Histogram;
use crate::lru::LruQueue;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// One access of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Seconds since the trace's start; never decreasing.
    pub at_s: f64,
    /// Page number.
    pub page: u64,
}

/// Reads a trace: a line of `seconds page` per access; `#` starts a comment. Page numbers may be
/// decimal or `0x…`.
pub fn parse(text: &str) -> Result<Vec<Access>> {
    let mut trace: Vec<Access> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let page = |word: &str| match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        let parsed =
            match (words.next().and_then(|word| word.parse::<f64>().ok()), words.next().and_then(page), words.next()) {
                (Some(at_s), Some(page), None) if at_s.is_finite() && at_s >= 0.0 => Access { at_s, page },
                _ => return Err(Error::Invalid(format!("line {}: '{line}' is not 'seconds page'", index + 1))),
            };
        if trace.last().is_some_and(|last| last.at_s > parsed.at_s) {
            return Err(Error::Invalid(format!("line {}: time goes backwards", index + 1)));
        }
        trace.push(parsed);
    }
    if trace.is_empty() { Err(Error::Invalid("the trace has no accesses".into())) } else { Ok(trace) }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Accesses in the trace.
    pub accesses: u64,
    /// Distinct pages.
    pub pages: u64,
    /// Memory opaque work needs by exact stack distances.
    pub exact_need_pages: u64,
    /// The same by the sampled estimate.
    pub estimated_need_pages: u64,
    /// `(memory in pages, exact share of accesses that miss, estimated share)`.
    pub curve: Vec<(u64, f64, f64)>,
}

/// Runs a trace through an exact LRU queue and through the sampler's arithmetic, in windows of
/// `window_s` seconds, on a machine of `total_pages`.
pub fn run(trace: &[Access], config: &Config, total_pages: u64, window_s: f64) -> Outcome {
    let shape = Histogram::for_memory(total_pages);
    let exact = exact(trace, &shape);
    let estimate = estimate(trace, &shape, window_s, config.alpha);
    let share = |histogram: &Histogram, pages| histogram.misses_in(pages) / histogram.total().max(f64::MIN_POSITIVE);
    let pages: HashSet<u64> = trace.iter().map(|access| access.page).collect();
    Outcome {
        accesses: trace.len() as u64,
        pages: pages.len() as u64,
        exact_need_pages: opaque_need(config, &exact, total_pages),
        estimated_need_pages: opaque_need(config, &estimate, total_pages),
        curve: (0..=40)
            .map(|step| total_pages * step / 40)
            .map(|pages| (pages, share(&exact, pages), share(&estimate, pages)))
            .collect(),
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

/// What the sampler and the ageing make of the trace: reference bits cleared at the start of every
/// window, distinct pages counted at growing distances, windows averaged.
pub fn estimate(trace: &[Access], shape: &Histogram, window_s: f64, alpha: f64) -> Histogram {
    let mut permanent = shape.empty_like();
    let mut known: HashSet<u64> = HashSet::new();
    let mut rest = trace;
    let mut start = trace.first().map_or(0.0, |access| access.at_s);
    while let Some(first) = rest.first() {
        // Windows in which nothing happens are skipped, as the noise filter skips them.
        if first.at_s >= start + window_s {
            start += ((first.at_s - start) / window_s).floor() * window_s;
        }
        let cut = rest.partition_point(|access| access.at_s < start + window_s);
        let (window, later) = rest.split_at(cut);
        let mut temporary = footprint(window, start, window_s, &mut known).histogram(shape);
        temporary.normalise();
        if temporary.total() > 0.0 {
            permanent.age(&temporary, alpha);
        }
        (rest, start) = (later, start + window_s);
    }
    permanent
}

fn footprint(window: &[Access], start: f64, window_s: f64, known: &mut HashSet<u64>) -> Footprint {
    let mut footprint = Footprint::default();
    let mut referenced: HashSet<u64> = HashSet::new();
    let mut hits = 0;
    let mut due = 0.1;
    for access in window {
        while access.at_s - start >= due && due < window_s {
            footprint.push(due, referenced.len() as u64, std::mem::take(&mut hits));
            due = (due * 1.25).max(due + 0.1);
        }
        if referenced.insert(access.page) && !known.insert(access.page) {
            hits += 1;
        }
    }
    footprint.push(window_s.max(due), referenced.len() as u64, hits);
    footprint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_with_errors_are_refused_by_line() {
        assert!(parse("0 1\n1 0x10 # hex\n").is_ok());
        for (bad, line) in
            [("0 1\nx 2\n", "line 2"), ("1 1\n0 1\n", "line 2"), ("0\n", "line 1"), ("0 1 2\n", "line 1")]
        {
            assert!(parse(bad).unwrap_err().to_string().contains(line), "{bad}");
        }
        assert!(parse("# nothing\n").unwrap_err().to_string().contains("no accesses"));
    }

    #[test]
    fn a_loop_needs_what_it_loops_over() {
        let trace: Vec<_> = (0..60_000u64).map(|i| Access { at_s: i as f64 / 1000.0, page: i % 3000 }).collect();
        let outcome = run(&trace, &Config::default(), 10_000, 20.0);
        assert!((2990..=3020).contains(&outcome.exact_need_pages), "{outcome:?}");
        assert!((2990..=3200).contains(&outcome.estimated_need_pages), "{}", outcome.estimated_need_pages);
    }
}
