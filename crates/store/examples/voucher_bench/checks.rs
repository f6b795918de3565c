//! The same server with vouchers and with checks off, in interleaved pairs.

use crate::site::Site;
use crate::stats::{Spread, spread};
use bytes::Bytes;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use ullage_journal::Durability;
use ullage_store::client::Chunks;
use ullage_voucher::wallet::RequestPolicy;
use ullage_voucher::{Epoch, Issuer, KeyId, Keyring, Node, Terms, User};

const WRITERS: u64 = 4;
const SMALL: usize = 64 << 10;

#[derive(Debug, Serialize)]
pub struct Row {
    pub chunk_bytes: usize,
    pub flushed: bool,
    pub with_vouchers_per_s: Spread,
    pub checks_off_per_s: Spread,
    /// With vouchers over checks off, per pair.
    pub ratio: Spread,
    pub bank_requests_per_1000: f64,
}

/// New chunks by several writers, as long as there is a number for the next.
async fn write(
    chunks: &Chunks,
    node: Node,
    user: &str,
    data: &Bytes,
    number: impl Fn() -> Option<u64> + Clone + Send + 'static,
) {
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (chunks, data, user, number) = (chunks.clone(), data.clone(), user.to_owned(), number.clone());
        writers.spawn(async move {
            while let Some(number) = number() {
                chunks.put(node, &format!("{user}/d/{number}"), data.clone(), false).await.unwrap();
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
}

/// New chunks for `seconds`; large ones are removed again outside the measurement.
async fn round(chunks: &Chunks, node: Node, user: &str, data: &Bytes, seconds: f64, next: &Arc<AtomicU64>) -> f64 {
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let first = next.load(Ordering::Relaxed);
    let numbers = Arc::clone(next);
    let number = move || (Instant::now() < until).then(|| numbers.fetch_add(1, Ordering::Relaxed));
    write(chunks, node, user, data, number).await;
    let last = next.load(Ordering::Relaxed);
    let rate = (last - first) as f64 / began.elapsed().as_secs_f64();
    // Large ones make room. Small ones stay: a file system that looks for an inode not lately freed (ext4) slows
    // whichever side comes after a removal of thousands, many times more than a voucher does.
    if data.len() > SMALL {
        for number in first..last {
            chunks.delete(node, &format!("{user}/d/{number}")).await.unwrap();
        }
    }
    rate
}

/// Small chunks, not flushed, on one side alone: a run of many less one of few is what each write takes.
pub async fn count(directory: &Path, writes: u64, checks_off: bool) {
    let site = Site::start(directory, Durability::Process).await;
    let chunks = site.chunks("user0", &site.bank, RequestPolicy::Fixed { amount: 1 << 30 });
    let (chunks, node) = if checks_off { (chunks.without_paying(), Node(2)) } else { (chunks, Node(1)) };
    let next = Arc::new(AtomicU64::new(0));
    let number = move || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < writes);
    let began = Instant::now();
    write(&chunks, node, "user0", &Bytes::from(vec![0x5a; 4096]), number).await;
    println!("{:.0} writes a second", writes as f64 / began.elapsed().as_secs_f64());
}

pub async fn run(directory: &Path, pairs: usize, seconds: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for durability in [Durability::Disk, Durability::Process] {
        for chunk_bytes in [4096, 4 << 20] {
            let site = Site::start(directory, durability).await;
            let policy = RequestPolicy::Fixed { amount: 1 << 30 };
            let paying = site.chunks("user0", &site.bank, policy);
            let free = site.chunks("user1", &site.bank, policy).without_paying();
            let data = Bytes::from(vec![0x5a; chunk_bytes]);
            let next = Arc::new(AtomicU64::new(0));
            let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..=pairs {
                // Alternating order, so that a drift of the machine favours neither.
                let (a, b);
                if pair % 2 == 0 {
                    a = round(&paying, Node(1), "user0", &data, seconds, &next).await;
                    b = round(&free, Node(2), "user1", &data, seconds, &next).await;
                } else {
                    b = round(&free, Node(2), "user1", &data, seconds, &next).await;
                    a = round(&paying, Node(1), "user0", &data, seconds, &next).await;
                }
                // The first pair warms up.
                if pair > 0 {
                    with.push(a);
                    without.push(b);
                    ratios.push(a / b);
                }
            }
            let writes = next.load(Ordering::Relaxed) as f64 / 2.0;
            rows.push(Row {
                chunk_bytes,
                flushed: durability == Durability::Disk,
                with_vouchers_per_s: spread(with),
                checks_off_per_s: spread(without),
                ratio: spread(ratios),
                bank_requests_per_1000: paying.purse().bank_requests() as f64 / writes * 1000.0,
            });
        }
    }
    rows
}

pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## With vouchers against checks off\n\nNew chunks, 4 writers, interleaved pairs; median (quartiles). The ratio is taken per pair.\n\n\
         | chunk | flushed | with vouchers /s | checks off /s | ratio | bank requests per 1000 writes |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text += &format!(
            "| {} KiB | {} | {:.0} ({:.0}–{:.0}) | {:.0} ({:.0}–{:.0}) | **{:.3}** ({:.3}–{:.3}, n={}) | {:.2} |\n",
            row.chunk_bytes / 1024,
            if row.flushed { "yes" } else { "no" },
            row.with_vouchers_per_s.median,
            row.with_vouchers_per_s.low,
            row.with_vouchers_per_s.high,
            row.checks_off_per_s.median,
            row.checks_off_per_s.low,
            row.checks_off_per_s.high,
            row.ratio.median,
            row.ratio.low,
            row.ratio.high,
            row.ratio.count,
            row.bank_requests_per_1000,
        );
    }
    text
}

/// Nanoseconds to check one voucher.
pub fn verification() -> f64 {
    let keys = Keyring::with_root(KeyId(1), [3; 32]);
    let terms = Terms {
        epoch: Epoch(4),
        expiry: Epoch(6),
        user: User(7),
        value: 1 << 20,
        serial: 9,
        issuer: Issuer::default(),
        audience: Node(0),
    };
    let voucher = keys.sign(terms).unwrap();
    let mut best = f64::MAX;
    for _ in 0..7 {
        let began = Instant::now();
        for _ in 0..100_000 {
            keys.verify(std::hint::black_box(&voucher)).unwrap();
        }
        best = best.min(began.elapsed().as_nanos() as f64 / 100_000.0);
    }
    best
}
