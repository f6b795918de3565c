//! A reader that is alone at the device runs where whoever it answers does.
//!
//! A request is handed over and its answer back within a CPU in a tenth of the time that it takes between two. Where the
//! caller runs is looked up now and then: it stays there, as long as the reader gives way to it ([`crate::courtesy`]).

use crate::affinity::Mask;
use crate::courtesy::{Courtesy, Machine};
use crate::standing::Standing;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at a caller; one takes 10 to 15 µs.
const BETWEEN: Duration = Duration::from_millis(4);
/// Requests between two looks at the clock.
const FEW: u32 = 16;

/// Where one reader runs. Made and used on its thread.
pub(crate) struct Follow {
    mask: Mask,
    /// Its own CPU, where it runs while it is not alone.
    home: usize,
    at: Option<usize>,
    courtesy: Courtesy,
    alone: bool,
    requests: u32,
    looked: Instant,
}

impl Follow {
    /// For the calling thread, which is at home on this CPU.
    pub fn new(home: usize, machine: Option<Arc<Machine>>, standing: Arc<Standing>) -> Self {
        let mask = Mask::of_this_thread();
        let at = mask.bind(home).then_some(home);
        let courtesy = Courtesy::new(machine, standing);
        Self { mask, home, at, courtesy, alone: false, requests: 0, looked: Instant::now() }
    }

    /// A request of this process was answered, 0 if that is not known, while the reader was alone or not.
    ///
    /// Not before it is answered: who closes files in execve(2) waits for the answer, and who looks at him waits until he has done that.
    pub fn consider(&mut self, pid: u32, alone: bool) {
        if self.alone != alone {
            self.alone = alone;
            self.requests = FEW;
            if !alone {
                self.courtesy.stop();
                self.go_to(self.home);
            }
        }
        if !alone || pid == 0 {
            return;
        }
        self.courtesy.consider();
        self.requests += 1;
        if self.requests < FEW || self.looked.elapsed() < BETWEEN {
            return;
        }
        (self.requests, self.looked) = (0, Instant::now());
        if let Some(cpu) = cpu_of(pid) {
            self.go_to(cpu);
        }
    }

    fn go_to(&mut self, cpu: usize) {
        if self.at != Some(cpu) && self.mask.bind(cpu) {
            self.at = Some(cpu);
        }
    }
}

/// The CPU on which a thread ran last.
fn cpu_of(thread: u32) -> Option<usize> {
    parse(&std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The 39th field, counted behind the name, which may have blanks and brackets in it.
fn parse(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_alone_goes_where_the_caller_is_and_home_when_others_come() {
        let allowed = crate::affinity::allowed();
        let [home, other, ..] = allowed[..] else {
            eprintln!("skipped: there is one CPU");
            return;
        };
        std::thread::spawn(move || {
            let here = || rustix::thread::sched_getcpu();
            let (tells, told) = std::sync::mpsc::channel();
            let caller = std::thread::spawn(move || {
                assert!(Mask::of_this_thread().bind(other));
                tells.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                std::thread::park();
            });
            let pid = told.recv().unwrap();
            let mut follow = Follow::new(home, None, Arc::new(Standing::of_this_thread()));
            assert_eq!(here(), home);
            follow.looked -= BETWEEN;
            follow.consider(pid, true);
            assert_eq!(here(), other);
            follow.consider(pid, false);
            assert_eq!(here(), home);
            follow.consider(u32::MAX, true);
            assert_eq!(here(), home, "nobody of that number");
            caller.thread().unpark();
            caller.join().unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_cpu_is_found_behind_any_name() {
        let fields = (3..53).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse(&format!("17 (a) b) (c) {fields}")), Some(39));
        assert_eq!(parse("17 (short) S 1"), None);
        assert_eq!(parse(""), None);
    }
}
