//! A power cut that loses a sector of the engine's own journal.

use crate::world::Random;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use ullage_kv::{Batch, EngineKind, Error, Kv, Options, Store};

const VALUE_BYTES: usize = 3000;
const SECTOR: usize = 512;

fn options() -> Options {
    Options { interval: None, log_bytes: 64 << 10, ..Options::default() }
}

fn open(dir: &Path) -> Result<Store, Error> {
    Store::open(dir, EngineKind::Fjall, options())
}

fn value(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    (0..VALUE_BYTES).map(|_| random.next() as u8).collect()
}

/// Brings values into the engine, each with a batch of its own, or all with one.
fn fill(dir: &Path, numbers: std::ops::Range<u64>, at_once: bool) {
    let store = open(dir).unwrap();
    let mut batch = Batch::new();
    for number in numbers {
        batch.put(number.to_be_bytes().to_vec(), value(number));
        if !at_once {
            store.commit(std::mem::take(&mut batch)).unwrap();
            store.settle().unwrap();
        }
    }
    store.commit(batch).unwrap();
    store.close().unwrap();
}

/// Loses the first whole sector of a value in the journal.
fn lose(dir: &Path, number: u64) {
    let journal = dir.join("engine/0.jnl");
    let content = fs::read(&journal).unwrap();
    let value = value(number);
    let at = content.windows(64).position(|window| window == &value[..64]).unwrap();
    let sector = at.next_multiple_of(SECTOR);
    assert!(sector + SECTOR <= at + VALUE_BYTES);
    File::options().write(true).open(journal).unwrap().write_all_at(&[0; SECTOR], sector as u64).unwrap();
}

fn is_all_there(dir: &Path, numbers: std::ops::Range<u64>) {
    let store = open(dir).unwrap();
    for number in numbers {
        assert!(store.get(&number.to_be_bytes()).unwrap() == Some(value(number)), "{number}");
    }
    store.close().unwrap();
}

/// Regression: a sector that was lost wholly inside a value, in the last batch or an earlier one that was not synced, left a catalog that nothing opened.
#[test]
fn a_lost_sector_inside_a_value_of_the_engines_journal_is_made_up_for_from_the_log() {
    for lost in [5, 2, 0] {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 0..6, false);
        lose(dir.path(), lost);
        is_all_there(dir.path(), 0..6);
        fill(dir.path(), 6..8, false);
        is_all_there(dir.path(), 0..8);
    }
}

/// What the log does not hold, once or any more, was durable in the engine: without it that is damage.
#[test]
fn a_damaged_batch_that_the_log_does_not_hold_is_refused_and_kept() {
    let past_log = |dir: &Path| {
        fill(dir, 0..2, false);
        fill(dir, 2..60, true);
        40u64
    };
    let long_ago = |dir: &Path| {
        fill(dir, 0..60, false);
        2u64
    };
    for fill in [&past_log as &dyn Fn(&Path) -> u64, &long_ago] {
        let dir = tempfile::tempdir().unwrap();
        let lost = fill(dir.path());
        lose(dir.path(), lost);
        let before = fs::read(dir.path().join("engine/0.jnl")).unwrap();
        for _ in 0..2 {
            assert!(matches!(open(dir.path()), Err(Error::Corrupt(_))));
        }
        assert!(fs::read(dir.path().join("engine/0.jnl")).unwrap() == before);
    }
}
