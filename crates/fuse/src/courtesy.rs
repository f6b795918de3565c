//! Whether a thread that answers the kernel gives way to the caller that it answers.
//!
//! A caller is woken while our thread still runs on its CPU. If another CPU is idle the scheduler sends the caller there:
//! waking that CPU takes longer than the whole request, and the caller's caches stay behind. Only where all that runs is
//! of the class `SCHED_IDLE` the scheduler leaves a caller where it was. So the thread is of that class while there are
//! idle CPUs, and of the normal class otherwise, since it would then wait for everybody else on its CPU. If it has to wait
//! all the same (for who is bound to this CPU), it stops that for a while.

use crate::standing::Standing;
use crate::sys;
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the machine is watched, at least, before something is decided. After a pause the first request is judged by
/// the whole pause: in most cases nothing else went on, and if it does, the next look tells.
const WINDOW: Duration = Duration::from_millis(100);
/// Idle time in a window, of all CPUs together, in hundredths of the window: with less nobody is sent away.
const IDLE_LEAST: u32 = 20;
/// Longest wait for the CPU per request while giving way: callers that do more than this between two requests gain little
/// by it, and others' time slices are longer.
const PATIENCE: Duration = Duration::from_micros(500);
/// For how long a thread that waited longer does not give way, doubled each time.
const REFUSAL_LEAST: Duration = Duration::from_secs(1);
const REFUSAL_MOST: Duration = Duration::from_secs(60);
/// Ticks in a second, in `/proc/stat`: fixed in the kernel's interface.
const TICKS: u32 = 100;

/// What all queues know of the machine.
pub(crate) struct Machine {
    stat: File,
    seen: Mutex<Seen>,
}

struct Seen {
    at: Instant,
    idle: Duration,
    to_spare: bool,
}

impl Machine {
    /// None where threads may not change their class, or nothing can be known.
    pub fn new() -> Option<Arc<Self>> {
        let stat = File::open("/proc/stat").ok().filter(|_| possible())?;
        let idle = read_idle(&stat)?;
        Some(Arc::new(Self { stat, seen: Mutex::new(Seen { at: Instant::now(), idle, to_spare: false }) }))
    }

    /// Whether there were idle CPUs in the last window.
    fn has_idle_cpus(&self) -> bool {
        let mut seen = self.seen.lock();
        let window = seen.at.elapsed();
        if window >= WINDOW {
            let idle = read_idle(&self.stat).unwrap_or_default();
            let to_spare = decide(window, idle.saturating_sub(seen.idle));
            *seen = Seen { at: Instant::now(), idle, to_spare };
        }
        seen.to_spare
    }
}

/// One thread's manners. Made and used on that thread.
pub(crate) struct Courtesy {
    /// None where the thread stays what it is.
    machine: Option<(Arc<Machine>, File)>,
    standing: Arc<Standing>,
    gives_way: bool,
    refusal: Refusal,
    since: Instant,
    requests: u32,
    waited: Duration,
}

impl Courtesy {
    /// For the calling thread, bound to its CPU; without a machine it never gives way.
    pub fn new(machine: Option<Arc<Machine>>, standing: Arc<Standing>) -> Self {
        let machine = machine.zip(File::open("/proc/thread-self/schedstat").ok());
        let waited = machine.as_ref().and_then(|(_, own)| read_waited(own));
        Self {
            machine: machine.filter(|_| waited.is_some()),
            standing,
            gives_way: false,
            refusal: Refusal::default(),
            since: Instant::now(),
            requests: 0,
            waited: waited.unwrap_or_default(),
        }
    }

    /// To be called with every request; looks at the machine now and then.
    pub fn consider(&mut self) {
        self.requests += 1;
        let Some((machine, own)) = &self.machine else { return };
        if self.since.elapsed() < WINDOW {
            return;
        }
        let waited = read_waited(own).unwrap_or(Duration::MAX);
        let wait = waited.saturating_sub(self.waited) / self.requests;
        let now = Instant::now();
        let gives_way = !self.refusal.refuses(now, self.gives_way, wait) && machine.has_idle_cpus();
        (self.since, self.requests, self.waited) = (now, 0, waited);
        self.give_way(gives_way);
    }

    /// Gives way no more, until it is considered again.
    pub fn stop(&mut self) {
        self.give_way(false);
    }

    /// Does what may take long, and gives way to nobody meanwhile: others may wait for what it holds.
    pub fn pause<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let gave_way = self.gives_way;
        self.give_way(false);
        let outcome = work();
        self.give_way(gave_way);
        outcome
    }

    fn give_way(&mut self, gives_way: bool) {
        if self.gives_way != gives_way {
            match self.standing.give_way(gives_way) {
                Ok(()) => self.gives_way = gives_way,
                Err(error) => {
                    tracing::debug!(%error, gives_way, "a thread stays in its scheduling class");
                    self.machine = None;
                }
            }
        }
    }
}

