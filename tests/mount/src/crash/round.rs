//! One crash.

use super::verify::verify;
use super::workload::{Load, Worker, directories};
use crate::process;
use crate::space::Space;
use crate::watchdog::end_connection;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;
use ullage_posix_tests::random::Random;

/// Works on an empty space that is up, kills its daemon at a moment that the seed chooses, mostly some of its successors too, brings it up again and looks
/// at everything, while what was open before is still written to. Then empties it. Gives what was found wrong and how
/// many files were promised.
#[track_caller]
pub fn kill(space: &Space, seed: u64) -> (Vec<String>, usize) {
    let mut random = Random::new(seed);
    let load = Load::new(space);
    let directories = directories(&space.mount);
    for (dir, _) in &directories {
        fs::create_dir(dir).expect("the space is up");
    }
    space.sync();
    let pid = space.pid();
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        for (dir, kind) in &directories {
            let worker = Worker::new(&load, dir.clone(), random.bits());
            scope.spawn(move || worker.run(*kind));
        }
        std::thread::sleep(Duration::from_millis(100 + random.below(900)));
        space.drain_a_while(seed, &mut random);
        process::kill(pid);
        load.stop.store(true, Ordering::Relaxed);
        for _ in 0..random.below(4) {
            start_and_kill(space, Duration::from_millis(random.below(250)));
        }
        let outcome = space.try_up();
        if outcome.code == Some(0) {
            wrong.extend(verify(&space.mount, &load.promises.lock()));
            wrong.extend(newcomers(space));
            wrong.extend(verify(&space.mount, &load.promises.lock()));
        } else {
            wrong.push(format!("it does not come up by itself: {}", outcome.err));
            end_connection(&space.mount);
        }
        load.end.store(true, Ordering::Relaxed);
    });
    let promised = load.promises.lock().len();
    if wrong.is_empty() {
        space.compare_du(&space.mount);
        space.compare_pools();
        space.keep_pools();
        space.down_and_check();
        space.up();
        wrong.extend(verify(&space.mount, &load.promises.lock()));
        for (dir, _) in &directories {
            if let Err(error) = fs::remove_dir_all(dir) {
                wrong.push(format!("{} cannot be removed: {error}", dir.display()));
            }
        }
    }
    (wrong, promised)
}

/// Kills the next daemon too, while it recovers or right after.
fn start_and_kill(space: &Space, after: Duration) {
    let mut start = std::process::Command::new(crate::binary::path());
    start.args(space.up_arguments()).arg("--foreground");
    let log = fs::File::options().append(true).open(space.state.join("ullage.log"));
    let mut daemon = start
        .stdin(std::process::Stdio::null())
        .stderr(log.expect("the space has a log"))
        .spawn()
        .expect("the daemon can be started");
    std::thread::sleep(after);
    process::kill(daemon.id());
    let _ = daemon.wait();
}

/// Files that are made after the crash, while old descriptors still write: they hold what was written, and no more.
pub(super) fn newcomers(space: &Space) -> Vec<String> {
    let mut wrong = Vec::new();
    let dir = space.path("worker-new");
    let content = vec![0; 6 * super::cell::BLOCK];
    if let Err(error) = fs::create_dir(&dir) {
        return vec![format!("nothing can be made after the crash: {error}")];
    }
    let names: Vec<_> = (0..60).map(|n| dir.join(format!("n-{n}"))).collect();
    for name in &names {
        if let Err(error) = fs::write(name, &content) {
            wrong.push(format!("{} cannot be written: {error}", name.display()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    for name in &names {
        if !fs::read(name).is_ok_and(|found| found == content) {
            wrong.push(format!("{}, made after the crash, holds bytes of another file", name.display()));
        }
    }
    if let Err(error) = fs::remove_dir_all(&dir) {
        wrong.push(format!("{} cannot be removed: {error}", dir.display()));
    }
    wrong
}
