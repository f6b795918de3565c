//! Banks that are reached and say nothing.

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_bank::client::BankClient;
use ullage_bank::config::EngineChoice;
use ullage_bank::wire::{AccountChange, ClientBatch};
use ullage_bank::{Bank, BankSettings, identity};
use ullage_journal::Durability;
use ullage_net::client::{Client, Settings};
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_voucher::bank::{Policy, Waits};
use ullage_voucher::message::{BankToClient, ClientToBank};
use ullage_voucher::{KeyId, Keyring, Micros, Op};

const TOKEN_KEY: [u8; 32] = [5; 32];
const TIME_MAX: Duration = Duration::from_secs(60);

async fn bank(directory: &std::path::Path, policy: Policy) -> String {
    let engine = EngineChoice::Embedded { directory: directory.to_owned(), durability: Durability::Process };
    let mut settings = BankSettings::new(engine, Arc::new(Keyring::with_root(KeyId(1), [1; 32])), [2; 32]);
    settings.gate.token_key = Some(TOKEN_KEY);
    settings.policy = policy;
    let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
    let address = bank.address().to_string();
    tokio::spawn(bank.serve(std::future::pending()));
    address
}

fn client(name: &str, role: Role, banks: &[&str], patience: Duration) -> BankClient {
    let token = Bearer { name: name.into(), role, expires: clock::now_secs() + 100 }.sign(&TOKEN_KEY);
    let client = Client::new(Settings { token: Some(token), ..Settings::default() });
    BankClient::new(Arc::new(client), banks.iter().map(|bank| (*bank).to_owned()).collect(), patience)
}

/// The kernel takes connections for it.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

const QUOTA: AccountChange = AccountChange { quota_bytes: Some(1000), blocked: None };

/// It was waited for as long as a request may take, and then asked again: no store opened, no command succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_bank_is_left_for_another() {
    tokio::time::timeout(TIME_MAX, async {
        let directory = tempfile::tempdir().unwrap();
        let real = bank(directory.path(), Policy::Limiting { floor: 1 }).await;
        let ((_one, one), (_two, two)) = (silent(), silent());
        let began = Instant::now();
        let patient = client("root", Role::Admin, &[&one, &real], Duration::from_secs(30));
        patient.change("alice", &QUOTA).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        // Who has patience for one bank at a time only comes to the right one all the same.
        let hurried = client("root", Role::Admin, &[&one, &two, &real], Duration::from_secs(1));
        for _ in 0..2 {
            let error = hurried.account("alice").await.unwrap_err().to_string();
            assert!(error.contains("silent"), "{error}");
        }
        hurried.account("alice").await.unwrap();
        hurried.account("alice").await.unwrap();
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_answer_waits_for_another_client_is_not_left() {
    tokio::time::timeout(TIME_MAX, async {
        let directory = tempfile::tempdir().unwrap();
        let (_one, one) = silent();
        let policy = Policy::Revocation { timeout: Micros::from_secs(6), waits: Waits::Answers };
        let real = bank(directory.path(), policy).await;
        client("root", Role::Admin, &[&real], Duration::ZERO).change("alice", &QUOTA).await.unwrap();
        let alice = client("alice", Role::User, &[&real, &one], Duration::ZERO);
        let granted = async |instance, want| -> u64 {
            let message = ClientToBank::Request { user: identity::user("alice"), op: Op(1), want, audience: None };
            let client = identity::client("alice", instance);
            let batch = ClientBatch { client, messages: vec![message], ..ClientBatch::default() };
            match alice.messages(&batch).await.unwrap().messages.as_slice() {
                [BankToClient::Granted { pieces, .. }] => pieces.iter().map(|piece| piece.amount).sum(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(granted(1, 900).await, 900);
        let began = Instant::now();
        assert_eq!(granted(2, 900).await, 100);
        assert!(began.elapsed() > Duration::from_secs(5), "the first client was waited for");
        let batch = ClientBatch { client: identity::client("alice", 3), ..ClientBatch::default() };
        alice.listen(&batch, 5000).await.unwrap();
    })
    .await
    .unwrap();
}
