//! Threads in the same few directories: nothing hangs, and what is left is whole, at every cut on the way too.

use crate::bed::{Bed, at};
use crate::named::new;
use crate::world::Random;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use ullage_catalog::{Catalog, Error, Inode, verify};
use ullage_types::{Class, FileId, Kind, ROOT};

const THREADS: u64 = 4;
const LIMIT: Duration = Duration::from_secs(60);

/// Fails the test when `work` has not ended in time; a thread that hangs cannot be ended.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a deadlock: nothing ended in {LIMIT:?}"),
        _ => worker.join().unwrap(),
    }
}

struct Worker {
    catalog: Arc<Catalog>,
    random: Random,
    clock: Arc<AtomicI64>,
}

impl Worker {
    fn name(&mut self) -> [u8; 1] {
        [b'a' + self.random.below(6) as u8]
    }

    /// Some directory below the root, by a walk of random length.
    fn directory(&mut self) -> Arc<Inode> {
        let mut at = self.catalog.root().clone();
        for _ in 0..self.random.below(4) {
            let name = self.name();
            match self.catalog.lookup(&at, &name) {
                Ok(Some(next)) if next.is_directory() => at = next,
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => panic!("a look-up failed: {error}"),
            }
        }
        at
    }

    fn file(&mut self) -> Option<Arc<Inode>> {
        let directory = self.directory();
        let name = self.name();
        self.catalog.lookup(&directory, &name).ok().flatten()
    }

    fn step(&mut self) {
        let now = at(self.clock.fetch_add(1, Relaxed));
        let (from, to) = (self.directory(), self.directory());
        let (name, to_name) = (self.name(), self.name());
        let catalog = self.catalog.clone();
        let outcome = match self.random.below(16) {
            0..4 => {
                let kind = [Kind::Regular, Kind::Directory, Kind::Fifo][self.random.below(3)];
                catalog.create(&from, &name, new(&catalog, kind), now).map(drop)
            }
            4 => catalog.create_unnamed(&from, new(&catalog, Kind::Regular), now).and_then(|file| {
                let linked = catalog.link(&file, &to, &name, now);
                if linked.is_err() { catalog.remove(&file).map(drop) } else { linked }
            }),
            5 => self.file().map_or(Ok(()), |file| catalog.link(&file, &to, &name, now)),
            6 | 7 => catalog
                .unlink(&from, &name, now)
                .and_then(|gone| if gone.last { catalog.remove(&gone.file).map(drop) } else { Ok(()) }),
            8 => catalog.rmdir(&from, &name, now).and_then(|gone| catalog.remove(&gone.file).map(drop)),
            9..12 => catalog.rename((&from, &name), (&to, &to_name), false, now).and_then(|renamed| {
                let gone = renamed.replaced.filter(|replaced| replaced.last);
                gone.map_or(Ok(()), |replaced| catalog.remove(&replaced.file).map(drop))
            }),
            12 => catalog.exchange((&from, &name), (&to, &to_name), now).map(drop),
            13 => catalog.list(&from, 0, u64::MAX, 100).map(drop),
            14 => self.file().map_or(Ok(()), |file| {
                catalog.update(&file, |record| {
                    record.uid = (now.seconds % 3) as u32;
                    record.class = Class::from_u8((now.seconds % 3) as u8).unwrap();
                    if record.kind == Kind::Regular {
                        record.blocks = now.seconds as u64 % 50;
                    }
                    Ok(())
                })
            }),
            _ => self.file().map_or(Ok(()), |file| {
                catalog.set_xattr(&file, &name, &[0; 300], ullage_catalog::XattrMode::Any, now, |_| {})
            }),
        };
        if let Err(error @ (Error::Damaged(_) | Error::Kv(_))) = outcome {
            panic!("an operation failed: {error}");
        }
    }
}

fn workers(catalog: &Arc<Catalog>, stop: &Arc<AtomicBool>, seed: u64) -> Vec<std::thread::JoinHandle<u64>> {
    let clock = Arc::new(AtomicI64::new(1));
    (0..THREADS)
        .map(|thread| {
            let mut worker =
                Worker { catalog: catalog.clone(), random: Random(seed * 1000 + thread), clock: clock.clone() };
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut steps = 0;
                while !stop.load(Relaxed) {
                    worker.step();
                    steps += 1;
                }
                steps
            })
        })
        .collect()
}

/// Runs the workers while cuts are taken, and checks what is left.
fn churn(mut bed: Bed, seed: u64, length: Duration, power_goes: bool) {
    let catalog = bed.catalog();
    let stop = Arc::new(AtomicBool::new(false));
    let workers = workers(&catalog, &stop, seed);
    let end = std::time::Instant::now() + length;
    while std::time::Instant::now() < end {
        catalog.sync().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Relaxed);
    let steps: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(steps > 0);
    drop(catalog);
    if power_goes {
        bed.cut(&mut Random(seed));
    } else {
        bed.catalog().sync().unwrap();
    }
    assert_eq!(verify(bed.kv()).unwrap().findings, []);
    let catalog = bed.catalog();
    for orphan in catalog.orphans().unwrap() {
        catalog.remove(&catalog.get(orphan).unwrap()).unwrap();
    }
    assert_eq!(catalog.orphans().unwrap(), [] as [FileId; 0]);
    catalog.sync().unwrap();
    let report = verify(bed.kv()).unwrap();
    assert_eq!(report.findings, []);
    let inodes: u64 = catalog.get(ROOT).unwrap().totals().now().actual.0.iter().map(|charge| charge.inodes).sum();
    assert_eq!(inodes, report.files);
}

#[test]
fn threads_in_the_same_directories_leave_them_whole() {
    in_time(|| churn(Bed::memory(), 1, Duration::from_secs(1), false));
}

#[test]
fn power_that_goes_under_threads_leaves_them_whole() {
    in_time(|| (2..8).for_each(|seed| churn(Bed::machine(), seed, Duration::from_millis(200), true)));
}

/// Whoever came second may not overlook the first: the directory would stay for good.
#[test]
fn a_directory_goes_when_it_and_its_last_file_are_let_go_of_at_once() {
    in_time(|| {
        let bed = Bed::memory();
        let catalog = bed.catalog();
        let root = catalog.root().clone();
        for round in 0..3000 {
            let directory = catalog.create(&root, b"d", new(&catalog, Kind::Directory), at(round)).unwrap();
            let file = catalog.create_unnamed(&directory, new(&catalog, Kind::Regular), at(round)).unwrap();
            catalog.rmdir(&root, b"d", at(round)).unwrap();
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                for gone in [&file, &directory] {
                    let (catalog, start) = (&catalog, &start);
                    scope.spawn(move || {
                        start.wait();
                        catalog.remove(gone).unwrap();
                    });
                }
            });
            assert_eq!(catalog.orphans().unwrap(), [] as [FileId; 0], "round {round}");
        }
    });
}
