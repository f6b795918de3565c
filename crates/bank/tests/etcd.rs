//! The etcd engine against a real etcd: one leader, nothing from a deposed one, snapshots and the log come back.

#![cfg(feature = "etcd")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use ullage_bank::engine::{Engine, EngineError, Etcd, EtcdSettings, campaign};
use ullage_bank::rows::{Rows, apply};
use ullage_voucher::Write;

struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One member and its settings; nothing if Debian's etcd-server is not installed.
fn etcd(directory: &std::path::Path, address: &str) -> Option<(Member, EtcdSettings)> {
    let (client, peer) = (port(), port());
    let urls = format!("http://127.0.0.1:{client}");
    let peers = format!("http://127.0.0.1:{peer}");
    let member = Command::new("etcd")
        .args(["--name", "a", "--data-dir"])
        .arg(directory)
        .args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls, "--listen-peer-urls", &peers])
        .args([
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
            &format!("a={peers}"),
            "--unsafe-no-fsync",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(member) = member else {
        println!("skipped: etcd is not installed (apt-get install etcd-server)");
        return None;
    };
    Some((Member(member), EtcdSettings::parse(&format!("etcd://127.0.0.1:{client}/t"), address).unwrap()))
}

fn row(key: u32, value: u32) -> Write {
    Write { key: key.to_be_bytes()[..].into(), value: Some(value.to_be_bytes()[..].into()) }
}

async fn put(engine: &dyn Engine, writes: &[Write]) -> Result<(), EngineError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    engine.append(writes, Box::new(move |result| drop(sender.send(result))));
    receiver.await.unwrap()
}

async fn lead(settings: &EtcdSettings) -> (Etcd, Rows) {
    loop {
        match campaign(settings, 0).await {
            Ok(won) => return won,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_next_continues_with_all_that_was_committed() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "first:1") else { return };
    let run = async {
        let (first, rows) = lead(&settings).await;
        assert!(rows.is_empty());
        let mut model = Rows::new();
        for number in 0..200 {
            let writes = [row(number % 50, number), row(1000 + number, number)];
            put(&first, &writes).await.unwrap();
            apply(&mut model, &writes);
            if number == 120 {
                first.snapshot(&model);
            }
        }
        let waiting = EtcdSettings { address: "second:1".into(), ..settings.clone() };
        let second = tokio::spawn(async move { lead(&waiting).await });
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!second.is_finished(), "never two at a time");
        assert_eq!(settings.leader(0).await.unwrap().as_deref(), Some("first:1"));
        drop(first);
        let (second, rows) = second.await.unwrap();
        assert!(rows == model, "{} rows of {}", rows.len(), model.len());
        put(&second, &[row(7, 7)]).await.unwrap();
        assert_eq!(settings.leader(0).await.unwrap().as_deref(), Some("second:1"));
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_ran_out_commits_nothing_even_before_it_notices() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "first:1") else { return };
    let run = async {
        let (first, _) = lead(&settings).await;
        put(&first, &[row(1, 1)]).await.unwrap();
        // Its key goes, as when its lease runs out; its process knows nothing of it.
        let mut client = etcd_client::Client::connect(&settings.endpoints, None).await.unwrap();
        client.delete("/ullage/t/0/leader", None).await.unwrap();
        let (second, rows) = lead(&EtcdSettings { address: "second:1".into(), ..settings.clone() }).await;
        assert_eq!(rows.len(), 1);
        put(&second, &[row(2, 2)]).await.unwrap();
        assert!(first.is_leading(), "it has not noticed");
        assert!(matches!(put(&first, &[row(3, 3)]).await, Err(EngineError::Deposed)));
        assert!(matches!(put(&first, &[]).await, Err(EngineError::Deposed)), "nor confirms what it knows");
        assert!(!first.is_leading());
        drop(second);
        let (_, rows) = lead(&settings).await;
        assert_eq!(rows.len(), 2, "the deposed one's write is nowhere");
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// A state above 4 MiB could be loaded by nobody, and one large step deposed every leader.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_a_request_or_an_answer_is_committed_whole_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "first:1") else { return };
    let large = |first: u32, count: u32| -> Vec<Write> {
        let value = |key: u32| key.to_be_bytes().repeat(16);
        let write = |key: u32| Write { key: key.to_be_bytes()[..].into(), value: Some(value(key)[..].into()) };
        (first..first + count).map(write).collect()
    };
    let run = async {
        let (first, _) = lead(&settings).await;
        let mut model = Rows::new();
        for step in [large(0, 100_000), large(50_000, 10)] {
            put(&first, &step).await.unwrap();
            apply(&mut model, &step);
        }
        first.snapshot(&model);
        // Also after the snapshot: one step of several parts, and as many commits as no answer holds.
        for step in [large(200_000, 60_000), large(300_000, 14_000), large(400_000, 14_000), large(500_000, 14_000)] {
            put(&first, &step).await.unwrap();
            apply(&mut model, &step);
        }
        drop(first);
        // As a leader leaves it that dies between the parts of its next commit.
        let mut client = etcd_client::Client::connect(&settings.endpoints, None).await.unwrap();
        let next = 6;
        client.put(format!("/ullage/t/0/part/{next:020}/000000"), "half of a step", None).await.unwrap();
        let (second, rows) = lead(&EtcdSettings { address: "second:1".into(), ..settings.clone() }).await;
        assert!(rows == model, "{} rows of {}", rows.len(), model.len());
        put(&second, &[row(7, 7)]).await.unwrap();
        apply(&mut model, &[row(7, 7)]);
        drop(second);
        let (_, rows) = lead(&settings).await;
        assert!(rows == model, "{} rows of {}", rows.len(), model.len());
    };
    tokio::time::timeout(Duration::from_secs(120), run).await.unwrap();
}
