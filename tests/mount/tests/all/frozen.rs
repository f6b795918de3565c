//! A pool whose file system is frozen while it is in use, as for a snapshot, stalls what is about its own files, and nothing else.

use crate::stuck::{Frozen, are_answered, bed_over, end, uring_is_on, while_in_use};
use std::time::Duration;

/// Each time other files are asked for.
const ROUNDS: usize = 3;

fn check(flags: &[&str], transport: &str) {
    let bed = bed_over(flags, transport);
    while_in_use(&bed.stuck, || {
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