/// Remembers that giving way was taken advantage of.
#[derive(Default)]
struct Refusal {
    until: Option<Instant>,
    pause: Duration,
}

impl Refusal {
    /// Whether not to give way now, after the thread waited `wait` for its CPU per request while it `gave_way` or not.
    fn refuses(&mut self, now: Instant, gave_way: bool, wait: Duration) -> bool {
        if gave_way && wait > PATIENCE {
            self.pause = (self.pause * 2).clamp(REFUSAL_LEAST, REFUSAL_MOST);
            self.until = Some(now + self.pause);
        } else if gave_way {
            self.pause = Duration::ZERO;
        }
        self.until.is_some_and(|until| now < until)
    }
}

/// Whether to give way, after CPUs were idle for `idle` in all during `window`.
fn decide(window: Duration, idle: Duration) -> bool {
    idle * 100 >= window * IDLE_LEAST
}

/// Time that the CPUs have had nothing to run, all together: idle, or waiting for a disk.
fn read_idle(stat: &File) -> Option<Duration> {
    let mut text = [0; 256];
    let length = stat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let mut fields = text.lines().next()?.split_whitespace().skip(4);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs(ticks) / TICKS)
}

/// Time that a thread has waited for its CPU: the second figure, in nanoseconds.
fn read_waited(schedstat: &File) -> Option<Duration> {
    let mut text = [0; 128];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

/// Whether a thread of this process may enter the class and leave it again: leaving takes a privilege.
fn possible() -> bool {
    let enter_and_leave = || sys::set_scheduler(true).and_then(|()| sys::set_scheduler(false));
    let tried = std::thread::Builder::new().spawn(enter_and_leave);
    tried.is_ok_and(|tried| tried.join().is_ok_and(|outcome| outcome.is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_to_spare_only_when_idle() {
        let ms = Duration::from_millis;
        assert!(decide(ms(100), ms(20)));
        assert!(decide(ms(100), ms(6400)), "many CPUs");
        assert!(!decide(ms(100), ms(10)));
        assert!(!decide(ms(100), ms(0)));
        assert!(decide(ms(5000), ms(9000)), "after a pause");
    }

    #[test]
    fn who_has_to_wait_stops_giving_way_for_longer_and_longer() {
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        let start = Instant::now();
        let mut refusal = Refusal::default();
        assert!(!refusal.refuses(start, false, ms(9)), "nobody was let by");
        assert!(!refusal.refuses(start, true, us(20)));
        assert!(refusal.refuses(start, true, ms(3)));
        assert!(refusal.refuses(start + ms(900), false, Duration::ZERO));
        assert!(!refusal.refuses(start + ms(1000), false, Duration::ZERO), "tried again");
        assert!(refusal.refuses(start + ms(1100), true, ms(3)));
        assert!(refusal.refuses(start + ms(3000), false, Duration::ZERO), "two seconds now");
        assert!(!refusal.refuses(start + ms(3100), false, Duration::ZERO));
        assert!(!refusal.refuses(start + ms(3200), true, us(20)), "that went well");
        assert!(refusal.refuses(start + ms(3300), true, ms(3)));
        assert!(!refusal.refuses(start + ms(4300), false, Duration::ZERO), "one second again");
    }

    #[test]
    fn the_class_follows_what_the_machine_does() {
        let Some(machine) = Machine::new() else {
            eprintln!("skipped: this process may not leave SCHED_IDLE");
            return;
        };
        let mut courtesy = Courtesy::new(Some(Arc::clone(&machine)), Arc::new(Standing::of_this_thread()));
        let mut look = |window: Duration, idle: Duration| {
            let now = read_idle(&machine.stat).unwrap();
            *machine.seen.lock() = Seen {
                at: Instant::now().checked_sub(window).unwrap(),
                idle: now.checked_sub(idle).unwrap(),
                to_spare: false,
            };
            courtesy.since -= WINDOW;
            // Whatever else runs here: not what is tested.
            courtesy.waited = Duration::MAX;
            courtesy.consider();
            sys::class(0).unwrap()
        };
        assert_eq!(look(WINDOW, WINDOW), libc::SCHED_IDLE);
        assert_eq!(look(WINDOW, Duration::ZERO), libc::SCHED_OTHER);
        assert_eq!(look(WINDOW * 100, WINDOW * 100), libc::SCHED_IDLE);
    }
}
