//! The controller's loop: reads the kernel's files, ticks, applies.

mod apply;
mod cost;
mod ranges;
mod record;

use crate::backend::{self, Plan};
use crate::control::{Action, Aging, Config, Controller, Observation, Phase, noise_position};
use crate::error::{Error, Result};
use crate::guard;
use crate::runtime::{Held, RuntimeDir, Undo, lift_known};
use crate::sampler::{self, Request, Worker};
use crate::sys;
use crate::system::{mounts::Mounts, place};
use apply::Hands;
use cost::Meter;
use record::Recorder;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the loop is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where state is kept.
    pub runtime: RuntimeDir,
    /// The box, or the whole machine.
    pub within: Option<PathBuf>,
    /// The sampler to use, or the best that works.
    pub sampler: Option<String>,
    /// Settings of the controller.
    pub config: Config,
    /// Command that starts the guard; without one, cleaning up after a kill waits for the next start.
    pub guard: Option<Vec<OsString>>,
    /// End when the last contributed process has.
    pub until_empty: bool,
    /// Where to write the timeline, to keep it.
    pub log: Option<PathBuf>,
}

/// Time between ticks: short enough that free memory does not run out between two.
const TICK: Duration = Duration::from_millis(200);

/// While the group shrinks, the user waits.
const SHRINKING_TICK: Duration = Duration::from_millis(10);

/// While nothing is lent, what opaque work misses is looked at this often: it is only what the goal is compared with, and
/// each look reads the counters of every group.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// A controller that is to end with contributed work waits so long for the first to come.
const FIRST_COMES: Duration = Duration::from_secs(5);

/// Shares of one CPU that sampling may use, below the goals of 3 % and 1 % for all the controller does.
const FAST_SHARE: f64 = 0.02;
const SLOW_SHARE: f64 = 0.005;

/// Runs until `stop`, or an error. Whatever happens, limits are lifted and groups removed at the end;
/// a kill is seen to by the guard, or by the next start.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    options.config.validate().map_err(crate::Error::Invalid)?;
    let (_lock, _could_not_be_undone) = options.runtime.claim()?;
    let _shelter = options.runtime.shelter();
    let mut made = None;
    let result = control(options, stop, &mut made);
    let (result, door) = match result {
        Ok(door) => (Ok(()), door),
        Err(error) => (Err(error), None),
    };
    // Who comes now finds nobody running. Who never leaves the door does not keep us from lifting.
    let _door = door.or_else(|| options.runtime.door().ok());
    let failed = lift_known(&options.runtime, made);
    options.runtime.remove();
    result?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Divides memory until there is a reason to end; gives the door where it is the controller's already. Tells what it is about to
/// have `made`.
fn control(options: &Options, stop: &Arc<AtomicBool>, made: &mut Option<Undo>) -> Result<Option<Held>> {
    let mounts = Mounts::read()?;
    let mut note = |plan: Plan| {
        let pid = std::process::id() as i32;
        let enabled = plan.enabled.into_iter().collect();
        let undo = Undo { pid, directories: plan.directories, stopped: false, enabled };
        undo.write(&options.runtime.undo())?;
        *made = Some(undo);
        Ok(())
    };
    let found = backend::choose(&mounts, options.within.as_deref(), &mut note)?;
    let backend = found.backend;
    let undo = made.clone().unwrap_or_default();
    let _guard = options.guard.as_deref().map(guard::start).transpose()?;
    let base = backend.group().parent().unwrap_or(backend.group()).to_owned();
    let choice = sampler::choose(&mounts, &base, backend.group(), options.sampler.as_deref())?;

    let mut hands = Hands::new(backend, Worker::start(choice.sampler), &options.runtime, undo);
    let recorder = Recorder::new(options, found.reasons, choice.candidates)?;
    let result = divide(options, stop, &mut hands, recorder);
    let released = hands.release();
    let door = result?;
    released.map(|()| door)
}

