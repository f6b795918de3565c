//! What vouchers cost on real servers: against the same server with checks off, against a question to the bank per
//! write, and how many withdrawals one bank serves. Writes JSON and a table.
//!
//! `cargo run --release -p ullage-store --example voucher_bench -- --help`

#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made should stop")]
#![allow(clippy::format_push_string, reason = "tables are text")]

mod central;
mod checks;
mod site;
mod stats;
mod withdrawals;

use clap::Parser;
use serde_json::json;
use std::path::PathBuf;

/// Measures what vouchers cost on real servers.
#[derive(Parser)]
struct Arguments {
    /// Where JSON, tables and charts go.
    #[arg(long, default_value = "docs/results/vouchers")]
    out: PathBuf,
    /// Where bank and stores keep their data; on tmpfs only the processor's work counts.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// One part alone; `count` writes chunks of 4 KiB on one side, for a count of its instructions.
    #[arg(long, value_parser = ["verify", "checks", "central", "withdrawals", "count"])]
    only: Option<String>,
    /// Interleaved pairs of rounds with and without checks.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// How long a round takes.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// With `--only count`: how many chunks are written.
    #[arg(long, default_value_t = 1000)]
    writes: u64,
    /// With `--only count`: to the store with checks off.
    #[arg(long)]
    checks_off: bool,
}

#[tokio::main]
async fn main() {
    let Arguments { out, dir, only, pairs, seconds, writes, checks_off } = Arguments::parse();
    if only.as_deref() == Some("count") {
        return checks::count(&dir, writes, checks_off).await;
    }
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    std::fs::create_dir_all(&out).unwrap();
    let mut text = String::from(
        "# Vouchers on real servers\n\nMade by `cargo run --release -p ullage-store --example voucher_bench`.\n",
    );
    text += "One machine, loopback, plain HTTP with tokens (so that TLS does not hide what vouchers cost); client, store and bank share its cores.\n";
    let mut results = serde_json::Map::new();
    results.insert("cores".into(), json!(std::thread::available_parallelism().map_or(0, usize::from)));
    if wanted("verify") {
        let nanos = checks::verification();
        text += &format!("\nChecking one voucher's signature, key derived before: {nanos:.0} ns.\n");
        results.insert("verify_ns".into(), json!(nanos));
    }
    if wanted("checks") {
        let rows = checks::run(&dir, pairs, seconds).await;
        text += &checks::table(&rows);
        results.insert("checks".into(), json!(rows));
    }
    if wanted("central") {
        let rows = central::run(&dir, seconds * 2.0).await;
        text += &central::table(&rows);
        for (name, chart) in central::charts(&rows) {
            std::fs::write(out.join(format!("{name}.svg")), chart.svg().unwrap()).unwrap();
        }
        results.insert("central".into(), json!(rows));
    }
    if wanted("withdrawals") {
        let rows = withdrawals::run(&dir, seconds * 2.0).await;
        text += &withdrawals::table(&rows);
        results.insert("withdrawals".into(), json!(rows));
    }
    let name = only.map_or_else(|| "vouchers-servers".to_owned(), |only| format!("vouchers-servers-{only}"));
    std::fs::write(out.join(format!("{name}.json")), serde_json::to_string_pretty(&results).unwrap()).unwrap();
    std::fs::write(out.join(format!("{name}.md")), &text).unwrap();
    println!("{text}");
}
