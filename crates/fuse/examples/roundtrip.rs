//! How long a round trip takes: fstat(2) on a file whose attributes are never believed, so that each is one GETATTR.
//!
//! `cargo run --release -p ullage-fuse --example roundtrip [rounds] [case]`, as root. Goes round all transports several
//! times; the test file system answers from memory, so that the transport is what is measured; interleaved, so that noise hits all alike, and prints the median of the rounds' p50 and p99 with the range of each, for
//! clients bound to a CPU and not, one and several, and the messages that went.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mirrorfs.rs"]
#[allow(dead_code)]
mod mirrorfs;

use mirrorfs::{Knobs, MirrorFs};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use ullage_fuse::{Choice, MountOptions, Readers, mount};

/// How long each measurement takes.
const MEASURE: Duration = Duration::from_millis(300);

const CLIENTS: [(&str, &[Option<usize>]); 4] = [
    ("1 on CPU 0", &[Some(0)]),
    ("1 anywhere", &[None]),
    ("1 on each of 2 CPUs", &[Some(0), Some(1)]),
    ("4 anywhere", &[None; 4]),
];

fn cases() -> Vec<(&'static str, MountOptions)> {
    let device = |threads, pinned, spin_us, follow| MountOptions {
        transport: Choice::Device,
        readers: Readers { threads, pinned, spin: Duration::from_micros(spin_us), follow },
        ..MountOptions::default()
    };
    let ring = |ring_depth| MountOptions {
        transport: Choice::IoUring,
        enable_uring: true,
        ring_depth,
        ..MountOptions::default()
    };
    vec![
        ("io_uring", ring(MountOptions::default().ring_depth)),
        ("io_uring depth 2", ring(2)),
        ("io_uring depth 32", ring(32)),
        ("device follow", device(0, true, 0, true)),
        ("device 1", device(1, false, 0, false)),
        ("device 1 pinned", device(1, true, 0, false)),
        ("device 2", device(2, false, 0, false)),
        ("device 2 pinned", device(2, true, 0, false)),
        ("device 4", device(4, false, 0, false)),
        ("device 1 spin", device(1, false, 20, false)),
        ("device 2 spin", device(2, false, 20, false)),
        ("device 2 pin+spin", device(2, true, 20, false)),
    ]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(5);
    let only = std::env::args().nth(2);
    let mut results: BTreeMap<(usize, usize), Vec<[f64; 3]>> = BTreeMap::new();
    let mut messages = BTreeMap::new();
    let cases: Vec<_> =
        cases().into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| name == &only)).collect();
    for _ in 0..rounds {
        for (index, (name, options)) in cases.iter().enumerate() {
            match round(options) {
                Ok((figures, counts)) => {
                    for (client, figure) in figures.into_iter().enumerate() {
                        results.entry((index, client)).or_default().push(figure);
                    }
                    messages.insert(*name, counts);
                }
                Err(error) => println!("{name}: {error}"),
            }
        }
    }
    println!("{:<20}{:<22}{:>22}{:>26}{:>12}", "transport", "clients", "p50 us [range]", "p99 us [range]", "calls/s");
    for ((case, client), mut figures) in results {
        let mut column = |index: usize| {
            figures.sort_by(|a, b| a[index].total_cmp(&b[index]));
            (figures[figures.len() / 2][index], figures[0][index], figures[figures.len() - 1][index])
        };
        let ((p50, p50_low, p50_high), (p99, p99_low, p99_high), (rate, ..)) = (column(0), column(1), column(2));
        println!(
            "{:<20}{:<22}{:>22}{:>26}{rate:>12.0}",
            cases[case].0,
            CLIENTS[client].0,
            format!("{p50:.1} [{p50_low:.1}-{p50_high:.1}]"),
            format!("{p99:.1} [{p99_low:.1}-{p99_high:.1}]"),
        );
    }
    for (name, counts) in messages {
        println!("messages, {name}: {counts:?}");
    }
}

type Round = (Vec<[f64; 3]>, BTreeMap<&'static str, u64>);

/// p50, p99 and rate for each set of clients over one mount, and its messages.
fn round(options: &MountOptions) -> std::io::Result<Round> {
    let directory = tempfile::tempdir_in("/var/tmp")?;
    let (at, backing) = (directory.path().join("mnt"), directory.path().join("backing"));
    std::fs::create_dir(&at)?;
    std::fs::create_dir(&backing)?;
    let knobs = Knobs::default();
    knobs.no_cache.store(true, Ordering::Relaxed);
    knobs.canned.store(true, Ordering::Relaxed);
    let mounted = mount(MirrorFs::new(&backing, Arc::new(knobs)), &at, options)?;
    std::fs::write(at.join("file"), b"x")?;
    let figures = CLIENTS
        .iter()
        .map(|(_, clients)| {
            let mut times = measure(&at.join("file"), clients);
            times.sort_unstable();
            let quantile = |q: f64| f64::from(times[((times.len() - 1) as f64 * q) as usize]) / 1000.0;
            [quantile(0.5), quantile(0.99), times.len() as f64 / MEASURE.as_secs_f64()]
        })
        .collect();
    let counts = mounted.counters().snapshot();
    mounted.unmount()?;
    Ok((figures, counts))
}

/// Nanoseconds of each call, of all clients.
fn measure(path: &Path, clients: &[Option<usize>]) -> Vec<u32> {
    let until = Instant::now() + MEASURE;
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|cpu| {
                scope.spawn(move || {
                    if let Some(cpu) = *cpu {
                        let mut one = rustix::thread::CpuSet::new();
                        one.set(cpu);
                        rustix::thread::sched_setaffinity(None, &one).unwrap();
                    }
                    let file = File::open(path).unwrap();
                    let mut times = Vec::with_capacity(1 << 18);
                    // At least once: on a busy machine the time may be over before a client gets its turn.
                    loop {
                        let start = Instant::now();
                        rustix::fs::fstat(&file).unwrap();
                        times.push(start.elapsed().as_nanos() as u32);
                        if Instant::now() >= until {
                            break;
                        }
                    }
                    times
                })
            })
            .collect();
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
    })
}
