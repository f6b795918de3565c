//! What a bank is told when it is started again must agree with what it was begun with.

#![allow(missing_docs, clippy::unwrap_used)]

use hyper::Method;
use std::path::Path;
use std::sync::Arc;
use ullage_bank::config::EngineChoice;
use ullage_bank::engine::{Embedded, Engine};
use ullage_bank::wire::{AccountChange, AccountView};
use ullage_bank::{Bank, BankError, BankSettings};
use ullage_journal::Durability;
use ullage_net::client::{Client, Settings};
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_voucher::{KeyId, Keyring, Params, Write};

const TOKEN_KEY: [u8; 32] = [5; 32];

async fn bind(directory: &Path, shards: u32, params: Params) -> Result<Bank, BankError> {
    let engine = EngineChoice::Embedded { directory: directory.to_owned(), durability: Durability::Process };
    let mut settings = BankSettings::new(engine, Arc::new(Keyring::with_root(KeyId(1), [1; 32])), [2; 32]);
    settings.gate.token_key = Some(TOKEN_KEY);
    settings.shards = shards;
    settings.params = params;
    Bank::bind("127.0.0.1:0", settings).await
}

/// A bank with accounts, which has ended.
async fn used(directory: &Path, shards: u32) {
    let bank = bind(directory, shards, Params::default()).await.unwrap();
    let address = bank.address().to_string();
    let token = Bearer { name: "root".into(), role: Role::Admin, expires: clock::now_secs() + 100 }.sign(&TOKEN_KEY);
    let client = Client::new(Settings { token: Some(token), ..Settings::default() });
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
    for (begun, given) in [(1, 4), (4, 1)] {
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
