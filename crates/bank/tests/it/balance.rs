//! Several banks on one etcd: each leads some of the shards, and whoever asks finds all of them.

use crate::common::{client, settings};
use crate::etcd::etcd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_bank::config::EngineChoice;
use ullage_bank::engine::{EtcdSettings, campaign};
use ullage_bank::wire::{AccountChange, ClientBatch};
use ullage_bank::{Bank, BankError, BankSettings, identity};
use ullage_net::Role;
use ullage_voucher::bank::{Policy, Waits};
use ullage_voucher::message::{BankToClient, ClientToBank};
use ullage_voucher::{Micros, Op};

const SHARDS: u32 = 4;
const USERS: u32 = 8;
const QUOTA: u64 = 1 << 40;
const PATIENCE: Duration = Duration::from_secs(20);

async fn bank(etcd: &EtcdSettings) -> String {
    bank_with(etcd, |_| {}).await.0
}

async fn bank_with(
    etcd: &EtcdSettings,
    other: impl FnOnce(&mut BankSettings),
) -> (String, tokio::task::JoinHandle<Result<(), BankError>>) {
    let mut settings = settings(EngineChoice::Etcd(etcd.clone()));
    settings.shards = SHARDS;
    other(&mut settings);
    let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
    let address = bank.address().to_string();
    (address, tokio::spawn(bank.serve(std::future::pending())))
}

/// Waits until each of these banks leads so many shards.
async fn lead(etcd: &EtcdSettings, banks: &[(&String, usize)]) {
    loop {
        // It may not have started.
        let standings = etcd.standings(SHARDS).await.unwrap_or_default();
        let led_by = |bank: &String| standings.iter().filter(|standing| standing.leader.as_ref() == Some(bank)).count();
        if banks.iter().all(|(bank, count)| led_by(bank) == *count) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn name(user: u32) -> String {
    format!("user{user}")
}

/// Asks for ten bytes again and again, each time once; how many it got and how long it waited at most.
async fn withdraws(user: u32, banks: [String; 2], stop: Arc<AtomicBool>) -> (u64, Duration) {
    let bank = client(&name(user), Role::User, &[&banks[0], &banks[1]], PATIENCE);
    let own = identity::user(&name(user));
    let (mut granted, mut longest) = (0, Duration::ZERO);
    for op in 1.. {
        if stop.load(Relaxed) {
            break;
        }
        let message = ClientToBank::Request { user: own, op: Op(op), want: 10, audience: None };
        let batch =
            ClientBatch { client: identity::client(&name(user), 1), messages: vec![message], ..ClientBatch::default() };
        let began = Instant::now();
        match bank.messages(&batch).await.unwrap().messages.as_slice() {
            [BankToClient::Granted { pieces, .. }] => granted += pieces.iter().map(|piece| piece.amount).sum::<u64>(),
            other => panic!("{other:?}"),
        }
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (granted, longest)
}

/// Who came first led all shards, and the others waited for it to fail. Where two led some each, no list of accounts or findings was to be had, and
/// no store could be given up.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_later_is_handed_its_part_and_every_request_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "") else { return };
    let run = async {
        let first = bank(&etcd).await;
        lead(&etcd, &[(&first, SHARDS as usize)]).await;
        let root = client("root", Role::Admin, &[&first], PATIENCE);
        for user in 0..USERS {
            root.change(&name(user), &AccountChange { quota_bytes: Some(QUOTA), blocked: None }).await.unwrap();
        }
        let second = bank(&etcd).await;
        let stop = Arc::new(AtomicBool::new(false));
        let withdrawing: Vec<_> = (0..USERS)
            .map(|user| tokio::spawn(withdraws(user, [first.clone(), second.clone()], Arc::clone(&stop))))
            .collect();
        lead(&etcd, &[(&first, 2), (&second, 2)]).await;
        let root = client("root", Role::Admin, &[&first, &second], PATIENCE);
        assert_eq!(root.accounts().await.unwrap().len(), USERS as usize);
        assert_eq!(root.findings().await.unwrap().len(), 0);
        assert_eq!(root.exclude(99).await.unwrap_err().code(), Some("not_found"));
        // It stays so.
        tokio::time::sleep(Duration::from_secs(12)).await;
        lead(&etcd, &[(&first, 2), (&second, 2)]).await;
        stop.store(true, Relaxed);
        let accounts = root.accounts().await.unwrap();
        for (user, withdrawn) in (0..).zip(withdrawing) {
            let (granted, longest) = withdrawn.await.unwrap();
            println!("{user}: {granted}, at most after {longest:?}");
            assert!(granted > 0 && longest < Duration::from_secs(5), "{user}: {granted}, once after {longest:?}");
            let account = accounts.iter().find(|account| account.user == name(user)).unwrap();
            // What was asked for while the accounts were listed is one request each.
            assert!(
                (account.issued_bytes..=account.issued_bytes + 20).contains(&granted),
                "{user}: {granted} of {account:?}"
            );
        }
    };
    tokio::time::timeout(Duration::from_secs(90), run).await.unwrap();
}

/// A user of shard `0`, which is the first to be handed over.
fn user_of_first() -> u32 {
    (0..1000).find(|number| identity::shard_of(identity::user(&name(*number)), SHARDS) == 0).unwrap()
}

/// It was woken while the old leader still led, and waited there on: what another asked it for it was not told, and that one was denied.
#[tokio::test(flavor = "multi_thread")]
async fn who_listens_at_a_shard_that_is_handed_over_is_sent_to_its_leader() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "") else { return };
    let run = async {
        let (first, _) = bank_with(&etcd, |settings| {
            settings.policy = Policy::Revocation { timeout: Micros::from_secs(5), waits: Waits::Answers };
        })
        .await;
        lead(&etcd, &[(&first, SHARDS as usize)]).await;
        let user = name(user_of_first());
        let root = client("root", Role::Admin, &[&first], PATIENCE);
        root.change(&user, &AccountChange { quota_bytes: Some(QUOTA), blocked: None }).await.unwrap();
        let listens = client(&user, Role::User, &[&first], Duration::ZERO);
        let batch = ClientBatch { client: identity::client(&user, 1), ..ClientBatch::default() };
        let listening = tokio::spawn(async move {
            loop {
                // Until there is another leader.
                if let Err(error) = listens.listen(&batch, 28_000).await {
                    return (error, Instant::now());
                }
            }
        });
        let second = bank(&etcd).await;
        let leads = async || etcd.standings(1).await.is_ok_and(|all| all[0].leader.as_ref() == Some(&second));
        while !leads().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let since = Instant::now();
        let (error, told) = listening.await.unwrap();
        assert_eq!(error.code(), Some("not_leading"));
        assert!(told.saturating_duration_since(since) < Duration::from_secs(2), "{:?}", told - since);
        // And the first knows who leads now.
        while root.status(&first).await.unwrap().shards[0].leader.as_ref() != Some(&second) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    };
    tokio::time::timeout(Duration::from_secs(90), run).await.unwrap();
}

