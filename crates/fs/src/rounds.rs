//! fsync(2)s that meet go to the disk together: who comes while several flush waits for these, then the log is written once for
//! all that waited, and one commit of the file system below takes all their files. Each by itself writes a block of the
//! log, and comes too late for the commit that the others are in.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// So many flush without waiting for each other: two already meet in the commits of the file system below.
const AT_ONCE: u32 = 2;

/// Nobody waits longer than this for others: theirs may be a large file, or a disk that is stuck.
const PATIENCE: Duration = Duration::from_millis(2);

/// Who flushes now, and who comes next.
#[derive(Default)]
pub(crate) struct Rounds {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Default)]
struct State {
    /// Counts the rounds: who waits is in the one that has not begun.
    next: u64,
    flushing: u32,
}

/// One that flushes; dropped when that is done.
pub(crate) struct Flushing<'a>(&'a Rounds);

impl Rounds {
    /// Waits until it is this one's turn.
    pub(crate) fn enter(&self) -> Flushing<'_> {
        let mut state = self.state.lock();
        let round = state.next;
        if state.flushing >= AT_ONCE {
            let until = Instant::now() + PATIENCE;
            while state.flushing >= AT_ONCE && state.next == round {
                if self.turn.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
        }
        if state.next == round {
            state.next += 1;
        }
        state.flushing += 1;
        Flushing(self)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.flushing -= 1;
        if state.flushing < AT_ONCE {
            self.0.turn.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn who_waited_goes_on_together_when_the_others_are_done() {
        let rounds = Rounds::default();
        let (first, second) = (rounds.enter(), rounds.enter());
        let (ended, end) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let (told, tells) = mpsc::channel();
            for _ in 0..5 {
                let told = told.clone();
                let (rounds, ended, end) = (&rounds, &ended, &end);
                scope.spawn(move || {
                    let began = Instant::now();
                    let flushing = rounds.enter();
                    told.send(began.elapsed()).unwrap();
                    let mut ended = ended.lock();
                    while !*ended {
                        end.wait(&mut ended);
                    }
                    drop(flushing);
                });
            }
            drop(first);
            // Without waiting for each other, though none of them has ended.
            for _ in 0..5 {
                assert!(tells.recv_timeout(Duration::from_secs(10)).unwrap() < Duration::from_secs(5));
            }
            assert_eq!(rounds.state.lock().flushing, 6);
            *ended.lock() = true;
            end.notify_all();
        });
        drop(second);
        assert_eq!(rounds.state.lock().flushing, 0);
    }

    #[test]
    fn nobody_waits_long_for_a_disk_that_is_stuck() {
        let rounds = Rounds::default();
        let _stuck = [rounds.enter(), rounds.enter(), rounds.enter()];
        let began = Instant::now();
        let _fourth = rounds.enter();
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < Duration::from_secs(5));
    }
}
