//! A store whose disk fails: nobody gets an answer, or a voucher, that a restart would not stand by.

#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;

use cluster::{Cluster, Plan};
use hyper::Method;
use std::fs;
use std::path::Path;
use std::time::Duration;
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::identity;
use ullage_bank::wire::ClientBatch;
use ullage_net::clock;
use ullage_store::headers::{CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, VOUCHER_HEADER, checksum};
use ullage_store::wire::WriteAnswer;
use ullage_voucher::message::{BankToClient, ClientToBank, StoreToClient};
use ullage_voucher::{Op, encode_header};

const TIME_MAX: Duration = Duration::from_secs(100);
/// More than come between two snapshots.
const PUTS_MAX: u64 = 8000;

/// Alice's client, at the wire of the one store.
struct Raw {
    http: std::sync::Arc<ullage_net::client::Client>,
    address: String,
    capability: String,
    /// One for each request that puts, by its number.
    vouchers: Vec<String>,
}

impl Raw {
    async fn new(cluster: &Cluster) -> Self {
        cluster.user("alice", 1 << 30).await;
        let rights = Rights::ALL;
        let (user, owner, prefix) = ("alice".into(), "alice".into(), "alice/".into());
        let capability = Capability { user, owner, prefix, rights, expires: clock::now_secs() + 600 };
        let message = ClientToBank::Request { user: identity::user("alice"), op: Op(1), want: 64 << 20 };
        let client = identity::client("alice", 1);
        let batch = ClientBatch { client, messages: vec![message], ..ClientBatch::default() };
        let answers = cluster.bank_client("alice").messages(&batch).await.unwrap();
        let BankToClient::Granted { pieces, .. } = &answers.messages[0] else { panic!("{answers:?}") };
        let mut rest = pieces[0];
        let vouchers = (0..PUTS_MAX).map(|_| encode_header(&[rest.split(8192).unwrap()])).collect();
        Self {
            http: cluster::http(&cluster.certificates(), "alice"),
            address: cluster.stores[0].address.clone(),
            capability: capability.sign(&cluster.capability_key),
            vouchers,
        }
    }

    async fn send(&self, op: u64, method: Method, path: &str, data: &[u8]) -> Result<Vec<StoreToClient>, u16> {
        let headers = [
            (&CAPABILITY_HEADER, self.capability.clone()),
            (&CLIENT_HEADER, format!("{:016x}", identity::client("alice", 1).0)),
            (&OP_HEADER, op.to_string()),
            (&CHECKSUM_HEADER, checksum(data)),
            (&VOUCHER_HEADER, self.vouchers.get(op as usize).cloned().unwrap_or_default()),
        ];
        let reply = self.http.send(&self.address, method, path, &headers, data.to_vec().into()).await.unwrap();
        let outcomes = |body| serde_json::from_slice::<WriteAnswer>(body).unwrap().outcomes;
        if reply.status.is_success() { Ok(outcomes(&reply.body)) } else { Err(reply.status.as_u16()) }
    }

    async fn put(&self, op: u64, name: &str) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::PUT, &format!("/v1/chunks/alice/{name}"), &[7; 4096]).await
    }

    async fn delete(&self, op: u64, name: &str) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::DELETE, &format!("/v1/chunks/alice/{name}"), &[]).await
    }

    async fn cancel(&self, op: u64) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::POST, "/v1/cancel", &[]).await
    }
}

async fn restart(cluster: &mut Cluster) {
    cluster.stores[0].stop().await;
    let address = cluster.stores[0].address.clone();
    (cluster.stores[0], cluster.meters[0]) = cluster.start_store(1, &address).await;
    cluster.wait_open().await;
}

/// The accounts remembered what they would answer before its record was durable: a write whose record failed was answered as
/// done, and the refund of a chunk that was still there left.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_whose_record_fails() {
    tokio::time::timeout(TIME_MAX, async {
        let plan = Plan { stores: 1, store: |settings| settings.snapshot_after_bytes = 1, ..Plan::default() };
        let mut cluster = Cluster::start(plan).await;
        let alice = Raw::new(&cluster).await;
        alice.put(1, "kept").await.unwrap();
        // The journal fails at the next snapshot: it makes each segment anew.
        let journal = cluster.directory.path().join("store1/journal");
        let segment = |number: u64| journal.join(format!("segment-{number:012}"));
        let last = newest(&journal);
        (last + 1..last + 40).for_each(|number| drop(fs::File::create_new(segment(number))));
        let mut done = 1;
        while alice.put(done + 1, &format!("new{done}")).await.is_ok() {
            done += 1;
        }
        let failed = done + 1;
        assert_eq!(alice.put(failed, "again").await.unwrap_err(), 503);
        assert_eq!(alice.cancel(failed).await.unwrap_err(), 503);
        assert_eq!(alice.delete(failed + 1, "kept").await.unwrap_err(), 503);
        restart(&mut cluster).await;
        // Its record may have come to the disk just before.
        let used = cluster.used("alice");
        assert!([done, failed].map(|puts| puts * 8192).contains(&used), "{done} answered, {used} used");
        alice.put(failed, &format!("new{done}")).await.unwrap();
        assert_eq!(cluster.used("alice"), failed * 8192);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// The newest segment of a journal.
fn newest(journal: &Path) -> u64 {
    let names = fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("segment-")?.parse().ok()).max().unwrap()
}

/// It was answered as done by a store that had stopped, whose last snapshot then forgot it.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_could_not_be_applied_is_answered_after_the_restart() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        let alice = Raw::new(&cluster).await;
        let shard = format!("{:02x}", xxhash_rust::xxh3::xxh3_64(b"alice/x") as u8);
        let file = cluster.directory.path().join("store1/chunks").join(shard).join("alice%x.chunk");
        // Nothing can be renamed to where a directory is.
        fs::create_dir(&file).unwrap();
        for _ in 0..2 {
            assert_eq!(alice.put(2, "x").await.unwrap_err(), 503);
        }
        assert_eq!(alice.cancel(2).await.unwrap_err(), 503);
        fs::remove_dir(&file).unwrap();
        restart(&mut cluster).await;
        let outcomes = alice.put(2, "x").await.unwrap();
        assert!(matches!(outcomes[..], [StoreToClient::Spent { used: 8192, .. }]), "{outcomes:?}");
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (8192, 8192));
        cluster.stop().await;
    })
    .await
    .unwrap();
}
