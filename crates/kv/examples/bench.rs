//! Measures the store: `cargo run --release -p ullage-kv --example bench -- [DIR]`.

use std::env;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use ullage_kv::{BLOCK, Batch, EngineKind, Error, FileMedium, Kv, Medium, Options, Store};

/// Times each measurement is repeated; the median is shown with the least and the greatest.
const ROUNDS: usize = 5;

fn key(table: u8, n: u64) -> Vec<u8> {
    let mut key = vec![table];
    key.extend_from_slice(&n.to_be_bytes());
    key.extend_from_slice(b"name-of-a-file");
    key
}

fn create(n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put_new(key(b'i', n), vec![1; 120]);
    batch.put_new(key(b'd', n), vec![2; 24]);
    batch.put(key(b'p', n % 16), vec![3; 120]);
    batch
}

fn show(what: &str, unit: &str, mut rounds: Vec<f64>) {
    rounds.sort_by(f64::total_cmp);
    let (least, median, greatest) = (rounds[0], rounds[rounds.len() / 2], rounds[rounds.len() - 1]);
    println!("{what:<44} {median:>10.2} {unit:<3} ({least:.2} .. {greatest:.2})");
}

fn nanos_each(count: u64, elapsed: Duration) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

fn commits(store: &Store, next: &mut u64) -> Result<f64, Error> {
    const COUNT: u64 = 20_000;
    let batches: Vec<Batch> = (0..COUNT).map(|i| create(*next + i)).collect();
    *next += COUNT;
    let start = Instant::now();
    for batch in batches {
        store.commit(batch)?;
    }
    let each = nanos_each(COUNT, start.elapsed());
    store.sync(store.newest())?;
    Ok(each)
}

fn gets(store: &Store, first: u64, count: u64) -> Result<f64, Error> {
    let keys: Vec<_> = (0..count).map(|i| key(b'i', first + (i * 7919) % count)).collect();
    let start = Instant::now();
    for key in &keys {
        black_box(store.get(key)?);
    }
    Ok(nanos_each(count, start.elapsed()))
}

/// Keys of the newest commits, as a path that is worked on has them.
fn hot_gets(store: &Store, next: &mut u64) -> Result<f64, Error> {
    const COUNT: u64 = 100_000;
    const HOT: u64 = 256;
    let first = *next;
    *next += HOT;
    for n in first..*next {
        store.commit(create(n))?;
    }
    let keys: Vec<_> = (0..HOT).map(|i| key(b'i', first + (i * 97) % HOT)).collect();
    let start = Instant::now();
    for key in keys.iter().cycle().take(COUNT as usize) {
        black_box(store.get(key)?);
    }
    Ok(nanos_each(COUNT, start.elapsed()))
}

/// Building and committing, with few keys pending.
fn small_commits(store: &Store, next: &mut u64) -> Result<f64, Error> {
    const COUNT: u64 = 1000;
    let first = *next;
    *next += COUNT;
    let start = Instant::now();
    for n in first..*next {
        store.commit(create(n))?;
    }
    let each = nanos_each(COUNT, start.elapsed());
    store.checkpoint()?;
    Ok(each)
}

/// One block written durably on a preallocated file: what no sync can be faster than.
fn raw_writes(medium: &mut FileMedium) -> Result<f64, Error> {
    const COUNT: u64 = 100;
    let room = vec![1; 2 * BLOCK];
    let aligned = room.as_ptr().align_offset(BLOCK);
    let start = Instant::now();
    for n in 0..COUNT {
        let written = medium.write_at(&room[aligned..aligned + BLOCK], n * BLOCK as u64);
        written.map_err(|e| Error::Engine(e.to_string()))?;
    }
    Ok(nanos_each(COUNT, start.elapsed()) / 1000.0)
}

fn scans(store: &Store) -> Result<f64, Error> {
    let mut seen = 0;
    let start = Instant::now();
    store.scan(b"d", b"", &mut |_, value| {
        black_box(value);
        seen += 1;
        true
    })?;
    Ok(nanos_each(seen, start.elapsed()))
}

fn syncs(store: &Store, threads: u64, next: u64) -> Result<(f64, f64), Error> {
    const EACH: u64 = 100;
    let barrier = Barrier::new(threads as usize);
    let before = store.stats().records;
    let mut total = 0.0;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    for i in 0..EACH {
                        let seq = store.commit(create(next + t * EACH + i))?;
                        store.sync(seq)?;
                    }
                    Ok::<_, Error>(nanos_each(EACH, start.elapsed()))
                })
            })
            .collect();
        for worker in workers {
            if let Ok(latency) = worker.join() {
                total += latency?;
            }
        }
        Ok::<_, Error>(())
    })?;
    let records = store.stats().records - before;
    let shared = (threads * EACH) as f64 / records as f64;
    Ok((total / threads as f64 / 1000.0, shared))
}

fn main() -> Result<(), Error> {
    let dir = env::args_os().nth(1).map_or_else(|| env::temp_dir().join("ullage-kv-bench"), PathBuf::from);
    let store = Store::open(&dir, EngineKind::Fjall, Options { interval: None, ..Options::default() })?;
    let mut next = 1_000_000_000 + store.newest().0 * 100;
    let rounds = |f: &mut dyn FnMut() -> Result<f64, Error>| (0..ROUNDS).map(|_| f()).collect::<Result<Vec<_>, _>>();

    show("build and commit a batch of 3, 1,000 in a row", "ns", rounds(&mut || small_commits(&store, &mut next))?);
    show("get of a key just committed", "ns", rounds(&mut || hot_gets(&store, &mut next))?);
    store.checkpoint()?;
    let first = next;
    show("commit of a batch of 3", "ns", rounds(&mut || commits(&store, &mut next))?);
    show("get, in 5 layers of 40,000 keys", "ns", rounds(&mut || gets(&store, first, 20_000))?);
    show("scan an entry, in these layers", "ns", rounds(&mut || scans(&store))?);
    store.checkpoint()?;
    show("get, from the engine", "ns", rounds(&mut || gets(&store, first, 20_000))?);
    show("scan an entry, from the engine", "ns", rounds(&mut || scans(&store))?);
    let raw = dir.join("raw");
    let made = FileMedium::create(&raw, 1 << 20).and_then(|()| FileMedium::open(&raw));
    let mut medium = made.map_err(|e| Error::Engine(e.to_string()))?;
    show("one durable block on a preallocated file", "us", rounds(&mut || raw_writes(&mut medium))?);
    for threads in [1, 8] {
        let mut latencies = Vec::new();
        let mut shared = Vec::new();
        for _ in 0..ROUNDS {
            let (latency, per_record) = syncs(&store, threads, next)?;
            next += 100 * threads;
            latencies.push(latency);
            shared.push(per_record);
        }
        show(&format!("commit and sync, {threads} threads"), "us", latencies);
        show(&format!("syncs that share a flush, {threads} threads"), "", shared);
    }
    println!("{:?}", store.stats());
    store.close()
}
