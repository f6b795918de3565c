//! Whether the file system below a pool answers.
//!
//! A call to one that is frozen, or whose disk hangs, does not return, and a thread that answers the kernel would stand still with it, and with that
//! everybody whose requests it takes, whatever pool theirs are about. Nobody can know before. But what answered a moment ago does so now, as good as
//! always. So such a thread makes a call itself only then: the first one after a pause, and all while a disk is slow or stuck, is a worker's.
//!
//! That leaves who calls just when it stops. What changes a file system stops whenever somebody freezes that, as for a snapshot, under load or not;
//! so a thread that nobody can take the place of leaves all such calls to others. A disk may hang as well just when a file is opened; so that thread
//! opens what the kernel has in memory and was opened before, and leaves the rest to others. Who asks a server, or somebody in user space, may hang in any call, fstat(2) too, so that
//! thread makes none. Not where there is one pool only, with the catalog beside it: what it would hold
//! up is about that disk as well, and handing calls over takes time (a create that finds no file ready 5 %, an open after times were set 60 %,
//! one that has to be fetched from a disk 20 to 40 %).

use crate::{Outcome, hurry};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ullage_pool::Wait;

/// How many milliseconds an answer counts. Who calls again and again is within that; who does not waits for a thread to be woken.
const MOMENT: u64 = 20;

/// What a call does there. One that is frozen can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Reads,
    Writes,
    /// It waits for a flush, however fast a file system answers.
    Flushes,
}

/// When a pool's file system answered last.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    /// There is what goes on when it stops: other pools, or the catalog on another disk.
    others_go_on: AtomicBool,
    /// It asks others even for what it says of an open file, so that no call is made without it.
    is_remote: bool,
    /// When the call of each kind that was answered began: one that took long says nothing good.
    read: AtomicU64,
    written: AtomicU64,
}

impl Answering {
    pub(crate) fn new(is_remote: bool) -> Self {
        Self { is_remote, ..Self::default() }
    }

    /// Says whether others go on when it stops.
    pub(crate) fn set_others_go_on(&self, others_go_on: bool) {
        self.others_go_on.store(others_go_on, Relaxed);
    }

    /// LATER where the calling thread may not wait, and may have to.
    pub(crate) fn at_once(&self, call: Call) -> Outcome<()> {
        let Err(later) = hurry::may_wait() else { return Ok(()) };
        if self.answers(call) { Ok(()) } else { Err(later) }
    }

    /// Whether it can be counted on that a call is answered at once, whoever makes it.
    pub(crate) fn answers(&self, call: Call) -> bool {
        let last = match call {
            Call::Flushes => return false,
            Call::Writes if self.holds_up_others() => return false,
            Call::Reads if self.is_remote && self.holds_up_others() => return false,
            Call::Reads => self.read.load(Relaxed).max(self.written.load(Relaxed)),
            Call::Writes => self.written.load(Relaxed),
        };
        now().saturating_sub(last) <= MOMENT
    }

    /// What the calling thread may wait for to open a file there: who is called at once may hang just then.
    pub(crate) fn wait(&self) -> Wait {
        if self.holds_up_others() { Wait::Nothing } else { Wait::Disk }
    }

    /// Whether the calling thread would hold up what has nothing to do with this pool, and nobody could take its place.
    fn holds_up_others(&self) -> bool {
        self.others_go_on.load(Relaxed) && hurry::is_irreplaceable()
    }

    /// Makes a call.
    pub(crate) fn make<T>(&self, call: Call, what: impl FnOnce() -> T) -> T {
        let began = now();
        let outcome = what();
        let last = match call {
            Call::Reads => &self.read,
            Call::Writes | Call::Flushes => &self.written,
        };
        // Once a tick: other CPUs look at it.
        if last.load(Relaxed) < began {
            last.store(began, Relaxed);
        }
        outcome
    }
}

/// Milliseconds, by the clock that costs least.
fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Errno, hurried, irreplaceable};
    use std::time::Duration;

    #[test]
    fn who_answers_the_kernel_calls_only_what_has_just_answered() {
        let pool = Answering::default();
        let asked = |call| hurried(|| pool.at_once(call));
        // Between a call and the next one this thread may have to wait for a CPU.
        let answers = |made, call| {
            (0..100).any(|_| {
                pool.make(made, || ());
                asked(call).is_ok()
            })
        };
        pool.at_once(Call::Writes).unwrap();
        assert_eq!(asked(Call::Writes), Err(Errno::LATER));
        assert!(answers(Call::Writes, Call::Writes) && answers(Call::Writes, Call::Reads));
        assert!(!answers(Call::Writes, Call::Flushes), "a flush is waited for on any disk");
        std::thread::sleep(Duration::from_millis(2 * MOMENT));
        assert_eq!(asked(Call::Reads), Err(Errno::LATER));
        assert!(answers(Call::Reads, Call::Reads));
        assert_eq!(asked(Call::Writes), Err(Errno::LATER), "it may be frozen");
        pool.make(Call::Writes, || std::thread::sleep(Duration::from_millis(2 * MOMENT)));
        assert_eq!(asked(Call::Writes), Err(Errno::LATER), "it is slow");
    }

    #[test]
    fn who_cannot_be_replaced_changes_nothing_where_others_go_on() {
        let asked = |pool: &Answering, call| {
            (0..100).any(|_| {
                pool.make(Call::Writes, || ());
                irreplaceable(|| pool.at_once(call)).is_ok()
            })
        };
        let (alone, with_others) = (Answering::default(), Answering::default());
        with_others.set_others_go_on(true);
        assert!(asked(&alone, Call::Writes) && asked(&with_others, Call::Reads));
        assert!(!asked(&with_others, Call::Writes));
        assert_eq!(irreplaceable(|| (alone.wait(), with_others.wait())), (Wait::Disk, Wait::Nothing));
        assert_eq!(hurried(|| with_others.wait()), Wait::Disk);
        with_others.at_once(Call::Writes).expect("who may wait may call");
    }

    #[test]
    fn who_cannot_be_replaced_asks_nothing_of_who_asks_others() {
        let pool = Answering::new(true);
        let asked = |by: fn(&dyn Fn() -> Outcome<()>) -> Outcome<()>| {
            (0..100).any(|_| {
                pool.make(Call::Reads, || ());
                by(&|| pool.at_once(Call::Reads)).is_ok()
            })
        };
        assert!(asked(|call| irreplaceable(call)));
        pool.set_others_go_on(true);
        assert!(!asked(|call| irreplaceable(call)) && asked(|call| hurried(call)));
    }
}
