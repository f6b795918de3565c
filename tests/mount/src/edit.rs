//! Damage made on purpose, in the records of a space that is down.

use std::path::Path;
use std::time::{Duration, Instant};
use ullage_kv::{Batch, EngineKind, Error, Kv, Options, Store};

fn open(state: &Path) -> Store {
    let options = Options { interval: None, ..Options::default() };
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match Store::open(&state.join("catalog"), EngineKind::Fjall, options) {
            // A process that another test is just starting may have a copy of the lock for a moment.
            Err(Error::Locked(_)) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome.expect("the space is down"),
        }
    }
}

/// Every record: key and value.
pub fn records(state: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    open(state)
        .scan(&[], &[], &mut |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            true
        })
        .expect("the records can be read");
    records
}

/// Removes a record, or gives it another value.
pub fn set(state: &Path, key: &[u8], value: Option<&[u8]>) {
    let store = open(state);
    let mut batch = Batch::new();
    match value {
        Some(value) => batch.put(key.to_vec(), value.to_vec()),
        None => batch.del(key.to_vec()),
    }
    store.commit(batch).expect("the store takes it");
    store.close().expect("it is written");
}