/// Regression: a bank that had won a lead and still read the accounts "handed it over": nothing happened, and the other bank, which was said not to have
/// kept it, was handed nothing for ten minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lead_that_is_won_and_not_yet_taken_up_is_not_handed_over() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "") else { return };
    let run = async {
        let settings = EtcdSettings { address: "first:1".into(), ..etcd.clone() };
        let _reading = loop {
            // It may not have started.
            match campaign(&settings, 0, &|_| true).await {
                Ok((reading, _)) => break reading,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        bank_with(&settings, |_| {}).await;
        let first = settings.address.clone();
        lead(&etcd, &[(&first, SHARDS as usize)]).await;
        let second = bank(&etcd).await;
        lead(&etcd, &[(&first, 2), (&second, 2)]).await;
        assert_eq!(etcd.leader(0).await.unwrap(), Some(first));
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// It was handed the lead, found that it cannot use it, ended, was started again, and was handed it again: most of the time nobody led.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_cannot_lead_ends_and_is_handed_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_member, etcd)) = etcd(directory.path(), "") else { return };
    let run = async {
        let first = bank(&etcd).await;
        lead(&etcd, &[(&first, SHARDS as usize)]).await;
        // The same bank each time.
        let settings = EtcdSettings { address: "second:1".into(), ..etcd.clone() };
        let ends = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ends);
        let ending = tokio::spawn(async move {
            loop {
                let (_, serving) = bank_with(&settings, |settings| settings.shards = SHARDS / 2).await;
                let error = serving.await.unwrap().unwrap_err().to_string();
                assert!(error.contains("over 4 shards"), "{error}");
                counted.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        let until = Instant::now() + Duration::from_secs(18);
        while Instant::now() < until {
            let standings = etcd.standings(SHARDS).await.unwrap();
            assert!(standings.iter().all(|standing| standing.leader.as_ref() == Some(&first)), "{standings:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(ends.load(Relaxed) > 3 && !ending.is_finished());
    };
    tokio::time::timeout(Duration::from_secs(90), run).await.unwrap();
}
