//! What is free in pools, for who may not wait until all of them have said so: one that does not answer keeps nobody from the others.

use crate::threads;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long what a pool said is as good as news.
const NEWS: Duration = Duration::from_millis(200);
/// And so long it is better than nothing: a pool that says nothing else in that time has no room.
const STALE: Duration = Duration::from_secs(2);
/// How long an answer is waited for. One that is late is there for who comes next.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is known of one pool.
#[derive(Default)]
pub(crate) struct Vacancy(Arc<Shared>);

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    bell: Condvar,
}

#[derive(Default)]
struct Known {
    /// Bytes that were free, and when that was asked.
    free: Option<(u64, Instant)>,
    asked: Option<Instant>,
}

impl Vacancy {
    /// Bytes that are free in a pool, which `asks` finds out, or were lately; none where it does not say.
    pub(crate) fn free(&self, asks: impl FnOnce() -> u64 + Send + 'static) -> Option<u64> {
        let mut known = self.0.known.lock();
        if known.is_since(NEWS) {
            return known.value(NEWS);
        }
        if known.asked.is_none() {
            known.asked = Some(Instant::now());
            let shared = self.0.clone();
            let started = threads::start("vacancy", move || shared.ask(asks));
            if started.is_err() {
                known.asked = None;
                return known.value(STALE);
            }
        }
        let until = known.asked.map_or_else(Instant::now, |asked| asked + PATIENCE);
        while known.asked.is_some() && !self.0.bell.wait_until(&mut known, until).timed_out() {}
        known.value(STALE)
    }
}

impl Known {
    fn is_since(&self, age: Duration) -> bool {
        self.free.is_some_and(|(_, since)| since.elapsed() < age)
    }

    fn value(&self, age: Duration) -> Option<u64> {
        self.free.filter(|(_, since)| since.elapsed() < age).map(|(free, _)| free)
    }
}

impl Shared {
    fn ask(&self, asks: impl FnOnce() -> u64) {
        let began = Instant::now();
        let free = asks();
        let mut known = self.known.lock();
        (known.free, known.asked) = (Some((free, began)), None);
        self.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Everybody who opened a file for writing in a pool that was nearly full waited for the other pools.
    #[test]
    fn who_does_not_answer_has_no_room_and_is_not_waited_for() {
        let vacancy = Vacancy::default();
        let (answers, waits) = mpsc::channel::<u64>();
        let waits = Arc::new(Mutex::new(waits));
        let ask = || {
            let waits = waits.clone();
            vacancy.free(move || waits.lock().recv().unwrap_or(0))
        };
        let began = Instant::now();
        for _ in 0..1000 {
            assert_eq!(ask(), None);
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        answers.send(7).unwrap();
        while vacancy.0.known.lock().asked.is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What it said is old by now: it is as of when it was asked.
        vacancy.0.known.lock().free = Some((7, Instant::now()));
        assert_eq!(ask(), Some(7));
        drop(answers);
    }
}
