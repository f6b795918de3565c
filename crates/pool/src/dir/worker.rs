//! The background thread of a `dir` pool: makes files ready and takes files back.

use super::core::{Core, MOST_STOCK};
use super::inbox::{Inbox, Work};
use super::name;
use super::quarantine::Quarantine;
use super::retire::Fate;
use crate::{Binding, Fresh};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use ullage_policy::ready::REST;

/// By how much this thread is nicer than those that serve requests.
const NICE: i32 = 5;
/// Pause between rounds while there is something to do.
const SHORT: Duration = Duration::from_millis(2);
/// Pause between rounds while there is not.
const LONG: Duration = Duration::from_secs(1);
/// Rounds without work before the pause becomes long.
const PATIENCE: u32 = 100;
/// Files made ready or taken back in one series before the next has its turn.
const BATCH: u32 = 64;
/// Files taken back in a round, of all series, while ready ones run low anywhere.
const FEW: u32 = 16;
/// First pause after the file system below was full, doubled each time.
const BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(32);

pub struct Worker<'a> {
    core: &'a Core,
    quarantine: Quarantine,
    back_off: Duration,
    resume: Instant,
    /// The series whose turn it is to have files taken back.
    turn: usize,
}

impl<'a> Worker<'a> {
    pub fn new(core: &'a Core, quarantine: Quarantine) -> Self {
        core.most_stock.store(stock(core), Ordering::Relaxed);
        Self { core, quarantine, back_off: BACK_OFF, resume: Instant::now(), turn: 0 }
    }

    /// Runs until the inbox says stop; then everything handed in has been done and no ready files are left.
    pub fn run(mut self, inbox: &Inbox) {
        // Where there is no CPU to spare, whoever waits for a file goes first.
        let _ = rustix::process::setpriority_process(None, NICE);
        let (mut quiet, mut second, mut more) = (0u32, Instant::now(), false);
        loop {
            let deep = quiet > PATIENCE;
            let pause = if more {
                Duration::ZERO
            } else if deep {
                LONG
            } else {
                SHORT
            };
            let work = inbox.wait(pause, deep);
            let stop = work.stop;
            let core = self.core;
            more = core.takes(|| self.round(work));
            quiet = if more { 0 } else { quiet.saturating_add(1) };
            if second.elapsed() >= LONG {
                second = Instant::now();
                self.every_second();
            }
            if stop && !more {
                break;
            }
        }
        self.drop_ready();
        // The plain tree is as it should be by now, and who wrote to a file may have closed it since the last try.
        self.quarantine.retry_all(self.core);
    }

    fn round(&mut self, work: Work) -> bool {
        let busy = !work.released.is_empty() || !work.abandoned.is_empty();
        for name in work.held {
            self.quarantine.add(&name, self.core);
        }
        for fresh in work.abandoned {
            if let Some(unwanted) = self.core.take_back(fresh) {
                self.discard(unwanted);
            }
        }
        for binding in work.released {
            self.retire(&binding);
        }
        let mut filled = false;
        if !work.stop {
            for index in 0..self.core.series.len() {
                filled |= self.fill(index);
            }
        }
        let taken_back = self.take_back(if filled { FEW } else { u32::MAX });
        busy || filled || taken_back
    }

    fn retire(&mut self, binding: &Binding) {
        let retired = self.core.retire(binding);
        self.settled(retired, binding);
    }

    /// A ready or abandoned file that is not wanted goes.
    fn discard(&mut self, fresh: Fresh) {
        let binding = fresh.binding.clone();
        drop(fresh);
        self.retire(&binding);
    }

    fn settled(&mut self, fate: Result<Fate, crate::Error>, binding: &Binding) {
        match fate {
            Ok(Fate::Held) => {
                self.quarantine.add(&name::of(binding.file, binding.generation), self.core);
            }
            Ok(Fate::Recycled | Fate::Emptied | Fate::Removed | Fate::Gone) => {}
            Err(error) => self.core.keep(&error),
        }
    }

