//! Real faults: etcd members, banks, stores and clients killed in turn under load. Nothing is lost, nothing issued twice, and the
//! quota is exact after K epochs.
//!
//! Full size (3 etcd, 2 banks, 4 stores, 20 clients): `ULLAGE_FULL=1 cargo test --release -p ullage-cli --test it -- --nocapture faults::`.

use crate::site::{Plan, Site, full};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ullage_voucher::Node;

/// Writes and deletes until told to stop, each chunk's fate noted as it becomes known.
async fn load(
    files: ullage_store::client::Files,
    user: String,
    client: usize,
    stop: Arc<AtomicBool>,
    kept: Arc<parking_lot::Mutex<BTreeMap<String, Node>>>,
) {
    let nodes = files.chunks().nodes();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let node = nodes[(round + client) % nodes.len()];
        let name = format!("{user}/d/{client}.{round}");
        let data = Bytes::from(vec![round as u8; [4096, 70_000][round % 2]]);
        match files.chunks().put(node, &name, data, false).await {
            Ok(_) if round % 4 == 3 => {
                if files.chunks().delete(node, &name).await.is_err() {
                    println!("{name} could not be deleted in time");
                }
            }
            Ok(_) => {
                kept.lock().insert(name, node);
            }
            Err(error) => println!("{name}: {error}"),
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_killed_in_turn_and_the_accounts_stay_exact() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut etcds, engine)) = crate::site::etcd(directory.path()) else { return };
    let run = async {
        let (stores, clients, users) = if full() { (4, 20, 4) } else { (2, 4, 2) };
        let mut site = Site::start(&Plan { banks: 2, stores, epoch_ms: 3000, engine: Some(engine) });
        for user in 0..users {
            site.user(&format!("user{user}"), 2 << 30);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let kept = Arc::new(parking_lot::Mutex::new(BTreeMap::new()));
        let start = |client: usize| {
            let user = format!("user{}", client % users);
            let (stop, kept) = (Arc::clone(&stop), Arc::clone(&kept));
            tokio::spawn(load(site.files(&user), user, client, stop, kept))
        };
        let mut tasks: Vec<_> = (0..clients).map(start).collect();
        let rest = Duration::from_secs(if full() { 6 } else { 3 });
        tokio::time::sleep(rest).await;
        println!("kill an etcd member");
        etcds[0].kill();
        tokio::time::sleep(rest).await;
        etcds[0].restart();
        tokio::time::sleep(rest).await;
        for bank in 0..2 {
            println!("kill bank {bank}");
            site.banks[bank].kill();
            tokio::time::sleep(rest * 2).await;
            site.banks[bank].restart();
            tokio::time::sleep(rest).await;
        }
        println!("kill a store");
        site.stores[0].kill();
        tokio::time::sleep(rest).await;
        site.stores[0].restart();
        tokio::time::sleep(rest).await;
        println!("kill a client with vouchers in hand");
        tasks.remove(0).abort();
        tokio::time::sleep(rest).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        let kept = std::mem::take(&mut *kept.lock());
        println!("{} chunks kept", kept.len());
        assert!(kept.len() > 50);
        let files: Vec<_> = (0..users).map(|user| site.files(&format!("user{user}"))).collect();
        for (name, node) in &kept {
            let user: usize = name["user".len()..name.find('/').unwrap()].parse().unwrap();
            files[user].chunks().read(*node, name, 0, u64::MAX).await.unwrap();
        }
        drop(files);
        let settled: u64 =
            (0..users).map(|user| site.reconciled(&format!("user{user}"))["settled_bytes"].as_u64().unwrap()).sum();
        println!("{settled} bytes reconciled, {} on disk", site.on_disk());
        assert_eq!(settled, site.on_disk());
        assert_eq!(site.admin(&["findings"])["findings"].as_array().unwrap().len(), 0, "nobody cheated");
    };
    tokio::time::timeout(Duration::from_secs(300), run).await.unwrap();
}
