//! Stores and the bank killed in turn (`kill -9`) under clients that write and delete; then the same clients fill the
//! quota. Most of it must be usable although every client keeps vouchers of its own, and after K epochs the accounts are
//! exact to the byte.
//!
//! Full size adds 200 client processes at 8 stores:
//! `ULLAGE_FULL=1 cargo test --release -p ullage-cli --test it -- --nocapture crash::`.

use crate::site::{Plan, Site, ULLAGE, full};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ullage_store::client::{ClientConfig, Files};
use ullage_voucher::Node;
use ullage_voucher::wallet::{Adaptive, RequestPolicy};

const CLIENTS: usize = 20;
const EPOCH_MS: u64 = 1500;
const QUOTA: u64 = 64 << 20;
const CHUNK: usize = 256 << 10;

type Kept = Arc<parking_lot::Mutex<BTreeMap<String, Node>>>;

/// A client that keeps vouchers for some time ahead, as one that runs for long would.
fn client(site: &Site) -> Files {
    let mut config = ClientConfig::read(&site.config("ann")).unwrap();
    config.policy = Some(RequestPolicy::Adaptive(Adaptive {
        interval: ullage_voucher::Micros::from_millis(EPOCH_MS),
        least: 1 << 20,
        ..Adaptive::default()
    }));
    config.files(0).unwrap()
}

/// Writes, and deletes every third, until told to stop.
async fn churn(files: Files, number: usize, stop: Arc<AtomicBool>, kept: Kept) -> Files {
    let nodes = files.chunks().nodes();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (node, name) = (nodes[(round + number) % nodes.len()], format!("ann/d/{number}.{round}"));
        let data = Bytes::from(vec![round as u8; [4096, 40_000][round % 2]]);
        match files.chunks().put(node, &name, data, false).await {
            Ok(_) => {
                kept.lock().insert(name.clone(), node);
                if round % 3 == 2 && files.chunks().delete(node, &name).await.is_ok() {
                    kept.lock().remove(&name);
                }
            }
            Err(error) => println!("{name}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    files
}

/// Fills the quota: ends when nobody has found room for so long that every voucher has expired and been reconciled.
async fn fill(files: Files, number: usize, last: Arc<AtomicU64>, began: Instant, kept: Kept) {
    let nodes = files.chunks().nodes();
    for round in 0.. {
        let now = began.elapsed().as_millis() as u64;
        if now > last.load(Ordering::Relaxed) + 6 * EPOCH_MS {
            break;
        }
        let (node, name) = (nodes[(round + number) % nodes.len()], format!("ann/d/f{number}.{round}"));
        match files.chunks().put(node, &name, Bytes::from(vec![7; CHUNK]), false).await {
            Ok(_) => {
                kept.lock().insert(name, node);
                last.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(error.is_over_quota(), "{name}: {error}");
                tokio::time::sleep(Duration::from_millis(EPOCH_MS / 3)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_killed_in_turn_then_twenty_clients_fill_the_quota_exactly() {
    let run = async {
        let mut site = Site::start(&Plan { banks: 1, stores: 2, epoch_ms: EPOCH_MS, engine: None });
        site.user("ann", QUOTA);
        let (stop, kept) = (Arc::new(AtomicBool::new(false)), Kept::default());
        let start = |number| tokio::spawn(churn(client(&site), number, Arc::clone(&stop), Arc::clone(&kept)));
        let tasks: Vec<_> = (0..CLIENTS).map(start).collect();
        let rest = Duration::from_millis(EPOCH_MS);
        for kill in 0..3 {
            tokio::time::sleep(rest).await;
            let process = if kill == 1 { &mut site.banks[0] } else { &mut site.stores[kill / 2] };
            process.kill();
            tokio::time::sleep(rest).await;
            process.restart();
        }
        tokio::time::sleep(rest).await;
        stop.store(true, Ordering::Relaxed);
        let mut clients = Vec::new();
        for task in tasks {
            clients.push(task.await.unwrap());
        }
        println!("{} chunks kept over the crashes", kept.lock().len());
        assert!(kept.lock().len() > CLIENTS);
        // All of them at once, each with vouchers in hand.
        let (last, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let start = |(number, files)| tokio::spawn(fill(files, number, Arc::clone(&last), began, Arc::clone(&kept)));
        let tasks: Vec<_> = clients.into_iter().enumerate().map(start).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let account = site.reconciled("ann");
        let settled = account["settled_bytes"].as_u64().unwrap();
        println!("{settled} of {QUOTA} bytes used, {} on disk", site.on_disk());
        assert_eq!(settled, site.on_disk(), "{account}");
        assert!(settled <= QUOTA);
        assert!(settled * 100 >= QUOTA * 95, "most of the quota is usable: {settled} of {QUOTA}");
        let files = client(&site);
        let kept = std::mem::take(&mut *kept.lock());
        for (name, node) in &kept {
            files.chunks().read(*node, name, 0, u64::MAX).await.unwrap();
        }
        assert_eq!(site.admin(&["findings"])["findings"].as_array().unwrap().len(), 0, "nobody cheated");
    };
    tokio::time::timeout(Duration::from_secs(300), run).await.unwrap();
}

/// Sixteen processes and three stores (at full size two hundred and eight), each process putting files over and over and
/// removing some: several rounds, all at once.
#[test]
fn client_processes_at_several_stores_are_exact_at_the_end() {
    let (processes, stores, epoch_ms) = if full() { (200, 8, 5000) } else { (16, 3, 2000) };
    let site = Site::start(&Plan { banks: 1, stores, epoch_ms, engine: None });
    let quota = processes as u64 * 2_600_000;
    site.user("ann", quota);
    let local = site.directory.path().join("data");
    std::fs::write(&local, vec![3; 700_000]).unwrap();
    let (mut stored, mut refused) = (0, 0);
    for round in 0..5 {
        let start = |number: usize| {
            let mut command = Command::new(ULLAGE);
            if round == 3 && number.is_multiple_of(2) {
                command.arg("rm").arg(format!("f{number}.{}", round - 1));
            } else {
                command.arg("put").args(["--stripe", "256KiB"]).arg(&local).arg(format!("f{number}.{round}"));
            }
            command.arg("--config").arg(site.config("ann")).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children: Vec<_> = (0..processes).map(start).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.success() {
                true => stored += 1,
                false if said.contains("quota exceeded") || said.contains("no file") => refused += 1,
                false => panic!("{said}"),
            }
        }
    }
    let account = site.reconciled("ann");
    println!("{stored} done, {refused} refused; {account}; {} on disk", site.on_disk());
    assert_eq!(account["settled_bytes"].as_u64().unwrap(), site.on_disk());
    assert!(site.on_disk() <= quota);
    assert!(stored > 2 * processes && refused > 0, "most fit, not all");
    assert_eq!(site.admin(&["findings"])["findings"].as_array().unwrap().len(), 0, "nobody cheated");
}
