//! Banks that are reached and say nothing.

use crate::common::{client, embedded, settings};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ullage_bank::wire::{AccountChange, ClientBatch, StoreBatch};
use ullage_bank::{Bank, identity};
use ullage_net::Role;
use ullage_net::server::Limits;
use ullage_voucher::bank::{Policy, Waits};
use ullage_voucher::message::{BankToClient, ClientToBank};
use ullage_voucher::{Micros, Op};

const TIME_MAX: Duration = Duration::from_secs(60);

async fn bank(directory: &std::path::Path, policy: Policy) -> String {
    bank_within(directory, policy, |_| {}).await
}

async fn bank_within(directory: &std::path::Path, policy: Policy, bound: impl FnOnce(&mut Limits)) -> String {
    let mut settings = settings(embedded(directory));
    settings.policy = policy;
    bound(&mut settings.limits);
    let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
    let address = bank.address().to_string();
    tokio::spawn(bank.serve(std::future::pending()));
    address
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

/// With a place for one connection only, it could not be asked whether it is there, and was left.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_answer_waits_for_another_client_is_not_left_with_no_place_for_a_connection_either() {
    tokio::time::timeout(TIME_MAX, async {
        for places in [100, 1] {
            waits_for_another_client(places).await;
        }
    })
    .await
    .unwrap();
}

async fn waits_for_another_client(places: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (_one, one) = silent();
    let policy = Policy::Revocation { timeout: Micros::from_secs(6), waits: Waits::Answers };
    let real = bank_within(directory.path(), policy, |limits| limits.connections = places).await;
    client("root", Role::Admin, &[&real], Duration::ZERO).change("alice", &QUOTA).await.unwrap();
    // Until the place is free again.
    tokio::time::sleep(Duration::from_millis(200)).await;
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
}

/// A whole request's head.
fn head_of(stream: &TcpStream) -> Option<String> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let head = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    (!head.is_empty()).then_some(head)
}

fn say(stream: &TcpStream, body: &str) {
    answer(stream, "200 OK", body);
}

fn answer(mut stream: &TcpStream, status: &str, body: &str) {
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
}

/// A bank that gives its first answer after so long, and to who asks meanwhile one at once or none; what it was asked meanwhile.
fn slow(first: Duration, others: bool) -> (String, Arc<Mutex<Vec<String>>>) {
    let (listener, address) = silent();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let noted = Arc::clone(&noted);
            std::thread::spawn(move || {
                while let Some(head) = head_of(&stream) {
                    if number == 0 {
                        std::thread::sleep(first);
                        say(&stream, r#"{"messages":[],"capabilities":[]}"#);
                    } else {
                        noted.lock().unwrap().push(head);
                        others.then(|| say(&stream, r#"{"messages":[],"capabilities":[]}"#));
                    }
                }
            });
        }
    });
    (address, asked)
}

fn one_message() -> ClientBatch {
    ClientBatch { client: identity::client("alice", 1), ..ClientBatch::default() }
}

/// It came while the bank was asked whether it is there, and was not looked at.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_while_the_bank_is_asked_how_it_is_counts() {
    let ((bank, asked), (_other, other)) = (slow(Duration::from_secs(3), false), silent());
    let alice = client("alice", Role::User, &[&bank, &other], Duration::ZERO);
    let began = Instant::now();
    tokio::time::timeout(TIME_MAX, alice.messages(&one_message())).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(3800), "{:?}", began.elapsed());
    assert!(asked.lock().unwrap()[0].starts_with("get /v1/status"));
}

/// Each client that waited held two connections.
#[tokio::test(flavor = "multi_thread")]
async fn asking_a_bank_how_it_is_keeps_no_connection_and_who_listens_need_not_ask() {
    let ((bank, asked), (_other, other)) = (slow(Duration::from_secs(5), true), silent());
    let alice = client("alice", Role::User, &[&bank, &other], Duration::ZERO);
    tokio::time::timeout(TIME_MAX, alice.listen(&one_message(), 5000)).await.unwrap().unwrap();
    assert_eq!(asked.lock().unwrap().len(), 0);
    tokio::time::timeout(TIME_MAX, alice.messages(&one_message())).await.unwrap().unwrap();
    let asked = asked.lock().unwrap();
    assert!((1..=2).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|head| head.contains("connection: close")), "{asked:?}");
}

/// The leader was left for a bank that does not lead, or is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_takes_no_more_requests_now_is_asked_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let (_one, one) = silent();
    let policy = Policy::Limiting { floor: 1 };
    let real = bank_within(directory.path(), policy, |limits| limits.requests_per_second = 1).await;
    let root = client("root", Role::Admin, &[&real, &one], Duration::from_secs(30));
    let began = Instant::now();
    for _ in 0..3 {
        tokio::time::timeout(TIME_MAX, root.accounts()).await.unwrap().unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(3900), "{:?}", began.elapsed());
}

/// A new client waited without a word for one to leave. Then stores and administrators were told the same as the users who had all the places.
#[tokio::test(flavor = "multi_thread")]
async fn users_who_find_no_place_are_told_so_and_may_look_and_stores_and_administrators_are_heard() {
    let directory = tempfile::tempdir().unwrap();
    let policy = Policy::Limiting { floor: 1 };
    let real = bank_within(directory.path(), policy, |limits| limits.connections = 1).await;
    let by = |name, role, patience| client(name, role, &[&real], Duration::from_secs(patience));
    let alice = |patience| by("alice", Role::User, patience);
    let first = alice(0);
    first.messages(&one_message()).await.unwrap();
    let began = Instant::now();
    by("root", Role::Admin, 0).change("alice", &QUOTA).await.unwrap();
    let store = StoreBatch { shard: 0, shards: 1, messages: Vec::new() };
    by("store-1", Role::Store, 0).store_messages(&store).await.unwrap();
    alice(0).account("alice").await.unwrap();
    let error = alice(0).messages(&one_message()).await.unwrap_err();
    assert_eq!(error.code(), Some("full"));
    assert!(began.elapsed() < Duration::from_secs(5));
    let patient = alice(30);
    let second = tokio::spawn(async move { patient.messages(&one_message()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(first);
    tokio::time::timeout(TIME_MAX, second).await.unwrap().unwrap().unwrap();
}

/// A bank that has a place for nobody, and how often it said so.
fn full() -> (String, Arc<AtomicUsize>) {
    let (listener, address) = silent();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if head_of(&stream).is_some() {
                count.fetch_add(1, Relaxed);
                answer(&stream, "503 Service Unavailable", r#"{"error":{"code":"full","message":"ask again later"}}"#);
            }
        }
    });
    (address, told)
}

/// A bank has no place before it can say that it does not lead: its clients stayed, and never came to the one that does.
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_is_full_is_left_for_another() {
    tokio::time::timeout(TIME_MAX, async {
        let directory = tempfile::tempdir().unwrap();
        let ((one, told), real) = (full(), bank(directory.path(), Policy::Limiting { floor: 1 }).await);
        let alice = |patience| client("alice", Role::User, &[&one, &real], patience);
        let patient = alice(Duration::from_secs(30));
        let began = Instant::now();
        patient.messages(&one_message()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        patient.messages(&one_message()).await.unwrap();
        assert_eq!(told.load(Relaxed), 1, "the second goes where the first was answered");
        // Who has no patience comes there all the same, if later.
        let hurried = alice(Duration::ZERO);
        assert_eq!(hurried.messages(&one_message()).await.unwrap_err().code(), Some("full"));
        hurried.messages(&one_message()).await.unwrap();
    })
    .await
    .unwrap();
}
