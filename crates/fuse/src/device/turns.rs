//! Who of the readers waits at the device.
//!
//! They share one queue, from which the kernel wakes whoever has waited longest, on whatever CPU: every other request is
//! carried to another CPU and back, which takes ten times as long as the request. So while the first reader keeps up with
//! what comes, it alone waits there, on the CPU of whom it answers ([`super::follow`]), and the others wait here: for requests
//! that pile up, or for one that holds the first up.

use super::crowd::Crowd;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long requests may lie about while all who wait at the device are held up.
const PATIENCE: Duration = Duration::from_millis(2);
/// How long after the last request nobody looks after those any more.
const AWAKE: Duration = Duration::from_secs(1);

/// The turns of the readers of a connection.
#[derive(Debug)]
pub(crate) struct Turns {
    readers: usize,
    /// Readers of lower numbers wait at the device.
    open: AtomicUsize,
    /// Requests that readers took up, and those they are done with.
    taken: AtomicU64,
    done: AtomicU64,
    /// The next reader looks every [`PATIENCE`] whether it is needed.
    looks: AtomicBool,
    ended: Mutex<bool>,
    bell: Condvar,
}

/// A reader's place in line.
pub(crate) struct Place {
    turns: std::sync::Arc<Turns>,
    number: usize,
    /// Of the first reader.
    crowd: Crowd,
}

impl Turns {
    /// For so many readers, of which one begins.
    pub fn new(readers: usize) -> Self {
        Self {
            readers,
            open: AtomicUsize::new(1),
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            ended: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    fn let_in(&self, readers: usize) {
        if self.open.swap(readers, SeqCst) < readers {
            let _held = self.ended.lock();
            self.bell.notify_all();
        }
    }

    /// Requests taken up, if every reader at the device is held up by one.
    fn held_up(&self) -> Option<u64> {
        let done = self.done.load(SeqCst);
        let taken = self.taken.load(SeqCst);
        (taken - done >= self.open.load(SeqCst) as u64).then_some(taken)
    }
}

impl Place {
    /// The place of reader `number`, counted from 0.
    pub fn new(turns: std::sync::Arc<Turns>, number: usize) -> Self {
        Self { turns, number, crowd: Crowd::default() }
    }

    /// Whether this is the only reader at the device.
    pub fn is_alone(&self) -> bool {
        self.turns.open.load(Relaxed) == 1
    }

    /// Waits until this reader is needed at the device. Gives back false at the end of the connection.
    pub fn wait(&self) -> bool {
        let turns = &*self.turns;
        if self.number < turns.open.load(Relaxed) {
            return true;
        }
        let mut ended = turns.ended.lock();
        let (mut before, mut since) = (None, Instant::now());
        loop {
            let open = turns.open.load(SeqCst);
            if *ended || self.number < open {
                return !*ended;
            }
            if self.number > open {
                turns.bell.wait(&mut ended);
                continue;
            }
            // The next in line.
            let now = turns.taken.load(SeqCst);
            if before != Some(now) {
                (before, since) = (Some(now), Instant::now());
            } else if turns.held_up() == before && since.elapsed() >= PATIENCE {
                turns.open.store(open + 1, SeqCst);
                // The one after is next now.
                turns.bell.notify_all();
                return true;
            } else if since.elapsed() >= AWAKE && turns.held_up().is_none() {
                turns.looks.store(false, SeqCst);
                // Who took a request up just now has not seen that.
                if turns.taken.load(SeqCst) == now {
                    turns.bell.wait(&mut ended);
                    since = Instant::now();
                }
                turns.looks.store(true, SeqCst);
                continue;
            }
            turns.bell.wait_for(&mut ended, PATIENCE);
        }
    }

    /// A request was taken up.
    pub fn took(&self) {
        let turns = &*self.turns;
        turns.taken.fetch_add(1, SeqCst);
        if turns.readers > 1 && !turns.looks.load(SeqCst) {
            let _held = turns.ended.lock();
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
            self.turns.let_in(if crowded { self.turns.readers } else { 1 });
        }
    }
}

impl Drop for Place {
    /// A reader ends when the connection does, or breaks it off.
    fn drop(&mut self) {
        let mut ended = self.turns.ended.lock();
        *ended = true;
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
        let turns = Arc::new(Turns::new(2));
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
