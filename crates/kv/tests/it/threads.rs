//! Several threads at once: shared flushes, and scans that always see one state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ullage_kv::{Ahead, Batch, Cut, EngineKind, Error, Kv, Options, Seq, Store};

#[test]
fn a_scan_never_sees_half_a_commit_while_everything_moves() {
    for kind in [EngineKind::Memory, EngineKind::Fjall] {
        let dir = tempfile::tempdir().unwrap();
        let interval = Some(Duration::from_micros(200));
        let options = Options { interval, log_bytes: 256 << 10, ..Options::default() };
        let store = Store::open(dir.path(), kind, options).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // One token that every commit moves from one of two keys to the other.
            scope.spawn(|| {
                for n in 0.. {
                    let (from, to) = if n % 2 == 0 { (b"t1", b"t2") } else { (b"t2", b"t1") };
                    let mut batch = Batch::new();
                    batch.del(from.to_vec());
                    batch.put(to.to_vec(), vec![1]);
                    store.commit(batch).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            while store.newest().0 == 0 {
                std::thread::yield_now();
            }
            for round in 0..3000 {
                if round % 100 == 0 {
                    let mut bytes = Vec::new();
                    let cut = store.snapshot_to(&mut bytes).unwrap();
                    let other = tempfile::tempdir().unwrap();
                    let copy = Store::open(other.path(), EngineKind::Memory, options).unwrap();
                    assert_eq!(copy.restore_from(&mut bytes.as_slice()).unwrap(), cut);
                    // Commit n leaves the token at t2 when n is odd: the cut is what it says it is.
                    let held = [b"t1", b"t2"].map(|key| copy.get(key).unwrap().is_some());
                    if held != [cut.0.is_multiple_of(2), cut.0 % 2 == 1] {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{held:?} at {cut:?}");
                    }
                }
                let mut seen = 0;
                store
                    .scan(b"t", b"", &mut |_, _| {
                        seen += 1;
                        true
                    })
                    .unwrap();
                if seen != 1 {
                    stop.store(true, Ordering::Relaxed);
                }
                assert_eq!(seen, 1, "{kind:?}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn syncs_at_the_same_time_share_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { interval: None, log_bytes: 4 << 20, ..Options::default() };
    let store = Store::open(dir.path(), EngineKind::Fjall, options).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..40u8 {
                    let mut batch = Batch::new();
                    batch.put_new(vec![t, i], vec![0; 100]);
                    let seq = store.commit(batch).unwrap();
                    store.sync(seq).unwrap();
                    assert!(store.durable() >= seq);
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!(stats.syncs, 320);
    assert!(stats.records < 240, "{stats:?}");
}

/// Commits one more whenever something is to be made durable before the log.
struct Comes(Store);

impl Ahead for Comes {
    fn ahead(&self) {
        let mut batch = Batch::new();
        batch.put(b"late".to_vec(), vec![1]);
        self.0.commit(batch).unwrap();
    }
}

/// It was in the log at once, and what was to be durable before it was not.
#[test]
fn what_is_committed_while_other_things_are_made_durable_is_not_in_the_record_that_waits_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { interval: None, ..Options::default() };
    let comes = Arc::new(Comes(Store::open(dir.path(), EngineKind::Fjall, options).unwrap()));
    let ahead: Arc<dyn Ahead> = comes.clone();
    comes.0.set_ahead(Arc::downgrade(&ahead));
    let mut batch = Batch::new();
    batch.put(b"early".to_vec(), vec![1]);
    let early = comes.0.commit(batch).unwrap();
    comes.0.sync(early).unwrap();
    assert_eq!((comes.0.durable(), comes.0.newest()), (early, Seq(early.0 + 1)));
}

/// Lets go of the last hold of its store while that asks for what goes with a record, `before` it gives it or after.
struct Last {
    store: Mutex<Option<Arc<Store>>>,
    before: bool,
}

impl Cut for Last {
    fn cut(&self, take: &mut dyn FnMut(Batch)) {
        if self.before {
            drop(self.store.lock().unwrap().take());
        }
        let mut batch = Batch::new();
        batch.put(b"total".to_vec(), vec![1]);
        take(batch);
        drop(self.store.lock().unwrap().take());
    }
}

/// The thread that writes waited for its own end, which is a panic, and what was to be written was lost.
#[test]
fn a_store_that_its_own_thread_lets_go_of_is_written_and_left_to_the_next_one() {
    for before in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { interval: Some(Duration::from_millis(50)), ..Options::default() };
        let store = Arc::new(Store::open(dir.path(), EngineKind::Fjall, options).unwrap());
        let last = Arc::new(Last { store: Mutex::default(), before });
        let cut: Arc<dyn Cut> = last.clone();
        store.set_cut(Arc::downgrade(&cut));
        let mut batch = Batch::new();
        batch.put(b"key".to_vec(), vec![1]);
        *last.store.lock().unwrap() = Some(store.clone());
        store.commit(batch).unwrap();
        drop(store);
        let until = Instant::now() + Duration::from_secs(20);
        let next = loop {
            match Store::open(dir.path(), EngineKind::Fjall, options) {
                Err(Error::Locked(_)) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                next => break next.unwrap(),
            }
        };
        for key in [&b"key"[..], b"total"] {
            assert_eq!(next.get(key).unwrap(), Some(vec![1]), "{}", key.escape_ascii());
        }
    }
}
