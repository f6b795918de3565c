//! What a bank is told when it is started again must agree with what it was begun with.

use crate::common::{embedded, http, settings};
use hyper::Method;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ullage_bank::engine::{Embedded, Engine};
use ullage_bank::rebuild::Remembered;
use ullage_bank::wire::{AccountChange, AccountView, BankStatus, FindingView};
use ullage_bank::{Bank, BankError, identity};
use ullage_journal::Durability;
use ullage_net::Role;
use ullage_voucher::bank::{BankAction, BankConfig, BankCore, BankEvent, BankOutput, Finding};
use ullage_voucher::message::{Base, Renew, Report, StoreToBank};
use ullage_voucher::{Epoch, Incarnation, Keyring, Micros, Node, Params, User, Write};

async fn bind(directory: &Path, shards: u32, params: Params) -> Result<Bank, BankError> {
    let mut settings = settings(embedded(directory));
    settings.shards = shards;
    settings.params = params;
    Bank::bind("127.0.0.1:0", settings).await
}

/// A bank with accounts, which has ended.
async fn used(directory: &Path, shards: u32) {
    let bank = bind(directory, shards, Params::default()).await.unwrap();
    let address = bank.address().to_string();
    let client = http("root", Role::Admin);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(bank.serve(async { drop(ended.await) }));
    let change = AccountChange { quota_bytes: Some(1000), blocked: None };
    for name in ["alice", "bob", "carol", "dave"] {
        let _: AccountView =
            client.json(&address, Method::PUT, &format!("/v1/users/{name}"), Some(&change)).await.unwrap();
    }
    end.send(()).unwrap();
    task.await.unwrap().unwrap();
}

/// As an older version left it.
fn without_row(directory: &Path, shard: u32, key: &[u8]) {
    let (engine, rows) = Embedded::open(&directory.join(shard.to_string()), Durability::Process).unwrap();
    assert!(rows.contains_key(key));
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.append(&[Write { key: key.into(), value: None }], Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
}

async fn opens(directory: &Path, shards: u32) {
    bind(directory, shards, Params::default()).await.unwrap().serve(async {}).await.unwrap();
}

async fn refused(directory: &Path, shards: u32, params: Params) -> String {
    bind(directory, shards, params).await.map(drop).unwrap_err().to_string()
}

/// Accounts were not found any more, and setting a quota again gave it a second time.
#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_shards_is_refused() {
    for (begun, given) in [(1, 4), (4, 1), (2, 4)] {
        let directory = tempfile::tempdir().unwrap();
        used(directory.path(), begun).await;
        let error = refused(directory.path(), given, Params::default()).await;
        assert!(error.contains(&format!("over {begun} shards")) && error.contains("--shards"), "{error}");
        opens(directory.path(), begun).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_older_versions_are_opened_under_the_number_that_they_were_spread_over() {
    for (begun, given) in [(1, 4), (4, 1), (4, 8), (4, 2)] {
        let directory = tempfile::tempdir().unwrap();
        used(directory.path(), begun).await;
        for shard in 0..begun {
            without_row(directory.path(), shard, b"~S");
        }
        refused(directory.path(), given, Params::default()).await;
        opens(directory.path(), begun).await;
        refused(directory.path(), given, Params::default()).await;
    }
}

/// Who had once given a wrong number to an older version, which made directories for it, could not start a newer one with any.
#[tokio::test(flavor = "multi_thread")]
async fn directories_that_a_wrong_number_made_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    used(directory.path(), 1).await;
    without_row(directory.path(), 0, b"~S");
    for shard in ["1", "2", "3"] {
        Embedded::open(&directory.path().join(shard), Durability::Process).unwrap();
    }
    refused(directory.path(), 4, Params::default()).await;
    opens(directory.path(), 1).await;
    refused(directory.path(), 4, Params::default()).await;
}

/// The first tick panicked, and every request after it was closed.
#[tokio::test(flavor = "multi_thread")]
async fn another_k_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    used(directory.path(), 1).await;
    let other = Params::new(2, 5).unwrap();
    let error = refused(directory.path(), 1, other).await;
    assert!(error.contains("--reconcile-epochs 3"), "{error}");
    without_row(directory.path(), 0, b"k");
    let error = refused(directory.path(), 1, other).await;
    assert!(error.contains("K = 3 at most"), "{error}");
    opens(directory.path(), 1).await;
}

/// Regression: nothing said for which store a rebuilt bank waited, nor that it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_bank_says_which_stores_it_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let remembered = Remembered::parse("stores = [2, 9]\n[limits]\nalice = 5\n").unwrap();
    remembered.rebuild(directory.path(), 1, Params::default()).unwrap();
    let bank = bind(directory.path(), 1, Params::default()).await.unwrap();
    let address = bank.address().to_string();
    let client = http("root", Role::Admin);
    let task = tokio::spawn(bank.serve(std::future::pending()));
    let status: BankStatus = client.json(&address, Method::GET, "/v1/status", None::<&()>).await.unwrap();
    assert_eq!((status.shards[0].recovering, &status.shards[0].awaited), (true, &vec![2, 9]));
    task.abort();
}

/// A bank that ended between finding a cheater and telling of it told nobody. Told once more it seemed to be another offence, of now.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_before_a_restart_is_told_once_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut out = BankOutput::default();
    let config = BankConfig::new(identity::bank_node(0), Params::default());
    let mut core = BankCore::new(config, Arc::new(Keyring::new()), Incarnation(1), &mut out);
    let (store, incarnation) = (Node(1), Incarnation(1));
    let base = Some(Base { fresh: true, epoch: Epoch(0), used: Vec::new() });
    let (bank, before, epoch) = (Incarnation(0), Vec::new(), Epoch(1));
    let renew = Renew { store, incarnation, boot: 1, beat: 1, bank, before, epoch, free: 0, total: 0, base };
    let used = vec![(User(1), -5)];
    let report = Report { store, incarnation, epoch: Epoch(2), used, spent: Vec::new(), refunds: Vec::new() };
    for message in [StoreToBank::Renew(renew), StoreToBank::Report(report)] {
        core.step(BankEvent::FromStore(message), Micros(1), &mut out);
    }
    let found =
        |action: &BankAction| if let BankAction::Found(finding) = action { Some(finding.clone()) } else { None };
    let kept = FindingView { at_ms: 1234, user: None, finding: out.actions.iter().find_map(found).unwrap() };
    let key = [b"~F".as_slice(), &0u64.to_be_bytes()].concat();
    out.writes.push(Write { key: key.as_slice().into(), value: Some(serde_json::to_vec(&kept).unwrap().into()) });
    let (engine, _) = Embedded::open(&directory.path().join("0"), Durability::Process).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.append(&out.writes, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
    drop(engine);
    let told = directory.path().join("told");
    let mut settings = settings(embedded(directory.path()));
    settings.notify_command = vec!["sh".into(), "-c".into(), format!("cat > {0}.new; mv {0}.new {0}", told.display())];
    let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
    let until = async {
        while !told.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), bank.serve(until)).await;
    heard.expect("nobody was told").unwrap();
    let finding: FindingView = serde_json::from_slice(&std::fs::read(&told).unwrap()).unwrap();
    assert!(matches!(finding.finding, Finding::StoreLied { store: Node(1), .. }), "{finding:?}");
    assert_eq!(finding.at_ms, 1234);
}
