//! The controller: `tick(observation, now) -> actions`, pure. No clock, no file, no kernel.

mod action;
mod aging;
mod beta;
mod comeback;
mod config;
mod donation;
mod evicting;
mod misses;
mod noise;
mod observation;
mod rate;
mod report;
mod work;

pub use action::Action;
pub use aging::{Aging, Mode};
pub use beta::opaque_need;
pub use comeback::Phase;
pub use config::Config;
pub use donation::{Demand, Donation, decide};
pub use misses::Misses;
pub use noise::{is_activity, noise_position};
pub use observation::{Feedback, Observation, Picture, Sample};
pub use rate::PagingRate;
pub use report::Report;

use crate::histogram::Histogram;
use std::time::Duration;
use work::Work;

/// The controller's state.
#[derive(Debug)]
pub struct Controller {
    config: Config,
    permanent: Histogram,
    aging: Aging,
    misses: Misses,
    paging: PagingRate,
    latest: Option<Sample>,
    /// The goal was violated: the next sample ages the histogram at once.
    agile: bool,
    /// What of the window has aged the histogram already: accesses beyond the noise, and time.
    folded_beyond: u64,
    folded_window: Duration,
    /// Somebody was at work in this window, and is since its period began: the bits, once set, tell
    /// the first only.
    window_active: bool,
    worked: bool,
    work: Work,
    last_tick: Duration,
    asked_sample: Duration,
    /// Pages ordered to be evicted: ever, when the sample under way was asked for, and when the
    /// newest one was. What a sample says can be spared can be spared once.
    evicted: u64,
    evicted_when_asked: u64,
    evicted_when_sampled: u64,
    /// How many samples in a row saw nothing come of what was ordered.
    barren: u32,
    report: Report,
}

impl Controller {
    /// A controller for `total_pages` of memory, started `now`.
    pub fn new(config: Config, total_pages: u64, now: Duration) -> Self {
        let permanent = Histogram::for_memory(total_pages);
        let aging = Aging::new(&config, now);
        Self {
            config,
            permanent,
            aging,
            misses: Misses::new(now),
            paging: PagingRate::default(),
            latest: None,
            agile: false,
            folded_beyond: 0,
            folded_window: Duration::ZERO,
            window_active: false,
            worked: false,
            work: Work::new(now),
            last_tick: now,
            asked_sample: now,
            evicted: 0,
            evicted_when_asked: 0,
            evicted_when_sampled: 0,
            barren: 0,
            report: Report::default(),
        }
    }

    /// The histogram limits are computed from.
    pub fn histogram(&self) -> &Histogram {
        &self.permanent
    }

