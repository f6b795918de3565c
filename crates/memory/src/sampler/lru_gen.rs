//! Multi-generational LRU through debugfs: the kernel's own ages, per control group.
//!
//! The kernel keeps four generations and evicts from the oldest; each ageing asked for opens a new one and merges the two
//! oldest. So a generation must last: aged at every sample, or while nobody works, all pages would soon be in the oldest, and
//! what is evicted be chosen blindly.

use super::losses::Losses;
use super::vectors::{Vector, parse};
use super::{Request, Sampler};
use crate::PAGE;
use crate::control::Sample;
use crate::error::{Error, Result};
use crate::generations::{Change, Generation, accesses};
use crate::histogram::Histogram;
use crate::sys;
use crate::system::{place, processes, read, read_number, write};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `_SC_CLK_TCK`, the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The kernel counts ages in ticks of its own, of up to 10 ms.
const ROUNDED_MS: u64 = 20;

/// Ageings in a period: with the kernel's four generations, the oldest then holds what was not used for a period.
const STEPS: u32 = 3;

/// The sampler.
#[derive(Debug)]
pub struct LruGen {
    file: PathBuf,
    hierarchy: PathBuf,
    /// Groups at or below this path are watched, except those below `without`.
    within: String,
    without: String,
    before: HashMap<(u64, u64), Vec<Generation>>,
    losses: Losses,
    /// The longest that it took to age all groups in turn, in milliseconds: their generations began up to so far apart.
    spread_ms: u64,
    /// The youngest generation of each group when it was first seen.
    first: HashMap<(u64, u64), u64>,
    histogram: Option<Histogram>,
    began: Duration,
    /// When the groups were aged last.
    stepped: Option<Duration>,
    /// CPU time of the opaque processes, with their start: at the last sample, and how much they used since the last ageing.
    ticks: HashMap<i32, (u64, u64)>,
    used: u64,
    last: Duration,
}

impl LruGen {
    /// A sampler on debugfs' file, of the groups of `hierarchy` at or below `within` except `without`.
    pub fn new(file: PathBuf, hierarchy: &Path, within: &Path, without: &Path) -> Result<Self> {
        if parse(&read(&file)?).iter().all(|vector| vector.generations.is_empty()) {
            return Err(Error::Invalid(format!("{} lists no generations: MGLRU is not enabled", file.display())));
        }
        let relative = |path: &Path| {
            let inner = path.strip_prefix(hierarchy).unwrap_or(Path::new(""));
            format!("/{}", inner.display()).trim_end_matches('/').to_owned()
        };
        Ok(Self {
            file,
            hierarchy: hierarchy.to_owned(),
            within: relative(within),
            without: relative(without),
            before: HashMap::new(),
            losses: Losses::default(),
            spread_ms: 0,
            first: HashMap::new(),
            histogram: None,
            began: Duration::ZERO,
            stepped: None,
            ticks: HashMap::new(),
            used: 0,
            last: Duration::ZERO,
        })
    }

    fn vectors(&self) -> Result<Vec<Vector>> {
        let below =
            |path: &str, top: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let watched = |vector: &Vector| {
            let path = vector.group();
            below(path, &self.within) && !below(path, &self.without) && !vector.generations.is_empty()
        };
        Ok(parse(&read(&self.file)?).into_iter().filter(watched).collect())
    }

