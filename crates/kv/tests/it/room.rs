//! A disk that others have filled: nothing is lost, the engine waits, and goes on when there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ullage_kv::{Batch, EngineKind, Kv, Options, Room, Store};

#[derive(Default)]
struct Disk {
    full: AtomicBool,
}

impl Room for Disk {
    fn is_there(&self) -> bool {
        !self.full.load(Ordering::Relaxed)
    }

    fn most_waiting(&self) -> usize {
        100_000
    }
}

fn put(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(number.to_be_bytes().to_vec(), vec![7; 1000]);
        store.commit(batch).unwrap();
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_the_engine_has_no_room_for_stays_in_the_log_until_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { interval: Some(Duration::from_millis(5)), ..Options::default() };
    let open = || Store::open(directory.path(), EngineKind::Fjall, options).unwrap();
    let disk = Arc::new(Disk::default());
    let store = open();
    store.set_room(disk.clone());
    put(&store, 0..10);
    eventually("it is in the engine", || store.stats().applied == store.newest());

    disk.full.store(true, Ordering::Relaxed);
    let before = store.stats().applied;
    put(&store, 10..20);
    eventually("it is durable", || store.durable() == store.newest());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(store.stats().applied, before);
    assert!(!store.is_tight());
    put(&store, 20..200);
    eventually("much is waiting", || store.is_tight());
    assert_eq!(store.get(&150u32.to_be_bytes()).unwrap(), Some(vec![7; 1000]));

    disk.full.store(false, Ordering::Relaxed);
    eventually("it has caught up", || !store.is_tight() && store.stats().applied == store.newest());

    // It may end as it is: the next start has it from the log.
    disk.full.store(true, Ordering::Relaxed);
    put(&store, 200..300);
    assert!(!store.settle().unwrap());
    assert!(store.stats().applied < store.newest());
    store.close().unwrap();
    let store = open();
    for number in 0..300u32 {
        assert!(store.get(&number.to_be_bytes()).unwrap().is_some(), "{number}");
    }
}

/// Regression: a first start that found no room left its logs behind, whole or half written, and the disk full.
#[test]
fn a_store_that_cannot_be_made_takes_no_room() {
    for in_the_way in ["log.1/full", "engine.new"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(in_the_way);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        let open = || Store::open(directory.path(), EngineKind::Fjall, Options::default());
        assert!(open().is_err());
        let length = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() { entry.metadata().unwrap().len() } else { 0 }
        };
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().map(length).sum::<u64>(), 0, "{in_the_way}");
        let top = directory.path().join(in_the_way.split('/').next().unwrap());
        let removed = if top.is_dir() { std::fs::remove_dir_all(top) } else { std::fs::remove_file(top) };
        removed.unwrap();
        put(&open().unwrap(), 0..1);
    }
}
