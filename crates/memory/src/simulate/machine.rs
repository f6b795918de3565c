//! A model of a machine, so that the controller that ships can be tried on a trace in milliseconds.
//!
//! Memory of a fixed size is shared by the pages of a trace (opaque) and one contributed process that
//! wants all it can get. The model's kernel evicts as Linux' CLOCK does: in order of arrival, with a
//! second chance for what was referenced, from whoever is larger when nobody's limit is exceeded. The
//! sampler is the arithmetic of `clear_refs`.

use super::trace::Access;
use crate::control::{Action, Config, Controller, Feedback, Observation, Picture, Sample, noise_position};
use crate::footprint::Footprint;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What happens beside the trace.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Pages the contributed process wants.
    pub wanted: u64,
    /// When it starts, in seconds.
    pub from_s: f64,
    /// When everything ends; at the trace's last access if that is later.
    pub until_s: f64,
    /// Pressure from outside: at so many seconds, so many opaque pages are evicted.
    pub pressure: Vec<(f64, u64)>,
    /// Times, from and to, in which the controller does not get to run.
    pub stalls: Vec<(f64, f64)>,
}

/// One second of the outcome, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Seconds since the start.
    pub at_s: f64,
    /// Held by contributed work.
    pub contributed: u64,
    /// What contributed work may have.
    pub limit: u64,
    /// Opaque misses in this second.
    pub misses: u64,
}

/// Time between ticks.
const TICK_S: f64 = 0.2;

/// Pages a second by which the contributed process grows, and is shrunk.
const SPEED: f64 = 20_000.0;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    resident: bool,
    /// The reference bit.
    young: bool,
    /// The kernel saw the bit, cleared it and remembers.
    marked: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    controller: Controller,
    total: u64,
    pages: HashMap<u64, Page>,
    /// Resident pages in the kernel's order, oldest first.
    queue: VecDeque<u64>,
    contributed: u64,
    limit: u64,
    frozen: bool,
    turn: u64,
    misses: u64,
    refaults: u64,
    /// The sampler: referenced pages now and at the last reading, existing ones at the last reading.
    referenced: u64,
    before: (u64, u64),
    /// Pages that existed when the window began.
    at_first: u64,
    accesses: u64,
    footprint: Footprint,
    window_began: f64,
}

impl Machine {
    /// A machine of `total` pages with nothing in it.
    pub fn new(config: Config, total: u64) -> Self {
        Self {
            controller: Controller::new(config, total, Duration::ZERO),
            total,
            pages: HashMap::new(),
            queue: VecDeque::new(),
            contributed: 0,
            limit: 0,
            frozen: false,
            turn: 0,
            misses: 0,
            refaults: 0,
            referenced: 0,
            before: (0, 0),
            at_first: 0,
            accesses: 0,
            footprint: Footprint::default(),
            window_began: 0.0,
        }
    }

    /// The controller as it stands.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Runs a trace. Gives what happened, second by second.
    pub fn run(&mut self, trace: &[Access], scene: &Scene) -> Vec<Second> {
        let end = trace.last().map_or(0.0, |access| access.at_s).max(scene.until_s);
        let mut seconds = Vec::new();
        let (mut next, mut pressed, mut wanted_sample) = (0, 0, false);
        let ticks = (end / TICK_S).ceil() as u64 + 1;
        for tick in 1..=ticks {
            let now = tick as f64 * TICK_S;
            while let Some(access) = trace.get(next).filter(|access| access.at_s < now) {
                self.access(access.page);
                next += 1;
            }
            while let Some((_, pages)) = scene.pressure.get(pressed).filter(|(at, _)| *at < now) {
                self.evict(*pages);
                pressed += 1;
            }
            let running = now >= scene.from_s && scene.wanted > 0;
            if running && !self.frozen {
                self.grow(scene.wanted);
            }
            if !scene.stalls.iter().any(|(from, to)| (*from..*to).contains(&now)) {
                wanted_sample = self.tick(now, running, wanted_sample);
            }
            // The last one may be short.
            if tick % 5 == 0 || tick == ticks {
                let misses = std::mem::take(&mut self.misses);
                seconds.push(Second { at_s: now, contributed: self.contributed, limit: self.limit, misses });
            }
        }
        seconds
    }

