//! A process that writes and syncs is killed; whatever it was told to be durable is there.

use crate::world::Random;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ullage_kv::{Batch, EngineKind, Kv, Options, Store};

const CHILD: &str = "ULLAGE_KV_KILL_CHILD";
const LAST: &[u8] = b"last";

fn options() -> Options {
    Options { interval: Some(Duration::from_millis(5)), log_bytes: 128 << 10, ..Options::default() }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

fn last(store: &Store) -> u64 {
    store.get(LAST).unwrap().map_or(0, |bytes| number(&bytes))
}

/// The process that is killed; passes at once when nobody asked for it.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&dir), EngineKind::Fjall, options()).unwrap();
    let next = Mutex::new(last(&store));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let (n, seq) = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        let mut batch = Batch::new();
                        let key = [b"n".as_slice(), &next.to_be_bytes()].concat();
                        batch.put_new(key, vec![*next as u8; 300]);
                        batch.put(LAST.to_vec(), next.to_be_bytes().to_vec());
                        (*next, store.commit(batch).unwrap())
                    };
                    store.sync(seq).unwrap();
                    std::io::stdout().write_all(format!("durable {n}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn whatever_was_synced_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(6);
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun = AtomicBool::new(false);
        let promised = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut promised = 0;
                for line in lines.map_while(Result::ok) {
                    if let Some(n) = line.strip_prefix("durable ").and_then(|n| n.parse::<u64>().ok()) {
                        begun.store(true, Ordering::Relaxed);
                        promised = promised.max(n);
                    }
                }
                promised
            });
            for _ in 0..2000 {
                if begun.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(50 + random.next() % 250));
            child.kill().unwrap();
            child.wait().unwrap();
            reader.join().unwrap()
        });
        assert!(promised > 0, "the child did nothing in round {round}");
        let store = Store::open(dir.path(), EngineKind::Fjall, options()).unwrap();
        let last = last(&store);
        assert!(last >= promised, "round {round}: {promised} was promised, {last} is the last");
        let mut expected = 1;
        store
            .scan(b"n", b"", &mut |key, value| {
                assert_eq!(number(&key[1..]), expected, "round {round}");
                assert_eq!(value, vec![expected as u8; 300]);
                expected += 1;
                true
            })
            .unwrap();
        assert_eq!(expected, last + 1, "round {round}");
    }
}