fn divide(
    options: &Options,
    stop: &Arc<AtomicBool>,
    hands: &mut Hands,
    mut recorder: Recorder,
) -> Result<Option<Held>> {
    let start = sys::monotonic();
    let mut controller = Controller::new(options.config.clone(), hands.backend.picture()?.total, Duration::ZERO);
    let mut meter = Meter::new();
    let mut look_again = Duration::ZERO;
    let mut shrunk = None;
    let mut wants = Vec::from([Action::BeginWindow]);
    if !place::has_swap() {
        recorder.warn("there is no swap: only file pages can be taken back from contributed work by shrinking");
    }
    while !stop.load(Ordering::Relaxed) {
        let now = sys::monotonic().saturating_sub(start);
        let share = if now < options.config.fast_for { FAST_SHARE } else { SLOW_SHARE };
        let news = hands.worker.poll(now, share)?;
        if let Some(ranges) = news.idle_ranges {
            hands.ranges.found(ranges);
        }
        let contributed = hands.backend.contributed()?;
        let look = !contributed.is_empty() || now >= look_again;
        if look {
            look_again = now + IDLE_LOOK;
        }
        let observation = Observation {
            picture: hands.backend.picture()?,
            sample: news.sample,
            feedback: look.then(|| hands.backend.feedback()).transpose()?,
            has_contributed: !contributed.is_empty(),
        };
        let actions = controller.tick(observation, now);
        // A sample wanted while one is under way, or before its share of CPU is earned, waits.
        wants.extend(actions.iter().filter(|a| matches!(a, Action::Sample | Action::BeginWindow)).cloned());
        // A window begins when it is due, whatever that costs.
        let begin = wants.contains(&Action::BeginWindow);
        if !wants.is_empty() && (hands.worker.is_ready(now) || begin && !hands.worker.is_busy()) {
            let request = Request {
                pids: opaque(hands)?,
                shape: controller.histogram().empty_like(),
                noise_position: noise_position(&options.config, controller.report().picture.total),
                period: Aging::period(&options.config, now),
                idle_cpus: controller.idle_below(),
                now,
            };
            recorder.opaque_processes = request.pids.len();
            wants.clear();
            if begin { hands.worker.begin_window(request)? } else { hands.worker.sample(request)? }
        }
        hands.apply(&actions, now)?;
        meter.count(options.config.fast_for, now);
        recorder.record(&controller, hands, &meter, &contributed, now)?;

        if options.until_empty && contributed.is_empty() && (now >= FIRST_COMES || options.runtime.origins().exists()) {
            // Somebody may have come since.
            if let Some(door) = options.runtime.door_if_free()?
                && hands.backend.contributed()?.is_empty()
            {
                return Ok(Some(door));
            }
        }
        std::thread::sleep(pause(controller.report().phase, controller.report().picture.contributed, &mut shrunk));
    }
    Ok(None)
}

/// The time until the next tick. What does not shrink, since nothing of it can be evicted, is not tried all the time; `shrunk`
/// is what was used at the previous tick of the same shrinking.
fn pause(phase: Phase, used: u64, shrunk: &mut Option<u64>) -> Duration {
    let before = match phase {
        Phase::Shrinking { .. } => shrunk.replace(used).unwrap_or(u64::MAX),
        Phase::Running => {
            *shrunk = None;
            return TICK;
        }
    };
    if used < before { SHRINKING_TICK } else { TICK }
}

/// A flag that these signals raise.
pub fn stop_on_signals(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&stop))
            .map_err(Error::io("handling signals in", "/proc/self"))?;
    }
    Ok(stop)
}

/// Opaque processes without the controller itself, whose own reading would count as use.
fn opaque(hands: &Hands) -> Result<Vec<i32>> {
    let me = std::process::id() as i32;
    Ok(hands.backend.opaque()?.into_iter().filter(|pid| *pid != me).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a hundred times a second it was tried, for ever.
    #[test]
    fn what_does_not_shrink_is_tried_no_oftener_than_all_else() {
        let (mut shrunk, phase) = (None, Phase::Shrinking { since: Duration::ZERO });
        let pauses: Vec<Duration> = [900, 800, 800, 800, 700].map(|used| pause(phase, used, &mut shrunk)).into();
        assert_eq!(pauses, [SHRINKING_TICK, SHRINKING_TICK, TICK, TICK, SHRINKING_TICK]);
        assert_eq!((pause(Phase::Running, 700, &mut shrunk), pause(phase, 700, &mut shrunk)), (TICK, SHRINKING_TICK));
    }
}
