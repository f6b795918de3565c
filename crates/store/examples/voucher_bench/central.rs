//! Against a question to the bank per write, with a stated round trip to the bank.

use crate::site::{Site, slow_way};
use crate::stats::{Spread, spread};
use bytes::Bytes;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use ullage_journal::Durability;
use ullage_sim::study::{Chart, Line, Point};
use ullage_voucher::Node;
use ullage_voucher::wallet::RequestPolicy;

#[derive(Debug, Serialize)]
pub struct Row {
    pub chunk_bytes: usize,
    pub round_trip_us: u64,
    pub scheme: &'static str,
    pub writes: usize,
    pub bank_requests_per_write: f64,
    /// Median, first and third quartile.
    pub latency_us: Spread,
    pub latency_us_p99: f64,
}

pub async fn run(directory: &Path, seconds: f64) -> Vec<Row> {
    let site = Site::start(directory, Durability::Process).await;
    let mut rows = Vec::new();
    let mut number = 0_u64;
    for chunk_bytes in [4096, 4 << 20] {
        let data = Bytes::from(vec![0x5a; chunk_bytes]);
        for round_trip_us in [0, 200, 1000, 5000] {
            let way = if round_trip_us == 0 {
                site.bank.clone()
            } else {
                slow_way(site.bank.clone(), Duration::from_micros(round_trip_us)).await
            };
            // A voucher of just the need makes every write ask: that is the central check.
            let need = chunk_bytes as u64 + 4096;
            let schemes = [
                ("vouchers", Node(1), RequestPolicy::Fixed { amount: 1 << 30 }),
                ("central", Node(1), RequestPolicy::Fixed { amount: need }),
                ("none", Node(2), RequestPolicy::Fixed { amount: 1 }),
            ];
            for (scheme, node, policy) in schemes {
                let mut chunks = site.chunks("user2", &way, policy);
                if scheme == "none" {
                    chunks = chunks.without_paying();
                }
                // The first write fetches the capability and, with vouchers, the first of them.
                number += 1;
                chunks.put(node, &format!("user2/d/{number}"), data.clone(), false).await.unwrap();
                let before = chunks.purse().bank_requests();
                let until = Instant::now() + Duration::from_secs_f64(seconds);
                let first = number + 1;
                let mut latencies = Vec::new();
                while Instant::now() < until {
                    number += 1;
                    let began = Instant::now();
                    chunks.put(node, &format!("user2/d/{number}"), data.clone(), false).await.unwrap();
                    latencies.push(began.elapsed().as_secs_f64() * 1e6);
                }
                let requests = chunks.purse().bank_requests() - before;
                for number in first - 1..=number {
                    chunks.delete(node, &format!("user2/d/{number}")).await.unwrap();
                }
                let mut sorted = latencies.clone();
                sorted.sort_by(f64::total_cmp);
                let p99 = sorted[(sorted.len() - 1) * 99 / 100];
                rows.push(Row {
                    chunk_bytes,
                    round_trip_us,
                    scheme,
                    writes: latencies.len(),
                    bank_requests_per_write: requests as f64 / latencies.len() as f64,
                    latency_us: spread(latencies),
                    latency_us_p99: p99,
                });
            }
        }
    }
    rows
}

/// Latency over the bank's round trip for each chunk size, and messages.
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    let chart = |kib: usize, what: &str, unit: &str, value: &dyn Fn(&Row) -> (f64, f64)| {
        let line = |scheme: &str| {
            let of = |row: &&Row| row.scheme == scheme && row.chunk_bytes == kib * 1024;
            let point = |row: &Row| {
                let (y, ci) = value(row);
                Point { x: row.round_trip_us as f64 / 1000.0, y, ci }
            };
            Line { name: scheme.to_owned(), points: rows.iter().filter(of).map(point).collect() }
        };
        Chart {
            title: format!("{what}, writes of {kib} KiB"),
            x: "extra round trip to the bank, ms".into(),
            y: unit.into(),
            top: None,
            lines: ["none", "vouchers", "central"].iter().map(|scheme| line(scheme)).collect(),
        }
    };
    for kib in [4, 4096] {
        let latency = |row: &Row| (row.latency_us.median / 1e3, (row.latency_us.high - row.latency_us.low) / 2e3);
        charts.push((format!("latency-{kib}KiB"), chart(kib, "Latency, median and quartiles", "ms", &latency)));
    }
    let messages = |row: &Row| (row.bank_requests_per_write, 0.0);
    charts.push(("messages-4KiB".into(), chart(4, "Requests to the bank", "requests per write", &messages)));
    charts
}

pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Against a question to the bank per write\n\nOne writer, new chunks, not flushed. *central* takes a voucher of just the need before every write, \
         over a way to the bank with the stated extra round trip.\n\n\
         | chunk | bank round trip | scheme | bank requests per write | latency, median | 99 % |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text += &format!(
            "| {} KiB | {:.1} ms | {} | {:.4} | {:.0} µs | {:.0} µs |\n",
            row.chunk_bytes / 1024,
            row.round_trip_us as f64 / 1000.0,
            row.scheme,
            row.bank_requests_per_write,
            row.latency_us.median,
            row.latency_us_p99,
        );
    }
    text
}