    fn free(&self) -> u64 {
        self.total.saturating_sub(self.queue.len() as u64).saturating_sub(self.contributed)
    }

    fn access(&mut self, number: u64) {
        self.accesses += 1;
        let known = self.pages.get(&number).copied();
        let mut page = known.unwrap_or_default();
        if !page.resident {
            if known.is_some() {
                self.misses += 1;
                self.refaults += 1;
            }
            self.find_frame();
            self.queue.push_back(number);
        }
        self.referenced += u64::from(!(page.young || page.marked));
        page.young = true;
        page.resident = true;
        self.pages.insert(number, page);
    }

    /// Makes a page free if none is, from opaque or contributed memory in proportion to their size.
    fn find_frame(&mut self) {
        if self.free() > 0 {
            return;
        }
        self.turn += self.contributed;
        if self.turn >= self.total && self.contributed > 0 {
            self.turn -= self.total;
            self.contributed -= 1;
        } else {
            self.evict(1);
        }
    }

    /// CLOCK over opaque pages.
    fn evict(&mut self, count: u64) {
        let mut left = count;
        while left > 0
            && let Some(number) = self.queue.pop_front()
        {
            let Some(page) = self.pages.get_mut(&number) else { continue };
            if page.young {
                (page.young, page.marked) = (false, true);
                self.queue.push_back(number);
            } else {
                self.referenced -= u64::from(page.marked);
                *page = Page::default();
                left -= 1;
            }
        }
    }

    fn grow(&mut self, wanted: u64) {
        let step = (SPEED * TICK_S) as u64;
        for _ in 0..step {
            if self.contributed >= self.limit.min(wanted) {
                break;
            }
            self.find_frame();
            self.contributed += 1;
        }
    }

    fn tick(&mut self, now: f64, running: bool, wanted_sample: bool) -> bool {
        let sample = wanted_sample.then(|| self.sample(now));
        let observation = Observation {
            picture: Picture { total: self.total, free: self.free(), contributed: self.contributed, cold_cache: 0 },
            sample,
            feedback: Some(Feedback { opaque_refaults: std::mem::take(&mut self.refaults), ..Feedback::default() }),
            has_contributed: running,
        };
        let mut wanted_sample = false;
        for action in self.controller.tick(observation, Duration::from_secs_f64(now)) {
            match action {
                Action::Limit(pages) => self.limit = pages,
                Action::EvictTail(pages) => self.evict(pages),
                Action::Freeze => self.frozen = true,
                Action::Thaw => self.frozen = false,
                Action::Kill => self.contributed = 0,
                Action::Sample => wanted_sample = true,
                Action::BeginWindow => self.begin_window(now),
                Action::EvictIdle(_) | Action::Pause(_) => {}
            }
        }
        let step = (SPEED * TICK_S) as u64;
        self.contributed = self.contributed.min(self.limit.max(self.contributed.saturating_sub(step)));
        wanted_sample
    }

    fn begin_window(&mut self, now: f64) {
        for page in self.pages.values_mut() {
            (page.young, page.marked) = (false, false);
        }
        self.referenced = 0;
        self.at_first = self.pages.len() as u64;
        self.before = (0, self.at_first);
        self.footprint = Footprint::default();
        self.window_began = now;
    }

    fn sample(&mut self, now: f64) -> Sample {
        let existing = self.pages.len() as u64;
        let allocated = existing - self.before.1.min(existing);
        let hits = self.referenced.saturating_sub(self.before.0).saturating_sub(allocated);
        self.before = (self.referenced, existing);
        let window = now - self.window_began;
        let older = self.referenced.saturating_sub(existing - self.at_first);
        self.footprint.push(window, older, hits);
        let shape = self.controller.histogram();
        let noise = noise_position(self.controller.config(), self.total);
        Sample {
            histogram: self.footprint.histogram(shape),
            beyond_noise: self.footprint.hits_beyond(noise),
            referenced: Some(self.referenced),
            busy: Some(if std::mem::take(&mut self.accesses) > 0 { 1.0 } else { 0.0 }),
            watched: self.queue.len() as u64,
            cache_watched: false,
            existing,
            window: Duration::from_secs_f64(window),
        }
    }
}