    /// What is known and was decided last.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Opaque processes that use fewer CPUs than this are idle.
    pub fn idle_below(&self) -> f64 {
        self.work.idle_below(&self.config)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// One step.
    pub fn tick(&mut self, observation: Observation, now: Duration) -> Vec<Action> {
        let elapsed = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        let mut actions = Vec::new();
        let picture = observation.picture;
        // A limit was raised: positions beyond the old one are to be told apart now.
        if picture.total > self.permanent.memory_pages() {
            self.permanent = self.permanent.reshaped(picture.total);
        }

        let lending = observation.has_contributed && picture.contributed > self.config.minimum_pages;
        if let Some(feedback) = observation.feedback
            && self.misses.count(&self.config, feedback, lending, now)
        {
            self.violated(feedback.opaque_refaults);
        }
        if let Some(sample) = observation.sample {
            self.take(sample, &picture, now, &mut actions);
        } else if self.agile || self.aging.sample_due(now) || self.must_look(now) {
            self.aging.asked(&self.config, now);
            self.asked_sample = now;
            self.evicted_when_asked = self.evicted;
            actions.push(Action::Sample);
        }

        let primed = self.permanent.total() > 0.0;
        let need = primed.then(|| opaque_need(&self.config, &self.permanent, picture.total));
        // Growth since the sample counts as needed; what was evicted since was watched.
        let unwatched = self.report.unwatched.max(self.unwatched(&picture));
        let demand = Demand { need, existing: self.report.existing, unwatched, boost: self.report.boost };
        let mut donation = decide(&self.config, &picture, &demand);
        donation.evict = self.may_evict(need.filter(|_| observation.has_contributed), donation.evict, elapsed);
        let informed = self.informed(need);

        if observation.has_contributed {
            let margin = (picture.total as f64 * self.config.margin) as u64;
            let short = self.misses.violated() || picture.available() < margin / 2;
            let mut phase = self.report.phase;
            actions.extend(phase.step(&self.config, short, picture.contributed, donation.limit, now));
            if donation.evict > 0 && phase == Phase::Running {
                let evict = if informed { Action::EvictTail } else { Action::EvictIdle };
                actions.push(evict(donation.evict));
                self.evicted += donation.evict;
            }
            let refaults = observation.feedback.map_or(0, |feedback| feedback.contributed_refaults);
            let pause = self.paging.count(&self.config, refaults, elapsed);
            if let (Some(pause), Phase::Running) = (pause, phase) {
                actions.push(Action::Pause(pause));
            }
            self.report.phase = phase;
        } else {
            if matches!(self.report.phase, Phase::Shrinking { .. }) {
                actions.push(Action::Thaw);
            }
            self.report.phase = Phase::Running;
            actions.push(Action::Limit(donation.limit));
        }
        self.report.mode = Some(Aging::mode(&self.config, now));
        self.report.picture = picture;
        self.report.donation = donation;
        self.report.need = need;
        self.report.misses_per_s = self.misses.per_s();
        actions
    }

    /// What opaque work holds beside what is watched, without cold cache.
    fn unwatched(&self, picture: &Picture) -> u64 {
        let cache_watched = self.latest.as_ref().is_some_and(|sample| sample.cache_watched);
        let cold = if cache_watched { 0 } else { picture.cold_cache };
        picture.opaque().saturating_sub(self.report.watched).saturating_sub(cold)
    }

    /// Opaque work misses too much: give back what it asked for and more, and learn at once.
    fn violated(&mut self, refaults: u64) {
        self.report.violations += 1;
        let step = refaults.max(self.report.donation.earned / 16);
        self.report.boost = (self.report.boost + step).min(self.report.picture.total);
        self.agile = true;
    }

    /// Ages the histogram if the sample says so, and begins a new window when that loses nothing.
    fn take(&mut self, sample: Sample, picture: &Picture, now: Duration, actions: &mut Vec<Action>) {
        self.aging.taken();
        self.work.used(sample.busy.unwrap_or(0.0), now);
        self.worked |= sample.busy.is_some_and(|cpus| cpus >= self.idle_below());
        self.see_evicted(&sample);
        self.report.watched = sample.watched;
        self.report.existing = sample.existing;
        self.report.referenced = sample.referenced;
        let over = self.aging.period_over(&self.config, now);
        if over || self.agile {
            self.age(&sample, over);
            self.agile = false;
        }
        if over {
            self.report.boost = if self.report.boost > self.config.minimum_pages { self.report.boost / 2 } else { 0 };
            self.aging.begin_period(now);
            self.worked = false;
        }
        // Clearing the bits forgets what was used last. Nobody needs to know while nobody works, and
        // an eviction under way does, unless nothing comes of it or it takes all the time.
        let idle = sample.busy.is_some_and(|cpus| cpus < self.idle_below());
        if self.aging.window_complete() && !idle && !self.is_evicting() {
            (self.folded_beyond, self.folded_window) = (0, Duration::ZERO);
            self.window_active = false;
            self.aging.begin_window(&self.config, now);
            actions.push(Action::BeginWindow);
        }
        self.latest = Some(sample);
        self.report.unwatched = self.unwatched(picture);
    }

    /// Folds the window so far into the histogram, unless nobody was at work since it last was.
    fn age(&mut self, sample: &Sample, over: bool) {
        let fresh = sample.beyond_noise.saturating_sub(self.folded_beyond);
        let active = is_activity(&self.config, fresh, sample.window.saturating_sub(self.folded_window));
        self.window_active |= active;
        if over {
            self.work.end_period(&self.config, active);
        }
        if active || self.window_active && self.worked {
            // One of a window that began before a limit was raised has another shape.
            let mut temporary = sample.histogram.reshaped_like(&self.permanent);
            temporary.normalise();
            self.permanent.age(&temporary, self.config.alpha);
            self.report.aged += 1;
            self.report.aged_well += u64::from(over && self.aging.well_sampled());
            (self.folded_beyond, self.folded_window) = (sample.beyond_noise, sample.window);
        } else if over {
            self.report.filtered += 1;
        }
    }

    /// The newest sample, for charts.
    pub fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref()
    }
}

#[cfg(test)]
mod tests;
