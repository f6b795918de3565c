//! The etcd engine against a real etcd: one leader, nothing from a deposed one, snapshots and the log come back.

use crate::common::{client, settings};
use crate::member::{Member, lead, port};
use std::process::Command;
use std::time::Duration;
use ullage_bank::Bank;
use ullage_bank::config::EngineChoice;
use ullage_bank::engine::{Engine, EngineError, EtcdSettings, campaign};
use ullage_bank::rebuild::{RebuildError, Remembered};
use ullage_bank::rows::{Rows, apply};
use ullage_net::Role;
use ullage_net::tls::Files;
use ullage_voucher::{Params, Write};

/// One member and its settings; nothing if Debian's etcd-server is not installed.
pub fn etcd(directory: &std::path::Path, address: &str) -> Option<(Member, EtcdSettings)> {
    etcd_of(directory, address, 0)
}

/// A bank over so many shards, which does not serve yet.
async fn bank_of(etcd: &EtcdSettings, shards: u32) -> Bank {
    let mut settings = settings(EngineChoice::Etcd(etcd.clone()));
    settings.shards = shards;
    Bank::bind("127.0.0.1:0", settings).await.unwrap()
}

/// One that holds so many bytes; zero is its default.
fn etcd_of(directory: &std::path::Path, address: &str, quota: u64) -> Option<(Member, EtcdSettings)> {
    let (client, peer) = (port(), port());
    let urls = format!("http://127.0.0.1:{client}");
    let peers = format!("http://127.0.0.1:{peer}");
    let member = Member::start(
        Command::new("etcd")
            .args(["--name", "a", "--data-dir"])
            .arg(directory)
            .args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls, "--listen-peer-urls", &peers])
            .args([
                "--initial-advertise-peer-urls",
                &peers,
                "--initial-cluster",
                &format!("a={peers}"),
                "--unsafe-no-fsync",
                "--quota-backend-bytes",
                &quota.to_string(),
            ]),
    )?;
    let certificates = Files::in_directory(directory, "none");
    Some((member, EtcdSettings::parse(&format!("etcd://127.0.0.1:{client}/t"), address, &certificates).unwrap()))
}

fn row(key: u32, value: u32) -> Write {
    Write { key: key.to_be_bytes()[..].into(), value: Some(value.to_be_bytes()[..].into()) }
}

async fn put(engine: &dyn Engine, writes: &[Write]) -> Result<(), EngineError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    engine.append(writes, Box::new(move |result| drop(sender.send(result))));
    receiver.await.unwrap()
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

/// A step of so many MiB under one of a few keys.
fn mib(key: u32, count: usize) -> [Write; 1] {
    let value = key.to_be_bytes().repeat(count << 18);
    [Write { key: (key % 4).to_be_bytes()[..].into(), value: Some(value.into()) }]
}

/// Whatever was removed was kept: etcd's space ran out, and no bank could lead any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_snapshots_replace_leaves_etcd_which_never_fills() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd_of(directory.path(), "first:1", 64 << 20) else { return };
    let run = async {
        let (first, _) = lead(&settings).await;
        let mut model = Rows::new();
        for number in 0..160 {
            let step = mib(number, 1);
            put(&first, &step).await.unwrap();
            apply(&mut model, &step);
            if number % 8 == 7 {
                first.snapshot(&model);
            }
        }
        drop(first);
        let (_, rows) = lead(&settings).await;
        assert!(rows == model, "{} rows of {}", rows.len(), model.len());
    };
    tokio::time::timeout(Duration::from_secs(120), run).await.unwrap();
}

/// Snapshots were due after so many commits only, however large, and were written when nobody wanted anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_due_by_bytes_and_written_while_more_and_more_is_queued() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "first:1") else { return };
    let run = async {
        let (first, _) = lead(&settings).await;
        let mut model = Rows::new();
        for number in 0..5 {
            assert!(!first.snapshot_due());
            let step = mib(number, 14);
            put(&first, &step).await.unwrap();
            apply(&mut model, &step);
        }
        assert!(first.snapshot_due(), "70 MiB");
        let mut waiting = Vec::new();
        for number in 0..50 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let step = [row(1000 + number, number)];
            first.append(&step, Box::new(move |result| drop(sender.send(result))));
            apply(&mut model, &step);
            waiting.push(receiver);
            if number == 25 {
                first.snapshot(&model);
            }
        }
        for done in waiting {
            done.await.unwrap().unwrap();
        }
        let mut client = etcd_client::Client::connect(&settings.endpoints, None).await.unwrap();
        let base = client.get("/ullage/t/0/base", None).await.unwrap();
        assert!(!base.kvs().is_empty(), "it is there before what was queued behind it is answered");
        drop(first);
        let (_, rows) = lead(&settings).await;
        assert!(rows == model, "{} rows of {}", rows.len(), model.len());
    };
    tokio::time::timeout(Duration::from_secs(120), run).await.unwrap();
}

