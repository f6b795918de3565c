//! The idle-page bitmap: per physical page, for root, on kernels with idle page tracking.

use super::chosen::{Chosen, VirtualPage};
use super::physical::{FLAGS, Physical, frame};
use super::{Request, Sampler};
use crate::PAGE;
use crate::control::Sample;
use crate::error::Result;
use crate::histogram::Histogram;
use crate::lru::LruQueue;
use crate::system::smaps::Rollup;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The sampler: a true LRU queue over a sample of virtual pages.
#[derive(Debug)]
pub struct IdleBitmap {
    physical: Physical,
    queue: LruQueue<VirtualPage>,
    chosen: Chosen,
    /// Pages that were marked idle once: of the others nobody knows when they were used.
    marked: HashSet<VirtualPage>,
    histogram: Option<Histogram>,
    began: Duration,
}

impl IdleBitmap {
    /// Opens the bitmap.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            physical: Physical::open(path, Path::new(FLAGS))?,
            queue: LruQueue::default(),
            chosen: Chosen::none(),
            marked: HashSet::new(),
            histogram: None,
            began: Duration::ZERO,
        })
    }

    /// The first frames of the folios that the sampled pages lie in now.
    fn folios(&mut self) -> Vec<Option<u64>> {
        let mut open: Option<(i32, File)> = None;
        let (sampled, physical) = (&self.chosen.pages, &mut self.physical);
        let folio = |&(pid, page): &VirtualPage| {
            if open.as_ref().is_none_or(|(of, _)| *of != pid) {
                open = File::open(format!("/proc/{pid}/pagemap")).ok().map(|file| (pid, file));
            }
            physical.folio(frame(&open.as_ref()?.1, page)?)
        };
        sampled.iter().map(folio).collect()
    }

    /// Goes over the sampled pages; those that were used move to the front of the queue. Asking takes the mark of use away,
    /// so each word is asked for once, and pages of one folio, which share a bit, are told the same.
    fn walk(&mut self, histogram: &mut Histogram) -> Result<()> {
        let folios = self.folios();
        let mut words: HashMap<u64, u64> = HashMap::new();
        for folio in folios.iter().flatten() {
            *words.entry(folio / 64).or_default() |= 1 << (folio % 64);
        }
        for (word, bits) in &mut words {
            *bits = self.physical.used(*word, *bits)?;
        }
        let used = |folio: &u64| words.get(&(folio / 64)).is_some_and(|bits| bits >> (folio % 64) & 1 == 1);
        for (&page, _) in self.chosen.pages.iter().zip(&folios).filter(|(_, folio)| folio.as_ref().is_some_and(used)) {
            // What is seen for the first time takes no place in the queue: in the order of addresses, pages in use would stand
            // behind all that was touched once.
            if !self.marked.insert(page)
                && let Some(position) = self.queue.access(page)
            {
                histogram.add(position * self.chosen.one_in, self.chosen.one_in as f64);
            }
        }
        Ok(())
    }
}

impl Sampler for IdleBitmap {
    fn name(&self) -> &'static str {
        "idle-page bitmap"
    }

    fn begin_window(&mut self, request: &Request) -> Result<()> {
        self.physical.forget();
        let chosen = Chosen::among(&request.pids, &self.marked);
        if chosen.one_in != self.chosen.one_in {
            self.queue = LruQueue::default();
            self.marked.clear();
        }
        self.chosen = chosen;
        // What was unmapped, or went with its process, is in nobody's way any more.
        let pages: HashSet<VirtualPage> = self.chosen.pages.iter().copied().collect();
        self.queue.retain(|page| pages.contains(page));
        self.marked.retain(|page| pages.contains(page));
        self.histogram = None;
        self.began = request.now;
        let mut ignored = request.shape.empty_like();
        self.walk(&mut ignored)
    }

    fn sample(&mut self, request: &Request) -> Result<Sample> {
        let mut histogram = self.histogram.take().unwrap_or_else(|| request.shape.empty_like());
        self.walk(&mut histogram)?;
        self.histogram = Some(histogram.clone());
        // Anew each time: the window is four periods long, and what was started since, or has ended, is neither free nor unwatched.
        // What several share counts with each one's share. A process may end at any time, and some hide even from root.
        let (watched, existing) = request
            .pids
            .iter()
            .filter_map(|&pid| Rollup::read(pid).ok())
            .map(|rollup| (rollup.pss * 1024 / PAGE, (rollup.pss + rollup.swap) * 1024 / PAGE))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Ok(Sample {
            beyond_noise: histogram.misses_in(request.noise_position) as u64,
            histogram,
            referenced: None,
            busy: None,
            watched,
            cache_watched: false,
            existing,
            window: request.now.saturating_sub(self.began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    /// Regression: how much there is was looked at once a window, and libraries counted with each process that uses them.
    #[test]
    fn what_comes_and_goes_within_a_window_is_seen() {
        if File::open(FLAGS).is_err() {
            eprintln!("skipped: only root sees the flags of pages");
            return;
        }
        let bitmap = tempfile::NamedTempFile::new().unwrap();
        let mut sampler = IdleBitmap::open(bitmap.path()).unwrap();
        let script = "read go; exec dd if=/dev/zero bs=64M count=1";
        let mut child = Command::new("sh");
        // Nobody reads: it fills its buffer, and stays.
        let child = child.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let request = Request {
            pids: vec![child.id() as i32],
            shape: Histogram::for_memory(1 << 20),
            noise_position: 0,
            period: Duration::from_secs(60),
            idle_cpus: 0.05,
            now: Duration::ZERO,
        };
        sampler.begin_window(&request).unwrap();
        let mut mib = || {
            let sample = sampler.sample(&request).unwrap();
            (sample.watched >> 8, sample.existing >> 8)
        };
        let before = mib();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let mut with = mib();
        while with.1 < 64 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            with = mib();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(before.0 < 16 && (64..80).contains(&with.1) && mib() == (0, 0), "{before:?} {with:?}");
    }
}
