//! A pool whose file system is frozen while it is in use, as for a snapshot, stalls what is about its own files, and nothing else.

use crate::stuck::{Ends, Frozen, are_answered, bed_over, cpus, end, uring_is_on};
use std::fs::{FileTimes, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Each time other files are asked for.
const ROUNDS: usize = 3;

/// Calls to the pool without a pause, by a thread of one CPU.
fn keep_busy(file: &Path, cpu: usize, over: &AtomicBool) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    while !over.load(Relaxed) {
        let file = OpenOptions::new().write(true).truncate(true).open(file).unwrap();
        file.set_len(100).unwrap();
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
    }
}

fn check(flags: &[&str], transport: &str) {
    let bed = bed_over(flags, transport);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (cpu, file) in cpus().into_iter().take(8).zip(&bed.stuck) {
            let over = &over;
            scope.spawn(move || keep_busy(file, cpu, over));
        }
        // Also where a check fails: they end then.
        let _ends = Ends(&over);
        for round in bed.lively.chunks(bed.lively.len() / ROUNDS).take(ROUNDS) {
            std::thread::sleep(Duration::from_millis(100));
            let _frozen = Frozen::new(&bed.frozen);
            are_answered(round);
        }
    });
    end(bed, Vec::new());
}

#[test]
fn a_pool_that_is_frozen_in_use_stalls_only_its_own_requests() {
    check(&["--transport", "device"], "/dev/fuse");
}

/// The thread of a CPU's queue made such calls itself, as they had been answered a moment ago, and all requests of that CPU waited for the thaw.
#[test]
fn a_pool_that_is_frozen_in_use_stalls_only_its_own_requests_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring");
    }
}
