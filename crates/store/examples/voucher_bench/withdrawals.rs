//! How many withdrawals one bank serves, over HTTP, each durable before its voucher leaves.

use crate::site::Site;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use ullage_bank::identity;
use ullage_bank::wire::ClientBatch;
use ullage_journal::Durability;
use ullage_net::Role;
use ullage_voucher::Op;
use ullage_voucher::message::{BankToClient, ClientToBank};

#[derive(Debug, Serialize)]
pub struct Row {
    pub flushed: bool,
    pub connections: u64,
    pub per_request: u64,
    pub withdrawals_per_s: f64,
}

async fn measure(site: &Site, connections: u64, per_request: u64, seconds: f64, start: u64) -> f64 {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let began = Instant::now();
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for connection in 0..connections {
        let user = format!("user{}", connection % 64);
        let bank = site.bank_client(&user, Role::User);
        let count = Arc::clone(&count);
        tasks.spawn(async move {
            let client = identity::client(&user, connection as u32);
            let mut op = start;
            while Instant::now() < until {
                let messages = (0..per_request)
                    .map(|_| {
                        op += 1;
                        ClientToBank::Request { user: identity::user(&user), op: Op(op), want: 4096, audience: None }
                    })
                    .collect();
                let batch = ClientBatch { client, messages, ..ClientBatch::default() };
                let answers = bank.messages(&batch).await.unwrap();
                let granted = answers.messages.iter().filter(|m| matches!(m, BankToClient::Granted { .. })).count();
                assert_eq!(granted as u64, per_request);
                count.fetch_add(per_request, Ordering::Relaxed);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

pub async fn run(directory: &Path, seconds: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for durability in [Durability::Disk, Durability::Process] {
        for (connections, per_request) in [(64, 1), (256, 1), (64, 8), (64, 32)] {
            // Each on a fresh bank: all grants of the last K epochs stay in its memory.
            let site = Site::start(directory, durability).await;
            measure(&site, connections, per_request, seconds / 4.0, 1 << 40).await;
            let withdrawals_per_s = measure(&site, connections, per_request, seconds, 1 << 41).await;
            rows.push(Row { flushed: durability == Durability::Disk, connections, per_request, withdrawals_per_s });
        }
    }
    rows
}

pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Withdrawals of one bank, embedded engine\n\nOver HTTP, the clients on the same cores. *Per request*: requests of several applications or files that ride together.\n\n\
         | flushed | connections | withdrawals per request | withdrawals /s |\n|---|---|---|---|\n",
    );
    for row in rows {
        text += &format!(
            "| {} | {} | {} | {:.0} |\n",
            if row.flushed { "yes" } else { "no" },
            row.connections,
            row.per_request,
            row.withdrawals_per_s
        );
    }
    text
}
