//! `clear_refs` and `smaps_rollup`: works on every kernel, for every user on their own processes.

use super::{IdleRange, Request, Sampler};
use crate::PAGE;
use crate::control::Sample;
use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::system::processes;
use crate::system::smaps::{self, Rollup};
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

/// KiB in a page.
const PAGE_KIB: u64 = PAGE / 1024;

/// Smaller idle mappings are not worth a system call.
const WORTH_EVICTING_KIB: u64 = 256;

/// What is remembered of a process between readings.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// When it started: another start means another process with the same number.
    started: u64,
    /// Referenced pages at the last reading in this window.
    referenced: u64,
    /// Resident and swapped pages at the last reading.
    virtual_pages: u64,
    /// The same when the window began; none for processes that came later.
    at_first: u64,
    /// CPU time at the last reading, in ticks.
    ticks: u64,
}

/// The sampler.
#[derive(Debug, Default)]
pub struct ClearRefs {
    seen: HashMap<i32, Seen>,
    footprint: Footprint,
    /// Ranges that were idle through the whole window before this one.
    idle_before: HashSet<(i32, u64)>,
    began: Duration,
    last: Duration,
}

/// One process's reading in pages, shared pages divided among those who share them.
struct Reading {
    referenced: u64,
    watched: u64,
    virtual_pages: u64,
}

impl Reading {
    /// Opaque processes share libraries with each other: counted in full for each, a desktop's
    /// hundred processes would seem to need many times what is there. So each counts with its share;
    /// which of its pages were referenced is not told, and private ones are taken first: no page that
    /// is used by one process alone is ever counted as less than a page. What is shared with
    /// contributed processes and charged to opaque ones is in "used but not watched", which is all kept.
    fn of(rollup: Rollup) -> Self {
        Self {
            referenced: rollup.referenced.min(rollup.pss) / PAGE_KIB,
            watched: rollup.pss / PAGE_KIB,
            virtual_pages: (rollup.pss + rollup.swap) / PAGE_KIB,
        }
    }
}

/// A process may end at any time, and some hide even from root; that is no failure of the sampler.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::EACCES | libc::EPERM))
}

impl Sampler for ClearRefs {
    fn name(&self) -> &'static str {
        "clear_refs + smaps_rollup"
    }

    fn begin_window(&mut self, request: &Request) -> Result<()> {
        let first = self.seen.is_empty();
        let idle = if first { Vec::new() } else { idle(&request.pids) };
        self.idle_before = idle.iter().map(|range| (range.pid, range.start)).collect();
        let mut seen = HashMap::with_capacity(request.pids.len());
        for &pid in &request.pids {
            match Rollup::read(pid).and_then(|rollup| smaps::clear_refs(pid).map(|()| rollup)) {
                Ok(rollup) => {
                    let (started, ticks) =
                        (processes::started(pid).unwrap_or(0), processes::cpu_ticks(pid).unwrap_or(0));
                    let virtual_pages = Reading::of(rollup).virtual_pages;
                    seen.insert(pid, Seen { started, referenced: 0, virtual_pages, at_first: virtual_pages, ticks });
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(Error::io("clearing", format!("/proc/{pid}/clear_refs"))(error)),
            }
        }
        self.seen = seen;
        self.footprint = Footprint::default();
        (self.began, self.last) = (request.now, request.now);
        Ok(())
    }

    fn sample(&mut self, request: &Request) -> Result<Sample> {
        let (mut referenced, mut older, mut watched, mut existing) = (0, 0, 0, 0);
        let (mut hits, mut ticks) = (0, 0);
        let mut alive = HashMap::with_capacity(request.pids.len());
        for &pid in &request.pids {
            let rollup = match Rollup::read(pid) {
                Ok(rollup) => rollup,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(Error::io("reading", format!("/proc/{pid}/smaps_rollup"))(error)),
            };
            let reading = Reading::of(rollup);
            let started = processes::started(pid).unwrap_or(0);
            let cpu = processes::cpu_ticks(pid).unwrap_or(0);
            let before = self.seen.get(&pid).copied().filter(|seen| seen.started == started).unwrap_or_default();
            let allocated = reading.virtual_pages.saturating_sub(before.virtual_pages);
            hits += reading.referenced.saturating_sub(before.referenced).saturating_sub(allocated);
            ticks += if before.started == 0 { 0 } else { cpu.saturating_sub(before.ticks) };
            referenced += reading.referenced;
            older += reading.referenced.saturating_sub(reading.virtual_pages.saturating_sub(before.at_first));
            watched += reading.watched;
            let virtual_pages = reading.virtual_pages;
            existing += virtual_pages;
            let seen = Seen { started, referenced: reading.referenced, virtual_pages, ticks: cpu, ..before };
            alive.insert(pid, seen);
        }
        self.seen = alive;
        let window = request.now.saturating_sub(self.began);
        let elapsed = request.now.saturating_sub(self.last).as_secs_f64().max(1e-3);
        self.last = request.now;
        self.footprint.push(window.as_secs_f64(), older, hits);
        Ok(Sample {
            histogram: self.footprint.histogram(&request.shape),
            beyond_noise: self.footprint.hits_beyond(request.noise_position),
            referenced: Some(referenced),
            busy: Some(ticks as f64 / 100.0 / elapsed),
            watched,
            cache_watched: false,
            existing,
            window,
        })
    }

    /// Idle in this window and through the one before: this one alone may have just begun.
    fn idle_ranges(&mut self, pids: &[i32]) -> Vec<IdleRange> {
        idle(pids).into_iter().filter(|range| self.idle_before.contains(&(range.pid, range.start))).collect()
    }
}

/// Private anonymous mappings of which nothing was referenced since the bits were cleared.
fn idle(pids: &[i32]) -> Vec<IdleRange> {
    let mut ranges = Vec::new();
    for &pid in pids {
        // A process may end while it is read.
        let Ok(mappings) = smaps::anonymous_mappings(pid) else { continue };
        let idle = mappings.into_iter().filter(|mapping| mapping.referenced == 0 && mapping.rss >= WORTH_EVICTING_KIB);
        ranges.extend(idle.map(|mapping| IdleRange { pid, start: mapping.start, bytes: mapping.bytes }));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the referenced pages were scaled down by the share of what is shared, so a working
    /// set beside a large shared library seemed some percent smaller than it is, and was evicted from.
    #[test]
    fn private_pages_in_use_count_in_full_beside_shared_ones() {
        let rollup = Rollup { rss: 400_000, pss: 380_000, referenced: 360_000, swap: 8_000 };
        let reading = Reading::of(rollup);
        assert_eq!((reading.referenced, reading.watched, reading.virtual_pages), (90_000, 95_000, 97_000));
        let all = Reading::of(Rollup { referenced: 400_000, ..rollup });
        assert_eq!(all.referenced, all.watched, "and never more than there is");
    }
}
