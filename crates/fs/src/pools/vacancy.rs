//! What pools say of the room in them, for who may not wait until all of them have said so: one that does not answer keeps nobody from the others.

use crate::threads;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_pool::Usage;

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
    /// What it said, and when that was asked.
    usage: Option<(Usage, Instant)>,
    asked: Option<Instant>,
}

impl Vacancy {
    /// What a pool said that was just asked.
    pub(crate) fn said(&self, usage: Usage) {
        self.0.known.lock().usage = Some((usage, Instant::now()));
    }

    /// What a pool said last, however long ago, where it does not say what `asks` finds out.
    pub(crate) fn last(&self, asks: impl FnOnce() -> Usage + Send + 'static) -> Usage {
        let lately = self.lately(asks);
        lately.or_else(|| self.0.known.lock().value(Duration::MAX)).unwrap_or_default()
    }

    /// What a pool says, which `asks` finds out, or said lately; none where it does not answer.
    pub(crate) fn lately(&self, asks: impl FnOnce() -> Usage + Send + 'static) -> Option<Usage> {
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
        self.usage.is_some_and(|(_, since)| since.elapsed() < age)
    }

    fn value(&self, age: Duration) -> Option<Usage> {
        self.usage.filter(|(_, since)| since.elapsed() < age).map(|(usage, _)| usage)
    }
}

impl Shared {
    fn ask(&self, asks: impl FnOnce() -> Usage) {
        let began = Instant::now();
        let usage = asks();
        let mut known = self.known.lock();
        known.asked = None;
        // Somebody may have asked after that, and been told before.
        if known.usage.is_none_or(|(_, since)| since <= began) {
            known.usage = Some((usage, began));
        }
        self.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use ullage_types::Bytes;

    /// Everybody who opened a file for writing in a pool that was nearly full waited for the other pools.
    #[test]
    fn who_does_not_answer_has_no_room_and_is_not_waited_for() {
        let vacancy = Vacancy::default();
        let (answers, waits) = mpsc::channel::<u64>();
        let waits = Arc::new(Mutex::new(waits));
        let free = |bytes| Usage { free: Bytes(bytes), ..Usage::default() };
        let asks = || {
            let waits = waits.clone();
            move || free(waits.lock().recv().unwrap_or(0))
        };
        let ask = || vacancy.lately(asks()).map(|usage| usage.free.0);
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
        vacancy.said(free(7));
        assert_eq!(ask(), Some(7));
        // However long ago that was, it is the best that is known.
        vacancy.0.known.lock().usage = Instant::now().checked_sub(2 * STALE).map(|since| (free(7), since));
        assert_eq!((ask(), vacancy.last(asks()).free), (None, Bytes(7)));
        drop(answers);
    }
}
