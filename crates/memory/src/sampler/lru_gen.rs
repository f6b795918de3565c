//! Multi-generational LRU through debugfs: the kernel's own ages, per control group.
//!
//! The kernel keeps four generations and evicts from the oldest; each ageing asked for opens a new one and merges the two
//! oldest. So a generation must last: aged at every sample, or while nobody works, all pages would soon be in the oldest, and
//! what is evicted be chosen blindly.

use super::{Request, Sampler};
use crate::PAGE;
use crate::control::Sample;
use crate::error::{Error, Result};
use crate::generations::{Generation, accesses};
use crate::histogram::Histogram;
use crate::system::{keyed, place, processes, read, read_number, write};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `_SC_CLK_TCK`, the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// Ageings in a period: with the kernel's four generations, the oldest then holds what was not used for a period.
const STEPS: u32 = 3;

/// One control group on one memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The kernel's number of the group.
    pub memcg: u64,
    /// Its path in the hierarchy.
    pub path: String,
    /// Memory node.
    pub node: u64,
    /// Age classes, youngest first.
    pub generations: Vec<Generation>,
}

/// Reads debugfs' `lru_gen`.
pub fn parse(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let mut group = (0, String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["memcg", id, path @ ..] => group = (id.parse().unwrap_or(0), path.join(" ")),
            ["node", node] => vectors.push(Vector {
                memcg: group.0,
                path: group.1.clone(),
                node: node.parse().unwrap_or(0),
                generations: Vec::new(),
            }),
            [sequence, _age, anonymous, file, ..] => {
                let number = |word: &str| word.parse::<i64>().unwrap_or(0).max(0) as u64;
                if let (Ok(sequence), Some(vector)) = (sequence.parse(), vectors.last_mut()) {
                    vector.generations.insert(0, Generation { sequence, pages: number(anonymous) + number(file) });
                }
            }
            _ => {}
        }
    }
    vectors
}

/// The sampler.
#[derive(Debug)]
pub struct LruGen {
    file: PathBuf,
    hierarchy: PathBuf,
    /// Groups at or below this path are watched, except those below `without`.
    within: String,
    without: String,
    before: HashMap<(u64, u64), (Vec<Generation>, Losses)>,
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

/// Counters of a group, to tell eviction from access.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    stolen: u64,
    refaulted: u64,
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
            let path = vector.path.trim_end_matches('/');
            below(path, &self.within) && !below(path, &self.without) && !vector.generations.is_empty()
        };
        Ok(parse(&read(&self.file)?).into_iter().filter(watched).collect())
    }

    fn losses(&self, vector: &Vector) -> Losses {
        let file = self.hierarchy.join(vector.path.trim_start_matches('/')).join("memory.stat");
        let text = read(file).or_else(|_| read("/proc/vmstat")).unwrap_or_default();
        let stolen = ["pgsteal ", "pgsteal_kswapd ", "pgsteal_direct "].map(|key| keyed(&text, key));
        Losses {
            stolen: if stolen[0] > 0 { stolen[0] } else { stolen[1] + stolen[2] },
            refaulted: crate::system::stat::refaults(&text, ""),
        }
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
        Ok(self.vectors()?.iter().flat_map(|vector| &vector.generations).map(|generation| generation.pages).sum())
    }

    /// Ages all groups, and adds to the histogram what was accessed since the last time.
    fn step(&mut self, request: &Request) -> Result<()> {
        (self.stepped, self.used) = (Some(request.now), 0);
        for vector in self.vectors()? {
            self.age(&vector)?;
        }
        let mut histogram = self.histogram.take().unwrap_or_else(|| request.shape.empty_like());
        let mut now = HashMap::new();
        for vector in self.vectors()? {
            let losses = self.losses(&vector);
            let key = (vector.memcg, vector.node);
            let youngest = vector.generations.first().map_or(0, |generation| generation.sequence);
            let first = *self.first.entry(key).or_insert(youngest);
            if let Some((before, old)) = self.before.get(&key) {
                let lost = losses.stolen.saturating_sub(old.stolen);
                let revived = losses.refaulted.saturating_sub(old.refaulted);
                let counted = accesses(&mut histogram, before, &vector.generations, lost, revived, first);
                // What was accessed and is in no older class was accessed at the head.
                let touched = vector.generations.iter().skip(1).map(|generation| generation.pages).next().unwrap_or(0);
                histogram.add(0, touched.saturating_sub(counted) as f64);
            }
            now.insert(key, (vector.generations, losses));
        }
        self.first.retain(|key, _| now.contains_key(key));
        self.before = now;
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
            existing: watched + self.swapped(),
            window: request.now.saturating_sub(self.began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debugfs_text_is_read_youngest_first() {
        let text = "memcg     1 /\n node     0\n          0       2000        100          7 \n          1       1000         50         -3 \n\
                    memcg     8 /user slice/x\n node     0\n          4       1000         50          3 \n";
        let vectors = parse(text);
        assert_eq!(vectors.len(), 2);
        assert_eq!(
            vectors[0].generations,
            [Generation { sequence: 1, pages: 50 }, Generation { sequence: 0, pages: 107 }]
        );
        assert_eq!((vectors[1].memcg, vectors[1].path.as_str()), (8, "/user slice/x"));
    }
}