    /// Makes the kernel walk page tables and open a new youngest generation.
    fn age(&self, vector: &Vector) -> Result<()> {
        let Some(youngest) = vector.generations.first() else { return Ok(()) };
        let command = format!("+ {} {} {} 1 1\n", vector.memcg, vector.node, youngest.sequence);
        match write(&self.file, &command) {
            // The kernel opened one by itself meanwhile, or the group is gone: the next round sees it.
            Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::ERANGE | libc::EAGAIN | libc::EINTR)) => {
                Ok(())
            }
            other => other,
        }
    }

    /// CPUs that opaque processes used since the last sample.
    fn busy(&mut self, request: &Request) -> f64 {
        let mut used = 0;
        let mut now = HashMap::with_capacity(request.pids.len());
        for &pid in &request.pids {
            let (Some(started), Some(ticks)) = (processes::started(pid), processes::cpu_ticks(pid)) else { continue };
            let before = self.ticks.get(&pid).filter(|(start, _)| *start == started).map_or(ticks, |(_, ticks)| *ticks);
            used += ticks.saturating_sub(before);
            now.insert(pid, (started, ticks));
        }
        self.ticks = now;
        self.used += used;
        let elapsed = request.now.saturating_sub(self.last).as_secs_f64().max(1e-3);
        self.last = request.now;
        used as f64 / TICKS_PER_S / elapsed
    }

    /// Whether it is time to age: somebody worked, and the youngest generation has lasted.
    fn is_due(&self, request: &Request) -> bool {
        let Some(stepped) = self.stepped else { return true };
        let since = request.now.saturating_sub(stepped);
        since >= request.period / STEPS && self.used as f64 / TICKS_PER_S >= request.idle_cpus * since.as_secs_f64()
    }

    /// Pages of the watched groups.
    fn watched(&self) -> Result<u64> {
        Ok(self.vectors()?.iter().map(Vector::pages).sum())
    }

    /// Ages all groups, and adds to the histogram what was accessed since the last time.
    fn step(&mut self, request: &Request) -> Result<()> {
        (self.stepped, self.used) = (Some(request.now), 0);
        let began = sys::monotonic();
        for vector in self.vectors()? {
            self.age(&vector)?;
        }
        let took = sys::monotonic().saturating_sub(began).as_millis() as u64;
        self.spread_ms = self.spread_ms.max(took + ROUNDED_MS);
        let vectors = self.vectors()?;
        let lost = self.losses.since(&self.hierarchy, &vectors, &self.without);
        for vector in &vectors {
            let youngest = vector.generations.first().map_or(0, |generation| generation.sequence);
            self.first.entry(vector.key()).or_insert(youngest);
        }
        let known = vectors.iter().zip(lost).filter_map(|(vector, (lost, revived))| {
            let before = self.before.get(&vector.key())?;
            let unsorted = self.first.get(&vector.key()).copied().unwrap_or(0);
            Some(Change { before, after: &vector.generations, lost, revived, unsorted })
        });
        let changes: Vec<Change> = known.collect();
        let mut histogram = self.histogram.take().unwrap_or_else(|| request.shape.empty_like());
        let counted = accesses(&mut histogram, &changes, self.spread_ms);
        for (change, counted) in changes.iter().zip(counted) {
            // What was accessed and is in no older class was accessed at the head.
            let touched = change.after.get(1).map_or(0, |generation| generation.pages);
            histogram.add(0, touched.saturating_sub(counted) as f64);
        }
        self.before = vectors.into_iter().map(|vector| (vector.key(), vector.generations)).collect();
        self.first.retain(|key, _| self.before.contains_key(key));
        self.histogram = Some(histogram);
        Ok(())
    }

    /// Pages of the watched groups that are swapped out; the file counts a group with all below it.
    fn swapped(&self) -> u64 {
        let of = |relative: &str| {
            read_number(self.hierarchy.join(relative.trim_start_matches('/')).join("memory.swap.current")).ok()
        };
        let all = of(&self.within).unwrap_or_else(place::swapped);
        all.saturating_sub(of(&self.without).unwrap_or(0)) / PAGE
    }
}

impl Sampler for LruGen {
    fn name(&self) -> &'static str {
        "MGLRU (debugfs lru_gen)"
    }

    fn begin_window(&mut self, request: &Request) -> Result<()> {
        self.busy(request);
        if self.is_due(request) {
            self.step(request)?;
        }
        self.histogram = None;
        self.began = request.now;
        Ok(())
    }

    fn sample(&mut self, request: &Request) -> Result<Sample> {
        let busy = self.busy(request);
        if self.is_due(request) {
            self.step(request)?;
        }
        let watched = self.watched()?;
        let histogram = self.histogram.clone().unwrap_or_else(|| request.shape.empty_like());
        Ok(Sample {
            beyond_noise: histogram.misses_in(request.noise_position) as u64,
            histogram,
            referenced: None,
            busy: Some(busy),
            watched,
            cache_watched: true,
            existing: watched + self.swapped(),
            window: request.now.saturating_sub(self.began),
        })
    }
}
