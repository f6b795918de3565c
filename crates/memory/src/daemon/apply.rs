//! Carrying out actions through the back end.

use super::ranges::Ranges;
use crate::PAGE;
use crate::backend::Backend;
use crate::control::Action;
use crate::error::Result;
use crate::runtime::{RuntimeDir, Undo};
use crate::sampler::Worker;
use crate::system::place;
use std::time::Duration;

/// Where the kernel found nothing to evict (no swap, all pinned), it is not asked again for so long.
const FUTILE: Duration = Duration::from_secs(30);

/// Back end and sampler, and what is under way.
pub(super) struct Hands {
    pub backend: Box<dyn Backend>,
    pub worker: Worker,
    pub ranges: Ranges,
    pub evicted: u64,
    pub frozen: bool,
    /// Who may not be stopped, while all others are.
    pub unstopped: Vec<i32>,
    pub killed: bool,
    runtime: RuntimeDir,
    undo: Undo,
    thaw_at: Option<Duration>,
    not_before: Duration,
}

impl Hands {
    pub fn new(mut backend: Box<dyn Backend>, worker: Worker, runtime: &RuntimeDir, undo: Undo) -> Self {
        backend.journal(runtime.journal());
        Self {
            backend,
            worker,
            ranges: Ranges::new(),
            evicted: 0,
            frozen: false,
            unstopped: Vec::new(),
            killed: false,
            runtime: runtime.clone(),
            undo,
            thaw_at: None,
            not_before: Duration::ZERO,
        }
    }

    /// Carries out one tick's actions.
    pub fn apply(&mut self, actions: &[Action], now: Duration) -> Result<()> {
        if self.thaw_at.is_some_and(|at| now >= at) {
            self.thaw_at = None;
            self.thaw()?;
        }
        for action in actions {
            match action {
                Action::Limit(pages) => drop(self.backend.limit(*pages)?),
                Action::EvictTail(pages) => self.evict(*pages, true, now)?,
                Action::EvictIdle(pages) => self.evict(*pages, false, now)?,
                Action::Freeze => {
                    self.thaw_at = None;
                    self.freeze()?;
                }
                Action::Thaw => self.thaw()?,
                Action::Pause(time) => {
                    self.thaw_at = Some(now + *time);
                    self.freeze()?;
                }
                Action::Kill => {
                    self.killed = true;
                    self.backend.kill()?;
                }
                Action::Sample | Action::BeginWindow => {}
            }
            if *action == Action::BeginWindow {
                self.ranges.begin_window();
            }
        }
        Ok(())
    }

    /// Lets everything go on; limits are lifted with the groups.
    pub fn release(&mut self) -> Result<()> {
        self.thaw_at = None;
        self.thaw()
    }

    fn freeze(&mut self) -> Result<()> {
        if !self.frozen {
            self.note_stopped(true);
            self.unstopped = self.backend.freeze()?;
            self.frozen = true;
        }
        Ok(())
    }

    /// Where no freezer is, whoever cleans up must know who has stopped the processes.
    fn note_stopped(&mut self, stopped: bool) {
        if self.backend.stops_by_signals() {
            self.undo.stopped = stopped;
            // Should it fail, the user's memory matters more than what a death now would leave.
            let _only_a_note = self.undo.write(&self.runtime.undo());
        }
    }

    fn thaw(&mut self) -> Result<()> {
        if self.frozen && self.thaw_at.is_none() {
            self.backend.thaw()?;
            self.frozen = false;
            self.unstopped.clear();
            self.note_stopped(false);
        }
        Ok(())
    }

    /// Evicts from the tail: whole idle ranges first, since they are certain, then what the kernel
    /// finds least recently used by the reference bits that the window has left it.
    fn evict(&mut self, pages: u64, by_bits: bool, now: Duration) -> Result<()> {
        // The ranges are anonymous.
        let swap = place::has_free_swap();
        let paged_out = if swap { self.ranges.page_out(pages) } else { 0 };
        self.evicted += paged_out;
        let left = pages.saturating_sub(paged_out);
        if swap && self.worker.is_ready(now) && self.ranges.ask(now) {
            self.worker.idle_ranges(self.backend.opaque()?, now)?;
            return Ok(());
        }
        if by_bits && left >= (64 << 10) / PAGE && !self.worker.is_busy() && now >= self.not_before {
            let evicted = self.backend.evict(left)?;
            self.evicted += evicted;
            if evicted == 0 {
                self.not_before = now + FUTILE;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Feedback, Picture, Sample};
    use crate::sampler::{IdleRange, Request, Sampler};
    use std::path::Path;

    /// Finds seven pages of file cache.
    struct Cache;

    impl Backend for Cache {
        fn name(&self) -> &'static str {
            "cache"
        }
        fn group(&self) -> &Path {
            Path::new("/")
        }
        fn picture(&mut self) -> Result<Picture> {
            Ok(Picture::default())
        }
        fn feedback(&mut self) -> Result<Feedback> {
            Ok(Feedback::default())
        }
        fn contributed(&self) -> Result<Vec<i32>> {
            Ok(Vec::new())
        }
        fn opaque(&self) -> Result<Vec<i32>> {
            Ok(Vec::new())
        }
        fn limit(&mut self, pages: u64) -> Result<u64> {
            Ok(pages)
        }
        fn evict(&mut self, pages: u64) -> Result<u64> {
            Ok(pages.min(7))
        }
        fn freeze(&mut self) -> Result<Vec<i32>> {
            Ok(Vec::new())
        }
        fn thaw(&mut self) -> Result<()> {
            Ok(())
        }
        fn kill(&mut self) -> Result<()> {
            Ok(())
        }
    }

    struct Blind;

    impl Sampler for Blind {
        fn name(&self) -> &'static str {
            "blind"
        }
        fn begin_window(&mut self, _: &Request) -> Result<()> {
            Ok(())
        }
        fn sample(&mut self, _: &Request) -> Result<Sample> {
            Err(crate::Error::Stopped)
        }
    }

    /// Regression: they counted as evicted, and the file cache, which could go, was not asked for.
    #[test]
    fn without_swap_idle_ranges_are_not_taken_to_have_gone() {
        if place::has_free_swap() {
            eprintln!("skipped: there is swap");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let undo = Undo { pid: 1, directories: Vec::new(), stopped: false, enabled: Vec::new() };
        let runtime = RuntimeDir::new(Some(dir.path().to_owned()));
        let mut hands = Hands::new(Box::new(Cache), Worker::start(Box::new(Blind)), &runtime, undo);
        let block = vec![1u8; 5 << 20];
        let start = (block.as_ptr() as u64).next_multiple_of(PAGE);
        let pid = std::process::id() as i32;
        let bytes = 4 << 20;
        hands.ranges.found(vec![IdleRange { pid, start, bytes }]);
        hands.apply(&[Action::EvictTail(bytes / PAGE)], Duration::ZERO).unwrap();
        assert!(std::hint::black_box(&block).len() == 5 << 20 && hands.evicted == 7, "{}", hands.evicted);
    }
}
