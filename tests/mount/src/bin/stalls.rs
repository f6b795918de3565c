//! `stalls --longest MS COMMAND…`: runs a command on a machine that stands still again and again, as a host's neighbours have it.
//!
//! A thread of the highest real-time class takes each CPU for a while, at random, from everything else that runs there. What depends on the order
//! in which threads get their turns comes to light by that.

#![deny(missing_docs)]

use clap::Parser;
use rustix::thread::CpuSet;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use ullage_mount_tests::come_first;
use ullage_posix_tests::random::Random;

/// Between two stalls of a CPU, at least and at most.
const BETWEEN: (u64, u64) = (50, 350);

#[derive(Parser)]
struct Arguments {
    /// How long a stall lasts at most, in milliseconds
    #[arg(long, default_value_t = 130)]
    longest: u64,
    /// Repeats what an earlier run did
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to run
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Takes a CPU for itself, and says whether it could.
fn take(cpu: usize) -> bool {
    let mut own = CpuSet::new();
    own.set(cpu);
    rustix::thread::sched_setaffinity(None, &own).is_ok() && come_first()
}

fn stall(longest: u64, mut random: Random) {
    loop {
        std::thread::sleep(Duration::from_millis(BETWEEN.0 + random.below(BETWEEN.1 - BETWEEN.0)));
        let until = Instant::now() + Duration::from_millis(random.below(longest.max(1)));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

fn main() -> ExitCode {
    let Arguments { longest, seed, command } = Arguments::parse();
    let (tells, told) = mpsc::channel();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for cpu in 0..cpus {
        let tells = tells.clone();
        std::thread::spawn(move || {
            let _ = tells.send(take(cpu));
            stall(longest, Random::new(seed + cpu as u64));
        });
    }
    if !told.iter().take(cpus).all(|took| took) {
        eprintln!("stalls: a CPU cannot be taken from others: that needs root");
        return ExitCode::FAILURE;
    }
    match Command::new(&command[0]).args(&command[1..]).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("stalls: {}: {error}", command[0]);
            ExitCode::FAILURE
        }
    }
}
