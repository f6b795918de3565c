//! Who of the readers waits at the device.
//!
//! They share one queue, from which the kernel wakes whoever has waited longest, on whatever CPU: every other request is
//! carried to another CPU and back, which takes ten times as long as the request. So while the first reader keeps up with
//! what comes, it alone waits there, on the CPU of whom it answers ([`super::follow`]), and the others wait here: for requests
//! that pile up, or for one that holds the first up.
//!
//! Some more wait here only, for the time when all of those are held up for long: a disk that does not answer takes a reader with it.

use super::crowd::Crowd;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long requests may lie about while all who wait at the device are held up.
const PATIENCE: Duration = Duration::from_millis(2);
/// The same, where that are as many as there usually are: by then nobody comes to such a disk but workers (`ullage_fs::Errno::LATER`).
const LONG: Duration = Duration::from_millis(50);
/// How long after the last request nobody looks after those any more.
const AWAKE: Duration = Duration::from_secs(1);

/// Readers beside those that there usually are. Each further disk that does not answer takes one at least.
pub(crate) const SPARES: usize = 8;

/// The turns of the readers of a connection.
#[derive(Debug)]
pub(crate) struct Turns {
    /// At the device at least, and at most where nobody is held up.
    fewest: usize,
    readers: usize,
    /// Readers of lower numbers wait at the device.
    open: AtomicUsize,
    /// Readers that are at the device, or have a request.
    inside: AtomicUsize,
    /// Requests that readers took up, and those they are done with.
    taken: AtomicU64,
    done: AtomicU64,
    /// The first in line looks every [`PATIENCE`] whether it is needed.
    looks: AtomicBool,
    line: Mutex<Waiting>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Readers in line; the one of the lowest number is next.
    numbers: BTreeSet<usize>,
    ended: bool,
}

/// A reader's place in line.
pub(crate) struct Place {
    turns: std::sync::Arc<Turns>,
    number: usize,
    /// Of the first reader.
    crowd: Crowd,
}

