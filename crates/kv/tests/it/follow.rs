//! Snapshots, and followers who bring them up to date.

use std::sync::{Arc, Mutex, Weak};
use ullage_kv::{Batch, Durable, EngineKind, Follow, Kv, Options, Store, Tail};

#[derive(Default)]
struct Kept(Mutex<Vec<Durable>>);

impl Follow for Kept {
    fn durable(&self, changes: Durable) {
        self.0.lock().unwrap().push(changes);
    }
}

impl Kept {
    fn follow(store: &Store) -> Arc<Self> {
        let kept = Arc::new(Self::default());
        let follower: Weak<dyn Follow> = Arc::downgrade(&(kept.clone() as Arc<dyn Follow>));
        store.follow(follower);
        kept
    }

    /// What came after a commit.
    fn tail(&self, upto: ullage_kv::Seq) -> Tail {
        let mut tail = Tail::default();
        let kept = std::mem::take(&mut *self.0.lock().unwrap());
        kept.iter().filter(|changes| changes.last() > upto).for_each(|changes| tail.absorb(changes));
        tail
    }
}

fn dump(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    store
        .scan(b"", b"", &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    all
}

/// What a snapshot holds and is removed before the engine has it is removed for followers too.
#[test]
fn what_was_new_in_a_snapshot_and_is_removed_is_in_the_tail() {
    for durable_before in [false, true] {
        let options = Options { interval: None, log_bytes: 128 << 10, ..Options::default() };
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(one.path(), EngineKind::Fjall, options).unwrap();
        let kept = Kept::follow(&store);
        let mut batch = Batch::new();
        batch.put_new(b"name before".to_vec(), b"1".to_vec());
        batch.put_new(b"other".to_vec(), b"1".to_vec());
        let seq = store.commit(batch).unwrap();
        if durable_before {
            store.sync(seq).unwrap();
        }
        let mut bytes = Vec::new();
        let upto = store.snapshot_to(&mut bytes).unwrap();
        let mut batch = Batch::new();
        batch.del(b"name before".to_vec());
        batch.put_new(b"name after".to_vec(), b"1".to_vec());
        let seq = store.commit(batch).unwrap();
        store.sync(seq).unwrap();
        store.checkpoint().unwrap();
        let copy = Store::open(two.path(), EngineKind::Fjall, options).unwrap();
        copy.restore_from(&mut bytes.as_slice()).unwrap();
        copy.apply_tail(kept.tail(upto)).unwrap();
        assert_eq!(dump(&copy), dump(&store));
    }
}

/// Whoever follows a store can bring a snapshot up to it, over whatever merges and removals there were.
#[test]
fn a_snapshot_and_the_tails_after_it_are_the_store() {
    let options = Options { interval: None, log_bytes: 128 << 10, ..Options::default() };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(one.path(), EngineKind::Fjall, options).unwrap();
    let kept = Kept::follow(&store);
    let change = |round: u32| {
        for n in 0..50u32 {
            let mut batch = Batch::new();
            let key = ((n * 7 + round * 13) % 90).to_be_bytes().to_vec();
            if (n + round).is_multiple_of(3) {
                batch.del(key);
            } else {
                batch.put(key, vec![n as u8; 700]);
            }
            let seq = store.commit(batch).unwrap();
            if n % 9 == 0 {
                store.sync(seq).unwrap();
            }
        }
    };
    change(0);
    let mut bytes = Vec::new();
    let upto = store.snapshot_to(&mut bytes).unwrap();
    change(1);
    change(2);
    store.checkpoint().unwrap();
    let tail = kept.tail(upto);
    let mut written = Vec::new();
    tail.write_to(&mut written).unwrap();
    let copy = Store::open(two.path(), EngineKind::Fjall, options).unwrap();
    copy.restore_from(&mut bytes.as_slice()).unwrap();
    copy.apply_tail(Tail::read_from(&mut written.as_slice()).unwrap()).unwrap();
    assert_eq!(dump(&copy), dump(&store));
    for at in 0..written.len() {
        assert!(Tail::read_from(&mut &written[..at]).is_err(), "cut at {at}");
        let mut bad = written.clone();
        bad[at] ^= 0x10;
        if let Ok(read) = Tail::read_from(&mut bad.as_slice()) {
            assert_eq!(read, tail, "byte {at}");
        }
    }
}
