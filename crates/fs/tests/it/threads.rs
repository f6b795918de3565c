//! Four threads on the same names: every byte read was written to that file, and nothing is left over.

use crate::bed::{Bed, CALLER, ROOT};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_fs::{Errno, Filesystem};
use ullage_types::NodeId;

fn churn(bed: &Bed, seed: u64, end: Instant) -> u64 {
    let space = bed.space();
    let mut state = seed;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut steps = 0;
    while Instant::now() < end {
        steps += 1;
        let (name, other) = (format!("n{}", random(8)), format!("n{}", random(8)));
        match random(4) {
            0 => {
                let flags = libc::O_RDWR as u32;
                if let Ok((entry, opened)) = space.create(CALLER, ROOT, name.as_bytes(), 0o644, 0, flags) {
                    let stamp = entry.attributes.attributes.ino.to_le_bytes();
                    space.write(entry.node, opened.handle, 8 * random(100), &stamp, 0, None).unwrap();
                    space.release(entry.node, opened.handle);
                    space.forget(entry.node, 1);
                }
            }
            1 => drop(space.unlink(ROOT, name.as_bytes())),
            2 => drop(space.rename(CALLER, ROOT, name.as_bytes(), ROOT, other.as_bytes(), random(3) as u32)),
            _ => {
                let Ok(entry) = space.lookup(ROOT, name.as_bytes()) else { continue };
                if entry.node.0 == 0 {
                    continue;
                }
                if let Ok(opened) = space.open(CALLER, entry.node, libc::O_RDWR as u32) {
                    let mut data = Vec::new();
                    space.read(entry.node, opened.handle, 0, 4096, &mut data).unwrap();
                    let own = entry.attributes.attributes.ino.to_le_bytes();
                    for word in data.chunks_exact(8) {
                        assert!(word == own || word == [0; 8], "another file's bytes");
                    }
                    space.release(entry.node, opened.handle);
                }
                space.forget(entry.node, 1);
            }
        }
    }
    steps
}

/// Makes and removes files; `newest` is the highest number so far.
fn make(bed: &Bed, name: &[u8], newest: &AtomicU64, end: Instant) {
    let space = bed.space();
    while Instant::now() < end {
        let pipe = space.mknod(CALLER, ROOT, name, libc::S_IFIFO | 0o644, 0, 0).unwrap();
        newest.fetch_max(pipe.node.0, Relaxed);
        space.unlink(ROOT, name).unwrap();
        space.forget(pipe.node, 1);
        let directory = space.mkdir(CALLER, ROOT, name, 0o755, 0).unwrap();
        newest.fetch_max(directory.node.0, Relaxed);
        space.rmdir(ROOT, name).unwrap();
        space.forget(directory.node, 1);
    }
}

/// Looks for the next numbers, as open_by_handle_at(2) does.
fn guess(bed: &Bed, newest: &AtomicU64, end: Instant) {
    let space = bed.space();
    while Instant::now() < end {
        let next = newest.load(Relaxed);
        for number in next + 1..next + 4 {
            match space.lookup(NodeId(number), b".") {
                Ok(entry) => space.forget(entry.node, 1),
                Err(error) => assert_eq!(error, Errno::ESTALE),
            }
        }
    }
}

/// The process ended when a file's number was guessed while the file was being made, and a directory's totals could not be read.
#[test]
fn who_guesses_the_handles_of_files_that_are_being_made_harms_nobody() {
    in_time(|| {
        let mut bed = Bed::new();
        let (newest, end) = (AtomicU64::new(1), Instant::now() + Duration::from_millis(1500));
        std::thread::scope(|scope| {
            let (bed, newest) = (&bed, &newest);
            for name in [b"a", b"b"] {
                scope.spawn(move || make(bed, name, newest, end));
            }
            for _ in 0..2 {
                scope.spawn(move || guess(bed, newest, end));
            }
        });
        bed.reopen();
    });
}

#[test]
fn threads_on_the_same_names_leave_nothing_over() {
    in_time(|| {
        let mut bed = Bed::new();
        let end = Instant::now() + Duration::from_millis(1500);
        let steps: u64 = std::thread::scope(|scope| {
            let bed = &bed;
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || churn(bed, seed, end))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(steps > 0);
        bed.reopen();
    });
}

/// Fails the test when `work` has not ended in time; a thread that hangs cannot be ended.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a deadlock"),
        _ => worker.join().unwrap(),
    }
}