impl Turns {
    /// For so many readers, of which one begins, or all where none `follows` its callers. Others may be there in case those are held up.
    pub fn new(readers: usize, follows: bool) -> Self {
        let fewest = if follows { 1 } else { readers };
        Self {
            fewest,
            readers,
            open: AtomicUsize::new(fewest),
            inside: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            line: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    fn let_in(&self, readers: usize) {
        if self.open.swap(readers, SeqCst) < readers {
            let _held = self.line.lock();
            self.bell.notify_all();
        }
    }

    /// Requests taken up, if so many readers are held up by one each.
    fn held_up(&self, readers: usize) -> Option<u64> {
        let done = self.done.load(SeqCst);
        let taken = self.taken.load(SeqCst);
        (taken - done >= readers as u64).then_some(taken)
    }

    /// Waits in line until this reader is needed. Gives back false at the end of the connection.
    fn stand(&self, number: usize, line: &mut MutexGuard<'_, Waiting>) -> bool {
        let (mut before, mut since) = (None, Instant::now());
        loop {
            if line.ended || number < self.open.load(SeqCst) {
                return !line.ended;
            }
            if line.numbers.first() != Some(&number) {
                self.bell.wait(line);
                since = Instant::now();
                continue;
            }
            let (inside, now) = (self.inside.load(SeqCst), self.taken.load(SeqCst));
            let held_up = self.held_up(inside);
            let patience = if inside < self.readers { PATIENCE } else { LONG };
            if before != Some(now) {
                (before, since) = (Some(now), Instant::now());
            } else if held_up == before && since.elapsed() >= patience {
                if number < self.readers {
                    self.open.store(number + 1, SeqCst);
                }
                return true;
            } else if since.elapsed() >= AWAKE && held_up.is_none() {
                self.looks.store(false, SeqCst);
                // Who took a request up just now has not seen that.
                if self.taken.load(SeqCst) == now {
                    self.bell.wait(line);
                    since = Instant::now();
                }
                self.looks.store(true, SeqCst);
                continue;
            }
            self.bell.wait_for(line, PATIENCE);
        }
    }
}

impl Place {
    /// The place of reader `number`, counted from 0.
    pub fn new(turns: std::sync::Arc<Turns>, number: usize) -> Self {
        turns.inside.fetch_add(1, SeqCst);
        Self { turns, number, crowd: Crowd::default() }
    }

    /// Whether this is the only reader at the device, as far as none is held up.
    pub fn is_alone(&self) -> bool {
        self.turns.open.load(Relaxed) == 1
    }

    /// Waits until this reader is needed at the device. Gives back false at the end of the connection.
    pub fn wait(&self) -> bool {
        let turns = &*self.turns;
        if self.number < turns.open.load(Relaxed) {
            return true;
        }
        let mut line = turns.line.lock();
        let others = turns.inside.load(SeqCst) - 1;
        if self.number >= turns.readers && others > 0 && turns.held_up(others).is_some() {
            // All others are held up still.
            return !line.ended;
        }
        turns.inside.fetch_sub(1, SeqCst);
        line.numbers.insert(self.number);
        let comes = turns.stand(self.number, &mut line);
        line.numbers.remove(&self.number);
        turns.inside.fetch_add(1, SeqCst);
        // Another one is next now.
        turns.bell.notify_all();
        comes
    }

    /// A request was taken up.
    pub fn took(&self) {
        let turns = &*self.turns;
        turns.taken.fetch_add(1, SeqCst);
        if !turns.looks.load(SeqCst) {
            let _held = turns.line.lock();
            turns.looks.store(true, SeqCst);
            turns.bell.notify_all();
        }
    }

    /// It is done with, after it had been waited for so long; of this caller, 0 where nobody waits for an answer.
    pub fn did(&mut self, caller: u32, waited: Duration) {
        self.turns.done.fetch_add(1, SeqCst);
        if self.number == 0
            && caller != 0
            && let Some(crowded) = self.crowd.saw(caller, waited, Instant::now)
        {
            self.turns.let_in(if crowded { self.turns.readers } else { self.turns.fewest });
        }
    }
}

impl Drop for Place {
    /// A reader ends when the connection does, or breaks it off.
    fn drop(&mut self) {
        let mut line = self.turns.line.lock();
        line.ended = true;
        self.turns.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_millis(10);

    fn two() -> (Place, Arc<Turns>) {
        let turns = Arc::new(Turns::new(2, true));
        (Place::new(Arc::clone(&turns), 0), turns)
    }

    /// The second reader's thread, and what tells when it is let in.
    fn second(turns: &Arc<Turns>) -> std::sync::mpsc::Receiver<bool> {
        let (tells, told) = channel();
        let place = Place::new(Arc::clone(turns), 1);
        std::thread::spawn(move || tells.send(place.wait()));
        told
    }

    #[test]
    fn the_second_waits_while_the_first_keeps_up() {
        let (mut first, turns) = two();
        let told = second(&turns);
        for _ in 0..100 {
            first.took();
            first.did(1, LONG);
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(first.is_alone() && told.try_recv().is_err());
        drop(first);
        assert!(!told.recv_timeout(Duration::from_secs(10)).unwrap(), "told that it is over");
    }

    #[test]
    fn the_second_comes_when_the_first_is_held_up_also_after_a_rest() {
        for rest in [Duration::ZERO, AWAKE + LONG * 10] {
            let (mut first, turns) = two();
            let told = second(&turns);
            std::thread::sleep(rest);
            first.took();
            assert!(told.recv_timeout(Duration::from_secs(10)).unwrap());
            assert!(!first.is_alone());
            first.did(1, LONG);
        }
    }

    /// With as many requests on disks that do not answer as there were readers, nobody was left to answer anything.
    #[test]
    fn others_come_when_all_are_held_up_for_long_and_stay_until_one_is_not() {
        for (readers, follows) in [(1, true), (2, false)] {
            let turns = Arc::new(Turns::new(readers, follows));
            let mut usual: Vec<_> = (0..readers).map(|number| Place::new(Arc::clone(&turns), number)).collect();
            assert!(usual.iter().all(Place::wait));
            let (tells, told) = channel();
            let mut spare = Place::new(Arc::clone(&turns), readers);
            let (goes_on, waits) = channel();
            std::thread::spawn(move || {
                for _ in 0..3 {
                    let comes = spare.wait();
                    tells.send((comes, Instant::now())).unwrap();
                    if comes {
                        spare.took();
                        spare.did(1, LONG);
                    }
                    waits.recv().unwrap();
                }
            });
            let next = || told.recv_timeout(Duration::from_secs(10));
            // It has to be in line first: who comes later finds all held up, and waits no more.
            while turns.inside.load(SeqCst) > readers {
                std::thread::yield_now();
            }
            drop(turns.line.lock());
            let began = Instant::now();
            usual.iter().for_each(Place::took);
            assert!(matches!(next(), Ok((true, at)) if at - began >= super::LONG));
            goes_on.send(()).unwrap();
            assert!(next().unwrap().0, "still needed");
            usual[0].did(1, LONG);
            goes_on.send(()).unwrap();
            assert!(told.recv_timeout(LONG * 10).is_err(), "no longer");
            drop(usual);
            assert!(!next().unwrap().0);
        }
    }

    #[test]
    fn all_come_when_requests_pile_up() {
        let (mut first, turns) = two();
        let told = second(&turns);
        for caller in 1..1000 {
            first.took();
            first.did(caller, Duration::ZERO);
        }
        assert!(!first.is_alone() && told.recv_timeout(Duration::from_secs(10)).unwrap());
    }
}
