//! What requests may take of a store's memory.

use crate::cluster::raw::Raw;
use crate::cluster::{self, Cluster, Plan, fixed};
use hyper::Method;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use ullage_bank::identity;
use ullage_net::tls;
use ullage_store::client::Chunks;
use ullage_store::server::StoreSettings;

const TIME_MAX: Duration = Duration::from_secs(100);
const LARGEST: usize = 16 << 20;

/// A request whose body never comes, and is awaited: so it has taken its memory.
async fn begun(cluster: &Cluster, alice: &Raw, op: u64) -> TlsStream<TcpStream> {
    let tls = tls::client(&tls::Files::in_directory(&cluster.certificates(), "alice")).unwrap();
    let stream = TcpStream::connect(&alice.address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(tls).connect(name, stream).await.unwrap();
    let (capability, client) = (&alice.capability, identity::client("alice", 1).0);
    let head = format!(
        "PUT /v1/chunks/alice/never HTTP/1.1\r\nhost: x\r\ncontent-length: {LARGEST}\r\n\
         x-ullage-capability: {capability}\r\nx-ullage-client: {client:016x}\r\nx-ullage-op: {op}\r\n\
         expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// Each took the memory of a whole chunk, whatever else was held.
#[tokio::test(flavor = "multi_thread")]
async fn what_copies_a_chunk_waits_for_memory() {
    timeout(TIME_MAX, async {
        let plan = Plan { stores: 1, store: |settings| settings.bodies_mib = 32, ..Plan::default() };
        let mut cluster = Cluster::start(plan).await;
        let alice = Raw::new(&cluster).await;
        alice.put(1, "x").await.unwrap();
        let slow = [begun(&cluster, &alice, 100).await, begun(&cluster, &alice, 101).await];
        let soon = Duration::from_millis(500);
        let truncate = alice.send(2, Method::POST, "/v1/chunks/alice/x?size=100000", &[]);
        assert!(timeout(soon, truncate).await.is_err(), "a truncate takes what is not there");
        drop(slow);
        alice.send(2, Method::POST, "/v1/chunks/alice/x?size=100000", &[]).await.unwrap();
        // Its own body is half of what it takes.
        let slow = begun(&cluster, &alice, 102).await;
        let zeros = vec![0; 70_000];
        let patch = alice.send(3, Method::PATCH, "/v1/chunks/alice/x?offset=0", &zeros);
        assert!(timeout(soon, patch).await.is_err(), "a large patch takes what is not there");
        drop(slow);
        alice.send(3, Method::PATCH, "/v1/chunks/alice/x?offset=0", &zeros).await.unwrap();
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: to wait for memory counted as silence, so that transfers beside others over a slow line failed after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_memory_is_not_silent() {
    timeout(TIME_MAX, async {
        let shorten = |settings: &mut StoreSettings| {
            settings.bodies_mib = 32;
            settings.limits.request_timeout = Duration::from_secs(8);
        };
        let mut cluster = Cluster::start(Plan { stores: 1, store: shorten, ..Plan::default() }).await;
        let alice = Raw::new(&cluster).await;
        let mut slow = [begun(&cluster, &alice, 100).await, begun(&cluster, &alice, 101).await];
        let part = vec![1; 32 << 10];
        let slowly = tokio::spawn(async move {
            for _ in 0..120 {
                for stream in &mut slow {
                    stream.write_all(&part).await.unwrap();
                    stream.flush().await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let files = cluster.client("alice", fixed(4 << 20));
        let http = cluster::http(&cluster.certificates(), "alice");
        let patience = Duration::from_secs(1);
        let chunks = Chunks::new(http, files.chunks().purse().clone(), cluster.addresses(), patience);
        let node = chunks.nodes()[0];
        chunks.put(node, "alice/y", vec![1; 1 << 20].into(), false).await.unwrap();
        slowly.await.unwrap();
        cluster.stop().await;
    })
    .await
    .unwrap();
}
