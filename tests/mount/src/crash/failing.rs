//! One failure.

use super::fault::Fault;
use super::round::newcomers;
use super::verify::verify;
use super::workload::{Load, Worker, directories};
use crate::space::{Space, daemons};
use crate::watchdog::is_mounted;
use crate::{binary, process};
use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use ullage_posix_tests::random::Random;

/// How long the load goes on.
const WORK: Duration = Duration::from_millis(400);
/// How long a start may take whose calls fail, traced call by call.
const START: Duration = Duration::from_secs(30);

/// What came of a failure.
#[derive(Debug, Default)]
pub struct Failed {
    /// What is wrong.
    pub wrong: Vec<String>,
    /// Files that were promised.
    pub promised: usize,
    /// Calls that failed, under load and at a start.
    pub calls: (usize, usize),
}

/// Works on an empty space that is up while a call of its daemon fails, then looks at everything; kills the daemon, lets a call fail while the
/// next one recovers, kills that too, and looks at everything once more. Then empties the space.
#[track_caller]
pub fn fail(space: &Space, fault: &Fault, seed: u64) -> Failed {
    let mut random = Random::new(seed);
    let load = Load::of_failures();
    let directories = directories(&space.mount);
    for (dir, _) in &directories {
        fs::create_dir(dir).expect("the space is up");
    }
    space.sync();
    let (pid, log) = (space.pid(), space.ground.path().join("strace.log"));
    let mut failed = Failed::default();
    std::thread::scope(|scope| {
        let failing = fault.befall(pid, log.clone()).expect("strace can be started");
        for (dir, kind) in &directories {
            let worker = Worker::new(&load, dir.clone(), random.bits());
            scope.spawn(move || worker.run(*kind));
        }
        std::thread::sleep(WORK);
        load.stop.store(true, Ordering::Relaxed);
        failed.calls.0 = failing.end();
        load.end.store(true, Ordering::Relaxed);
    });
    let promises = load.promises.lock();
    failed.promised = promises.len();
    let wrong = &mut failed.wrong;
    if process::runs(pid) {
        wrong.extend(verify(&space.mount, &promises).into_iter().map(|it| format!("while it is up: {it}")));
    } else {
        wrong.push("the daemon has ended".into());
    }
    process::kill(pid);
    failed.calls.1 = start(space, fault, wrong);
    let outcome = space.try_up();
    if outcome.code != Some(0) {
        wrong.push(format!("it does not come up by itself: {}", outcome.err));
        return failed;
    }
    wrong.extend(verify(&space.mount, &promises));
    wrong.extend(newcomers(space));
    if wrong.is_empty() {
        space.compare_du(&space.mount);
        space.compare_pools();
        space.down_and_check();
        space.up();
        wrong.extend(verify(&space.mount, &promises));
        for (dir, _) in &directories {
            if let Err(error) = fs::remove_dir_all(dir) {
                wrong.push(format!("{} cannot be removed: {error}", dir.display()));
            }
        }
    }
    failed
}

/// A start of which a call fails: it serves or says why not, and whatever it did is no hindrance for the next. Gives how many calls failed.
fn start(space: &Space, fault: &Fault, wrong: &mut Vec<String>) -> usize {
    let mut program = Command::new(binary::path());
    program.args(space.up_arguments()).arg("--foreground");
    let mut failing = fault.start(&program, space.ground.path().join("strace.log")).expect("strace can be started");
    let began = Instant::now();
    let serves = || is_mounted(&space.mount) && fs::metadata(space.mount.join("worker-0")).is_ok();
    while !failing.has_ended() && !serves() {
        if began.elapsed() > START {
            wrong.push("it neither starts nor ends".into());
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let calls = failing.end();
    for pid in daemons(&space.state) {
        process::kill(pid);
    }
    calls
}
