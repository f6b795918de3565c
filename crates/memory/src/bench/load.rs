//! Loads for the bench: a user at work or away, and a renderer-like hog.

use crate::PAGE;
use crate::error::{Error, Result};
use crate::system::processes;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Pages touched by one operation of the user's application: one click's worth, 2 MiB.
const PAGES_PER_OPERATION: usize = 512;

/// Operations a second of a user at work.
const OPERATIONS_PER_S: u32 = 20;

/// One second of the user's application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Major faults: pages that had to be read.
    pub faults: u64,
    /// Operations done.
    pub operations: u64,
    /// Time spent in operations, in microseconds.
    pub busy_us: u64,
    /// The slowest operation, in microseconds.
    pub slowest_us: u64,
}

/// Bins of LRU positions in figure 3.
pub const BINS: usize = 20;

/// What the user's application prints: a line of JSON each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A second went by.
    Second(Second),
    /// The answer to `where`: which of its pages are not resident.
    Evicted {
        /// Evicted pages by LRU position, most recently used twentieth first.
        evicted: Vec<u64>,
    },
}

/// Memory whose every page is different and resident.
struct Block {
    bytes: Vec<u8>,
    /// When each page was touched last, counted in touches.
    touched: Vec<u32>,
}

impl Block {
    fn new(size: u64) -> Self {
        let mut block = Self::empty(size);
        for page in 0..block.pages() {
            block.touch(page, page as u64 | 1, 0);
        }
        block
    }

    fn empty(size: u64) -> Self {
        let pages = (size / PAGE) as usize;
        Self { bytes: vec![0; pages * PAGE as usize], touched: vec![0; pages] }
    }

    fn pages(&self) -> usize {
        self.bytes.len() / PAGE as usize
    }

    fn touch(&mut self, page: usize, value: u64, when: u32) -> u64 {
        if let Some(touched) = self.touched.get_mut(page) {
            *touched = when;
        }
        let at = page * PAGE as usize;
        let Some(slot) = self.bytes.get_mut(at..at + 8) else { return 0 };
        let before = slot.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        slot.copy_from_slice(&value.to_le_bytes());
        before
    }

    /// `(last touch, whether resident)` of each page, by this process's own page map.
    fn residence(&self) -> Vec<(u32, bool)> {
        let first = (self.bytes.as_ptr() as u64).div_ceil(PAGE);
        let mut entries = vec![0; 8 * self.pages()];
        let read = File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut entries, 8 * first));
        // Bit 63 of an entry: present. An unreadable map shows nothing as evicted.
        let present =
            entries.chunks_exact(8).map(|entry| read.is_err() || entry.last().is_some_and(|byte| byte & 0x80 != 0));
        self.touched.iter().copied().zip(present).collect()
    }
}

/// Where in the LRU queue the evicted pages stood: counts by twentieth, most recently used first.
fn evicted_by_position(mut pages: Vec<(u32, bool)>) -> Vec<u64> {
    pages.sort_by_key(|(touched, _)| std::cmp::Reverse(*touched));
    let mut bins = vec![0; BINS];
    for (position, (_, resident)) in pages.iter().enumerate() {
        if let Some(bin) = bins.get_mut(position * BINS / pages.len()) {
            *bin += u64::from(!resident);
        }
    }
    bins
}

fn print(line: &Line) -> Result<bool> {
    let text = serde_json::to_string(line).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(writeln!(std::io::stdout(), "{text}").is_ok())
}

/// Some arithmetic that the compiler keeps: about 10 µs.
fn compute(seed: u64) -> u64 {
    (0..4000)
        .fold(seed | 1, |value, _| std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
}

const REST: u8 = 0;
const WORK: u8 = 1;
const END: u8 = 2;
const WHERE: u8 = 3;

/// The user's application: holds `cold` bytes it touched once, and works on `working_set`: three quarters
/// of each operation sweep over it in order, the rest goes to its first fifth at random. Obeys lines
/// `work`, `rest`, `where` and the end of input; prints a [`Line`] each second, and as answer.
pub fn user(working_set: u64, cold: u64) -> Result<()> {
    let cold = Block::new(cold);
    let mut memory = Block::new(working_set.max(PAGE));
    let state: &'static AtomicU8 = Box::leak(Box::new(AtomicU8::new(REST)));
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            let wanted = match line.trim() {
                "work" => WORK,
                "where" => WHERE,
                _ => REST,
            };
            state.store(wanted, Ordering::Relaxed);
        }
        state.store(END, Ordering::Relaxed);
    });
    let me = std::process::id() as i32;
    let (mut sweep, mut random) = (0, 0x9e37_79b9_7f4a_7c15u64);
    let mut touches = 0u32;
    let mut faults_before = processes::major_faults(me).unwrap_or(0);
    while state.load(Ordering::Relaxed) != END {
        if state.compare_exchange(WHERE, REST, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let pages = [cold.residence(), memory.residence()].concat();
            print(&Line::Evicted { evicted: evicted_by_position(pages) })?;
        }
        let began = Instant::now();
        let mut second = Second::default();
        for tick in 0..OPERATIONS_PER_S {
            let due = began + Duration::from_secs(1) * tick / OPERATIONS_PER_S;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // Behind by a second or more: what was not done is lost, as with a person.
            if state.load(Ordering::Relaxed) != WORK || began.elapsed() > Duration::from_secs(1) {
                continue;
            }
            let start = Instant::now();
            for step in 0..PAGES_PER_OPERATION {
                let page = if step % 4 != 0 {
                    sweep = (sweep + 1) % memory.pages();
                    sweep
                } else {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) as usize % (memory.pages() / 5).max(1)
                };
                touches += 1;
                let value = memory.touch(page, random, touches);
                std::hint::black_box(compute(value));
            }
            let took = start.elapsed().as_micros() as u64;
            second.operations += 1;
            second.busy_us += took;
            second.slowest_us = second.slowest_us.max(took);
        }
        std::thread::sleep((began + Duration::from_secs(1)).saturating_duration_since(Instant::now()));
        let faults = processes::major_faults(me).unwrap_or(0);
        second.faults = faults - faults_before;
        faults_before = faults;
        if !print(&Line::Second(second))? {
            break;
        }
    }
    std::hint::black_box(cold.bytes.first());
    Ok(())
}

/// A renderer: fills `size` bytes scene by scene, and reads and writes it at random without end.
pub fn hog(size: u64) {
    let mut scene = Block::empty(size);
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut loaded = 0;
    loop {
        for _ in 0..64 {
            if loaded < scene.pages() {
                scene.touch(loaded, random | 1, 0);
                loaded += 1;
            }
        }
        for _ in 0..16 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (random >> 33) as usize % loaded.max(1);
            let value = scene.touch(page, random, 0);
            std::hint::black_box(compute(value));
        }
        // The hogs of all boxes together would otherwise be what the users wait for: not memory, CPU.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_pages_are_counted_by_lru_position() {
        // A hundred pages, the higher the later touched; the ten oldest and the very newest are gone.
        let pages = (0..100u32).map(|page| (page, page >= 10 && page != 99)).collect();
        let bins = evicted_by_position(pages);
        assert_eq!((bins[0], bins[18], bins[19]), (1, 5, 5));
        assert_eq!(bins.iter().sum::<u64>(), 11);
    }

    #[test]
    fn what_is_resident_is_told_from_what_is_not() {
        let block = Block::new(64 * PAGE);
        assert!(block.residence().iter().any(|(_, resident)| *resident));
        let untouched = Block::empty(64 << 20);
        assert!(untouched.residence().iter().any(|(_, resident)| !*resident));
    }
}
