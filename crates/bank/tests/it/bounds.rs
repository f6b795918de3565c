//! What one party can take of a bank.

use crate::common::{embedded, settings, token};
use bytes::Bytes;
use hyper::Method;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use ullage_bank::wire::{ClientBatch, StoreBatch};
use ullage_bank::{Bank, identity};
use ullage_net::Role;
use ullage_net::client::{Client, Settings};
use ullage_voucher::Op;
use ullage_voucher::message::ClientToBank;

const SOON: Duration = Duration::from_secs(20);

async fn bank(directory: &std::path::Path, rate: u32) -> String {
    let mut settings = settings(embedded(directory));
    settings.limits.requests_per_second = rate;
    let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
    let address = bank.address().to_string();
    tokio::spawn(bank.serve(std::future::pending()));
    address
}

/// A request of which only the head was sent, and of its body nothing yet.
async fn begun(address: &str, method: &str, path: &str, token: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: bank\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Twelve connections of any user made the bank take 771 MB.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_send_a_body_is_refused_before_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path(), 0).await;
    for (method, path, name, role) in [
        ("POST", "/v1/stores/messages", "alice", Role::User),
        ("POST", "/v1/stores/messages", "store", Role::Store),
        ("POST", "/v1/messages", "store-1", Role::Store),
        ("PUT", "/v1/users/alice", "alice", Role::User),
    ] {
        let mut stream = begun(&address, method, path, &token(name, role), 1 << 20).await;
        let mut answer = [0; 12];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it waits for the body").unwrap();
        assert_eq!(&answer, b"HTTP/1.1 403", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_store_cannot_have_all_the_memory_there_is_for_bodies() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path(), 0).await;
    let part = vec![b' '; 32 << 20];
    let (one, two) = (token("store-1", Role::Store), token("store-2", Role::Store));
    let mut first = begun(&address, "POST", "/v1/stores/messages", &one, 64 << 20).await;
    timeout(SOON, first.write_all(&part)).await.unwrap().unwrap();
    let mut second = begun(&address, "POST", "/v1/stores/messages", &one, 64 << 20).await;
    assert!(timeout(Duration::from_secs(1), second.write_all(&part)).await.is_err(), "its part is used up");
    let mut other = begun(&address, "POST", "/v1/stores/messages", &two, 64 << 20).await;
    timeout(SOON, other.write_all(&part)).await.unwrap().unwrap();
    drop(first);
    timeout(SOON, second.write_all(&part)).await.unwrap().unwrap();
}

/// Regression: four users who hardly sent held the memory of all bodies, so that no store renewed its lease and no user got a voucher.
#[tokio::test(flavor = "multi_thread")]
async fn users_who_hardly_send_hold_up_no_store_and_no_small_request() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path(), 0).await;
    let mut slow = Vec::new();
    for user in ["a", "b", "c", "d"] {
        for _ in 0..64 {
            slow.push(begun(&address, "POST", "/v1/messages", &token(user, Role::User), 1 << 20).await);
        }
    }
    // Each has sent its head; a bank that reads them one by one has come to all of them soon.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut report = serde_json::to_vec(&StoreBatch { shard: 0, shards: 0, messages: Vec::new() }).unwrap();
    report.resize(1 << 20, b' ');
    let batch = ClientBatch { client: identity::client("e", 1), ..Default::default() };
    let batch = serde_json::to_vec(&batch).unwrap();
    for (name, role, path, body) in
        [("store-1", Role::Store, "/v1/stores/messages", report), ("e", Role::User, "/v1/messages", batch)]
    {
        let client = Client::new(Settings { token: Some(token(name, role)), ..Settings::default() });
        let reply = client.send(&address, Method::POST, path, &[], body.into());
        let reply = timeout(Duration::from_secs(4), reply).await.expect("it waits").unwrap();
        assert_eq!(reply.status.as_u16(), 200, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_in_a_request_counts_for_the_rate() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path(), 100).await;
    let client = Client::new(Settings { token: Some(token("alice", Role::User)), ..Settings::default() });
    let user = identity::user("alice");
    let request = |op| ClientToBank::Request { user, op: Op(op), want: 1, audience: None };
    let batch = ClientBatch {
        client: identity::client("alice", 1),
        messages: (0..1024).map(request).collect(),
        ..Default::default()
    };
    let body = Bytes::from(serde_json::to_vec(&batch).unwrap());
    let send =
        async || client.send(&address, Method::POST, "/v1/messages", &[], body.clone()).await.unwrap().status.as_u16();
    assert_eq!((send().await, send().await), (200, 429));
}