    /// Makes files ready where they run low: of those released there, then others' ready ones, emptied ones, new ones. A batch at
    /// most, so that every series gets its turn. Gives back whether anything was done.
    fn fill(&mut self, index: usize) -> bool {
        let core = self.core;
        let series = &core.series[index];
        series.grow();
        let mut done = 0;
        if !series.refills(core.held(index)) {
            return false;
        }
        while done < BATCH {
            let held = core.held(index);
            if !held.is_low() {
                break;
            }
            if let Some(binding) = series.next_released() {
                self.retire(&binding);
            } else if !(core.config.ready
                && held.wants_new()
                && (self.move_over(index) || self.reuse(index) || self.make(index)))
            {
                break;
            }
            done += 1;
        }
        done > 0
    }

    /// Takes back what was released, `most` files at most: the series take turns. Gives back whether anything was done.
    fn take_back(&mut self, most: u32) -> bool {
        let core = self.core;
        let mut done = 0;
        for _ in 0..core.series.len() {
            let series = &core.series[self.turn];
            self.turn = (self.turn + 1) % core.series.len();
            for _ in 0..BATCH {
                if done == most {
                    return true;
                }
                let Some(binding) = series.next_released() else { break };
                self.retire(&binding);
                done += 1;
            }
        }
        done > 0
    }

    /// Gets a ready file of another series, if one can be spared.
    fn move_over(&self, index: usize) -> bool {
        let Some(fresh) = self.core.move_ready(index) else { return false };
        self.core.put(index, fresh);
        true
    }

    /// Makes an emptied file ready, if there is one.
    fn reuse(&mut self, index: usize) -> bool {
        let Some(binding) = self.core.series[index].unstock() else { return false };
        let reused = self.core.reuse(&binding);
        self.settled(reused, &binding);
        true
    }

    /// Makes one file ready, unless the file system below is full.
    fn make(&mut self, index: usize) -> bool {
        let core = self.core;
        if Instant::now() < self.resume {
            return false;
        }
        match core.make(index) {
            Ok(fresh) => {
                core.put(index, fresh);
                self.back_off = BACK_OFF;
                true
            }
            Err(error) => {
                tracing::debug!(%error, "no files are made ready for a while");
                self.resume = Instant::now() + self.back_off;
                self.back_off = (self.back_off * 2).min(LONGEST_BACK_OFF);
                self.drop_ready();
                false
            }
        }
    }

    fn every_second(&mut self) {
        let core = self.core;
        for series in &core.series {
            let kept = REST.min(core.most_stock.load(Ordering::Relaxed));
            let most = core.ready.load(Ordering::Relaxed).saturating_sub(kept);
            for fresh in series.drain(series.shrink().min(most)) {
                core.ready.fetch_sub(1, Ordering::Relaxed);
                self.discard(fresh);
            }
        }
        self.quarantine.retry(core, Instant::now());
        core.most_stock.store(stock(core), Ordering::Relaxed);
        if core.stocked.load(Ordering::Relaxed) > core.most_stock.load(Ordering::Relaxed) / 2 {
            core.part(false);
        }
    }

    /// Removes all ready and all emptied files, and holds none until there is demand again.
    fn drop_ready(&mut self) {
        let core = self.core;
        core.most_stock.store(0, Ordering::Relaxed);
        core.part(true);
        for series in &core.series {
            series.stop();
            for fresh in series.drain(u32::MAX) {
                core.ready.fetch_sub(1, Ordering::Relaxed);
                self.discard(fresh);
            }
        }
    }
}

/// How many emptied files to keep: never so many that others would miss the inodes.
fn stock(core: &Core) -> u32 {
    match rustix::fs::fstatvfs(core.root()) {
        // Some file systems make inodes as they need them, and say that there are none.
        Ok(stat) if stat.f_files == 0 => MOST_STOCK,
        Ok(stat) => u32::try_from(stat.f_favail / 4).unwrap_or(u32::MAX).min(MOST_STOCK),
        Err(_) => 0,
    }
}
