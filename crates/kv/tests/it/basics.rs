//! What one thread sees, and what is there after a close.

use std::time::Duration;
use ullage_kv::{Batch, EngineKind, Error, Kv, Options, Seq, Store};

fn put(store: &Store, key: &[u8], value: &[u8]) -> Seq {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    store.commit(batch).unwrap()
}

fn all(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .scan(b"", b"", &mut |k, v| {
            found.push((k.to_vec(), v.to_vec()));
            true
        })
        .unwrap();
    found
}

fn options() -> Options {
    Options { log_bytes: 1 << 20, ..Options::default() }
}

#[test]
fn what_was_closed_or_dropped_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0u8..3 {
        let store = Store::open(dir.path(), EngineKind::Fjall, options()).unwrap();
        assert_eq!(store.newest(), Seq(u64::from(round)));
        assert_eq!(all(&store).len(), usize::from(round));
        assert_eq!(put(&store, &[round], b"value"), Seq(u64::from(round) + 1));
        if round == 0 { store.close().unwrap() } else { drop(store) }
    }
}

#[test]
fn a_second_opening_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Store::open(dir.path(), EngineKind::Fjall, options()).unwrap();
    assert!(matches!(Store::open(dir.path(), EngineKind::Fjall, options()), Err(Error::Locked(_))));
}

/// A kill while the engine was being made left one that does not open, and the first use could not be repeated.
#[test]
fn an_engine_that_was_not_made_to_the_end_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let draft = dir.path().join("engine.new");
    std::fs::create_dir(&draft).unwrap();
    std::fs::write(draft.join("0.jnl"), "").unwrap();
    let store = Store::open(dir.path(), EngineKind::Fjall, options()).unwrap();
    put(&store, b"key", b"value");
    store.close().unwrap();
    assert!(!draft.exists());
    assert_eq!(all(&Store::open(dir.path(), EngineKind::Fjall, options()).unwrap()).len(), 1);
}

#[test]
fn a_missing_part_is_named_and_a_later_version_refused() {
    let dir = tempfile::tempdir().unwrap();
    Store::open(dir.path(), EngineKind::Fjall, options()).unwrap().close().unwrap();
    std::fs::rename(dir.path().join("log.1"), dir.path().join("aside")).unwrap();
    let Err(Error::Corrupt(why)) = Store::open(dir.path(), EngineKind::Fjall, options()) else { panic!() };
    assert!(why.contains("log.1"), "{why}");
    std::fs::rename(dir.path().join("aside"), dir.path().join("log.1")).unwrap();
    let format = dir.path().join("format");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("version 1", "version 2")).unwrap();
    let newer = Store::open(dir.path(), EngineKind::Fjall, options());
    assert!(matches!(newer, Err(Error::Newer { found: 2, known: 1 })));
    std::fs::write(&format, "something else").unwrap();
    assert!(matches!(Store::open(dir.path(), EngineKind::Fjall, options()), Err(Error::Corrupt(_))));
}

#[test]
fn a_sync_makes_durable_and_waiters_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), EngineKind::Fjall, Options { interval: None, ..options() }).unwrap();
    let seq = put(&store, b"k", b"v");
    assert!(store.durable() < seq);
    assert!(!store.wait_durable(seq, Duration::from_millis(5)));
    store.sync(seq).unwrap();
    assert_eq!(store.durable(), seq);
    assert!(store.wait_durable(seq, Duration::ZERO));
}

#[test]
fn the_background_makes_durable_without_being_asked() {
    let dir = tempfile::tempdir().unwrap();
    let interval = Some(Duration::from_millis(20));
    let store = Store::open(dir.path(), EngineKind::Fjall, Options { interval, ..options() }).unwrap();
    let seq = put(&store, b"k", b"v");
    assert!(store.wait_durable(seq, Duration::from_secs(20)));
    assert_eq!(store.stats().records, 1);
}

#[test]
fn a_create_and_its_unlink_cost_no_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), EngineKind::Fjall, Options { interval: None, ..options() }).unwrap();
    let mut create = Batch::new();
    create.put_new(b"k".to_vec(), b"v".to_vec());
    store.commit(create).unwrap();
    let mut unlink = Batch::new();
    unlink.del(b"k".to_vec());
    let seq = store.commit(unlink).unwrap();
    store.sync(seq).unwrap();
    assert_eq!(store.durable(), seq);
    assert_eq!((store.stats().records, store.stats().pending_keys), (0, 0));
}

#[test]
fn who_waits_for_commits_that_cancelled_out_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let interval = Some(Duration::from_millis(20));
    let store = Store::open(dir.path(), EngineKind::Fjall, Options { interval, ..options() }).unwrap();
    let mut both = Batch::new();
    both.put_new(b"k".to_vec(), b"v".to_vec());
    both.del(b"k".to_vec());
    let seq = store.commit(both).unwrap();
    assert!(store.wait_durable(seq, Duration::from_secs(20)));
    assert_eq!(store.stats().records, 0);
}

#[test]
fn more_than_a_log_file_holds_survives() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { interval: None, log_bytes: 64 << 10, ..Options::default() };
    let store = Store::open(dir.path(), EngineKind::Fjall, options).unwrap();
    put(&store, b"before", b"1");
    store.sync(store.newest()).unwrap();
    let mut big = Batch::new();
    for i in 0..200u32 {
        big.put(i.to_be_bytes().to_vec(), vec![7; 1000]);
    }
    let seq = store.commit(big).unwrap();
    store.sync(seq).unwrap();
    assert_eq!(store.durable(), seq);
    let after = put(&store, b"zafter", b"2");
    store.sync(after).unwrap();
    assert_eq!(all(&store).len(), 202);
    drop(store);
    let store = Store::open(dir.path(), EngineKind::Fjall, options).unwrap();
    assert_eq!(store.newest(), after);
    assert_eq!(all(&store).len(), 202);
}

#[test]
fn the_log_goes_round_and_round() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { interval: None, log_bytes: 16 << 10, ..Options::default() };
    let store = Store::open(dir.path(), EngineKind::Fjall, options).unwrap();
    for i in 0..50u32 {
        let seq = put(&store, &(i % 7).to_be_bytes(), &i.to_be_bytes());
        store.sync(seq).unwrap();
    }
    assert!(store.stats().checkpoints > 3, "{:?}", store.stats());
    assert_eq!(store.stats().records, 50);
    assert_eq!(all(&store).len(), 7);
}

#[test]
fn in_memory_everything_works_and_nothing_survives() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), EngineKind::Memory, options()).unwrap();
    let seq = put(&store, b"k", b"v");
    store.sync(seq).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(b"v".as_slice()));
    drop(store);
    assert!(all(&Store::open(dir.path(), EngineKind::Memory, options()).unwrap()).is_empty());
}
