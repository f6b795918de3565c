//! Multi-generational LRU through debugfs: the kernel's own ages, per control group.

use super::{Request, Sampler};
use crate::PAGE;
use crate::control::Sample;
use crate::error::{Error, Result};
use crate::generations::{Generation, accesses};
use crate::histogram::Histogram;
use crate::system::{keyed, place, read, read_number, write};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    histogram: Option<Histogram>,
    began: Duration,
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
            histogram: None,
            began: Duration::ZERO,
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

    /// Ages all groups, and adds to the histogram what was accessed since the last time.
    fn step(&mut self, shape: &Histogram) -> Result<u64> {
        for vector in self.vectors()? {
            self.age(&vector)?;
        }
        let mut histogram = self.histogram.take().unwrap_or_else(|| shape.empty_like());
        let mut watched = 0;
        let mut now = HashMap::new();
        for vector in self.vectors()? {
            let losses = self.losses(&vector);
            let pages: u64 = vector.generations.iter().map(|generation| generation.pages).sum();
            watched += pages;
            if let Some((before, old)) = self.before.get(&(vector.memcg, vector.node)) {
                let lost = losses.stolen.saturating_sub(old.stolen);
                let revived = losses.refaulted.saturating_sub(old.refaulted);
                let counted = accesses(&mut histogram, before, &vector.generations, lost, revived);
                // What was accessed and is in no older class was accessed at the head.
                let touched = vector.generations.iter().skip(1).map(|generation| generation.pages).next().unwrap_or(0);
                histogram.add(0, touched.saturating_sub(counted) as f64);
            }
            now.insert((vector.memcg, vector.node), (vector.generations, losses));
        }
        self.before = now;
        self.histogram = Some(histogram);
        Ok(watched)
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
        self.step(&request.shape)?;
        self.histogram = None;
        self.began = request.now;
        Ok(())
    }

    fn sample(&mut self, request: &Request) -> Result<Sample> {
        let watched = self.step(&request.shape)?;
        let histogram = self.histogram.clone().unwrap_or_else(|| request.shape.empty_like());
        Ok(Sample {
            beyond_noise: histogram.misses_in(request.noise_position) as u64,
            histogram,
            referenced: None,
            busy: None,
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
