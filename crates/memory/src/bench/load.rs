//! Loads for the bench: a user at work or away, and a renderer-like hog.

use crate::PAGE;
use crate::error::{Error, Result};
use crate::system::processes;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
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

/// Memory whose every page is different and resident.
struct Block {
    bytes: Vec<u8>,
}

impl Block {
    fn new(size: u64) -> Self {
        let mut block = Self { bytes: vec![0; (size / PAGE * PAGE) as usize] };
        for page in 0..block.pages() {
            block.touch(page, page as u64 | 1);
        }
        block
    }

    fn pages(&self) -> usize {
        self.bytes.len() / PAGE as usize
    }

    fn touch(&mut self, page: usize, value: u64) -> u64 {
        let at = page * PAGE as usize;
        let Some(slot) = self.bytes.get_mut(at..at + 8) else { return 0 };
        let before = slot.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        slot.copy_from_slice(&value.to_le_bytes());
        before
    }
}

/// Some arithmetic that the compiler keeps: about 10 µs.
fn compute(seed: u64) -> u64 {
    (0..4000)
        .fold(seed | 1, |value, _| std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
}

const REST: u8 = 0;
const WORK: u8 = 1;
const END: u8 = 2;

/// The user's application: holds `cold` bytes it touched once, and works on `working_set`: three quarters
/// of each operation sweep over it in order, the rest goes to its first fifth at random. Obeys lines
/// `work`, `rest` and the end of input; prints a [`Second`] as JSON each second.
pub fn user(working_set: u64, cold: u64) -> Result<()> {
    let cold = Block::new(cold);
    let mut memory = Block::new(working_set.max(PAGE));
    let state: &'static AtomicU8 = Box::leak(Box::new(AtomicU8::new(REST)));
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            state.store(if line.trim() == "work" { WORK } else { REST }, Ordering::Relaxed);
        }
        state.store(END, Ordering::Relaxed);
    });
    let me = std::process::id() as i32;
    let (mut sweep, mut random) = (0, 0x9e37_79b9_7f4a_7c15u64);
    let mut faults_before = processes::major_faults(me).unwrap_or(0);
    while state.load(Ordering::Relaxed) != END {
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
                let value = memory.touch(page, random);
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
        let line = serde_json::to_string(&second).map_err(|error| Error::Invalid(error.to_string()))?;
        if writeln!(std::io::stdout(), "{line}").is_err() {
            break;
        }
    }
    std::hint::black_box(cold.bytes.first());
    Ok(())
}

/// A renderer: fills `size` bytes scene by scene, and reads and writes it at random without end.
pub fn hog(size: u64) {
    let mut scene = Block { bytes: vec![0; (size / PAGE * PAGE) as usize] };
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut loaded = 0;
    loop {
        for _ in 0..64 {
            if loaded < scene.pages() {
                scene.touch(loaded, random | 1);
                loaded += 1;
            }
        }
        for _ in 0..16 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (random >> 33) as usize % loaded.max(1);
            let value = scene.touch(page, random);
            std::hint::black_box(compute(value));
        }
        // Two of three boxes' hogs would otherwise be what the users of all three wait for.
        std::thread::sleep(Duration::from_micros(200));
    }
}