/// Regression: the next one led only when the lease of the one that had ended in order ran out, after three seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_ends_leaves_its_leads_to_others_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "") else { return };
    let run = async {
        let bank = bank_of(&etcd, 3).await;
        let leads = async {
            for shard in 0..3 {
                while !matches!(etcd.leader(shard).await, Ok(Some(_))) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        bank.serve(Box::pin(leads)).await.unwrap();
        for shard in 0..3 {
            assert_eq!(etcd.leader(shard).await.unwrap(), None, "{shard}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// Regression: banks whose accounts in etcd were lost could be rebuilt in a directory only, for one of them.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_rebuilt_in_etcd_once_and_never_over_others() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "rebuild:1") else { return };
    let run = async {
        let remembered = Remembered::parse("stores = [3]\n[limits]\nann = \"1MiB\"\nbob = 5\n").unwrap();
        let rebuild = async || remembered.rebuild_in(&settings, 2, Params::default()).await;
        while let Err(error) = rebuild().await {
            assert!(matches!(error, RebuildError::Engine(EngineError::Etcd(_))), "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let error = rebuild().await.unwrap_err().to_string();
        assert!(error.contains("of the name t already"), "{error}");
        let bank = bank_of(&EtcdSettings { address: String::new(), ..settings.clone() }, 2).await;
        let address = bank.address().to_string();
        tokio::spawn(bank.serve(std::future::pending()));
        let admin = client("root", Role::Admin, &[&address], Duration::from_secs(20));
        let quotas: Vec<_> = admin.accounts().await.unwrap().into_iter().map(|a| (a.user, a.quota_bytes)).collect();
        assert_eq!(quotas, [("ann".to_owned(), 1 << 20), ("bob".to_owned(), 5)]);
        let status = admin.status(&address).await.unwrap();
        assert!(status.shards.iter().all(|shard| shard.recovering && shard.awaited == [3]), "{status:?}");
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// Regression: each leader began to count anew, so where they changed often enough no snapshot was ever due, and etcd filled.
#[tokio::test(flavor = "multi_thread")]
async fn commits_of_earlier_leaders_count_for_the_next_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, settings)) = etcd(directory.path(), "first:1") else { return };
    let run = async {
        for number in 0..5 {
            let (leader, _) = lead(&settings).await;
            assert!(!leader.snapshot_due(), "{} MiB", number * 14);
            put(&leader, &mib(number, 14)).await.unwrap();
            assert_eq!(leader.snapshot_due(), number == 4);
            drop(leader);
        }
        let (leader, rows) = lead(&settings).await;
        assert!(leader.snapshot_due());
        leader.snapshot(&rows);
        put(&leader, &[row(7, 7)]).await.unwrap();
        drop(leader);
        let (leader, after) = lead(&settings).await;
        assert!(!leader.snapshot_due() && after.len() == rows.len() + 1);
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// It took the lead again and again from those that could use it.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_cannot_use_what_it_won_ends_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "first:1") else { return };
    let bank = async |shards| bank_of(&etcd, shards).await;
    let run = async {
        let first = bank(1).await;
        let begun = async {
            let committed = async || {
                let mut client = etcd_client::Client::connect(&etcd.endpoints, None).await.ok()?;
                let first = client.get("/ullage/t/0/log/00000000000000000000", None).await.ok()?;
                first.kvs().first().map(drop)
            };
            while committed().await.is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        first.serve(Box::pin(begun)).await.unwrap();
        let error = bank(2).await.serve(std::future::pending()).await.unwrap_err().to_string();
        assert!(error.contains("over 1 shards"), "{error}");
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// Regression: with one of three members gone a part of all requests still went to it: each leader was deposed within seconds, and for minutes
/// there was none.
#[tokio::test(flavor = "multi_thread")]
async fn one_member_that_is_gone_deposes_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let ports: Vec<(u16, u16)> = (0..3).map(|_| (port(), port())).collect();
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let all: Vec<_> = ports.iter().enumerate().map(|(name, (_, peer))| format!("{name}={}", url(*peer))).collect();
    let mut members = Vec::new();
    for (name, (client, peer)) in ports.iter().enumerate() {
        let mut command = Command::new("etcd");
        command.args(["--name", &name.to_string(), "--data-dir"]).arg(directory.path().join(name.to_string()));
        command.args(["--listen-client-urls", &url(*client), "--advertise-client-urls", &url(*client)]);
        command.args(["--listen-peer-urls", &url(*peer), "--initial-advertise-peer-urls", &url(*peer)]);
        command.args(["--initial-cluster", &all.join(","), "--unsafe-no-fsync"]);
        command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
        let Some(member) = Member::start(&mut command) else { return };
        members.push(member);
    }
    let hosts: Vec<_> = ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
    let certificates = Files::in_directory(directory.path(), "none");
    let engine = format!("etcd://{}/t", hosts.join(","));
    let settings = EtcdSettings::parse(&engine, "bank:1", &certificates).unwrap();
    let run = async {
        let (mut leader, _) = lead(&settings).await;
        put(&leader, &[row(1, 0)]).await.unwrap();
        // The one that most of the others follow, or not.
        members.pop();
        for round in 0..4 {
            for number in 0..20 {
                let writes = if number % 2 == 0 { vec![row(1, number)] } else { Vec::new() };
                put(&leader, &writes).await.unwrap_or_else(|error| panic!("{round}, {number}: {error}"));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(leader.is_leading(), "{round}");
            drop(leader);
            leader = campaign(&settings, 0, &|_| true).await.unwrap().0;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}
