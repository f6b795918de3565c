//! Stores that are set back, lost, or shared: the accounts come right again by themselves.

use crate::cluster::{self, Cluster, Plan, fixed};
use bytes::Bytes;
use std::path::Path;
use std::time::{Duration, Instant};
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::identity;
use ullage_net::clock;
use ullage_store::client::Chunks;
use ullage_store::headers::{CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, VOUCHER_HEADER, checksum};
use ullage_store::wire::WriteAnswer;
use ullage_voucher::message::{BankToClient, ClientToBank, StoreToClient};
use ullage_voucher::{ChargeBy, Op, encode_header};

const TIME_MAX: Duration = Duration::from_secs(100);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Puts `count` chunks of 8 KiB each at the first store.
async fn fill(cluster: &Cluster, user: &str, names: std::ops::Range<u32>) {
    put(cluster.client(user, fixed(65_536)).chunks(), user, names).await;
}

async fn put(chunks: &Chunks, user: &str, names: std::ops::Range<u32>) {
    let node = chunks.nodes()[0];
    for name in names {
        chunks.put(node, &format!("{user}/d/{name}"), Bytes::from(vec![1; 4096]), false).await.unwrap();
    }
}

/// Waits until the bank has settled what alice uses at the first store: so many bytes, which is what that store says too.
async fn expect_bytes(cluster: &Cluster, bytes: u64) {
    let until = Instant::now() + Duration::from_secs(30);
    while cluster.reconciled("alice").await.settled_bytes.cast_unsigned() != bytes {
        assert!(Instant::now() < until, "{:?}", cluster.account("alice").await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(cluster.used("alice"), bytes);
    assert_eq!(cluster.meters[0].used("alice"), bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_set_back_to_an_old_copy_is_measured_anew() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, epoch_ms: 400, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        fill(&cluster, "alice", 0..5).await;
        let directory = cluster.directory.path().join("store1");
        let old = cluster.directory.path().join("old");
        cluster.stores[0].stop().await;
        copy(&directory, &old);
        let address = cluster.stores[0].address.clone();
        (cluster.stores[0], cluster.meters[0]) = cluster.start_store(1, &address).await;
        cluster.wait_open().await;
        fill(&cluster, "alice", 5..12).await;
        cluster.stores[0].stop().await;
        std::fs::remove_dir_all(&directory).unwrap();
        copy(&old, &directory);
        (cluster.stores[0], cluster.meters[0]) = cluster.start_store(1, &address).await;
        cluster.wait_open().await;
        // It holds the five chunks of the copy, in a new life, and goes on from there.
        fill(&cluster, "alice", 20..23).await;
        expect_bytes(&cluster, 8 * 8192).await;
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// With a start with checks again it said that its accounts were damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_used_without_checks_is_measured_anew() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, epoch_ms: 400, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        fill(&cluster, "alice", 0..5).await;
        let address = cluster.stores[0].address.clone();
        for number in [2u32, 3] {
            cluster.stores[0].stop().await;
            cluster.plan.checked = false;
            (cluster.stores[0], cluster.meters[0]) = cluster.start_store(1, &address).await;
            let chunks = cluster.client("alice", fixed(65_536)).chunks().clone().without_paying();
            put(&chunks, "alice", 10 * number..10 * number + 3).await;
            chunks.delete(chunks.nodes()[0], &format!("alice/d/{number}")).await.unwrap();
            cluster.stores[0].stop().await;
            cluster.plan.checked = true;
            (cluster.stores[0], cluster.meters[0]) = cluster.start_store(1, &address).await;
            cluster.wait_open().await;
        }
        fill(&cluster, "alice", 40..42).await;
        expect_bytes(&cluster, 11 * 8192).await;
        assert_eq!(cluster.on_disk(), 11 * 8192);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Only what talked to the bank looked whether a snapshot was due: without checks the journal grew for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_store_without_checks_is_cut_too() {
    tokio::time::timeout(TIME_MAX, async {
        let store = |settings: &mut ullage_store::server::StoreSettings| settings.snapshot_after_bytes = 64 << 10;
        let mut cluster = Cluster::start(Plan { stores: 1, checked: false, store, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        let chunks = cluster.client("alice", fixed(65_536)).chunks().clone().without_paying();
        put(&chunks, "alice", 0..40).await;
        let journal = cluster.directory.path().join("store1/journal");
        let until = Instant::now() + Duration::from_secs(20);
        let segments = || {
            let files = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap());
            let segments = files.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
            segments.map(|entry| entry.metadata().map_or(0, |found| found.len())).sum::<u64>()
        };
        while segments() > 64 << 10 {
            assert!(Instant::now() < until, "the journal is never cut");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_given_up_no_longer_counts() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 2, epoch_ms: 400, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        fill(&cluster, "alice", 0..5).await;
        assert_eq!(cluster.reconciled("alice").await.settled_bytes, 5 * 8192);
        let store = cluster.admin.stores(identity::user("alice")).await.unwrap().remove(0);
        let ago = clock::now_ms().checked_sub(store.heard_at_ms.unwrap());
        assert!(store.leased && ago.is_some_and(|ago| ago < 20_000), "{store:?}");
        cluster.stores[0].stop().await;
        let until = Instant::now() + Duration::from_secs(40);
        while cluster.account("alice").await.settled_bytes != 0 {
            // Takes effect once the lease is over.
            if let Err(error) = cluster.admin.exclude(1).await {
                assert_eq!(error.code(), Some("not_found"), "{error}");
            }
            assert!(Instant::now() < until, "{:?}", cluster.account("alice").await);
            tokio::time::sleep(Duration::from_millis(200)).await;
            let store = cluster.admin.stores(identity::user("alice")).await.unwrap().into_iter().next();
            assert!(store.is_none_or(|store| !store.given_up || !store.leased));
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_pays_and_nobody_else_is_given_what_another_frees() {
    tokio::time::timeout(TIME_MAX, async {
        let plan = Plan { stores: 1, epoch_ms: 400, store: |s| s.charge_by = ChargeBy::Writer, ..Plan::default() };
        let mut cluster = Cluster::start(plan).await;
        for user in ["alice", "bob"] {
            cluster.user(user, 1 << 20).await;
        }
        let send = async |user: &str, op: u64, method: hyper::Method, path: &str, data: Vec<u8>, want: u64| {
            let client = identity::client(user, 3);
            let bank = cluster.bank_client(user);
            let mut voucher = String::new();
            if want > 0 {
                let message = ClientToBank::Request { user: identity::user(user), op: Op(op), want, audience: None };
                let batch = ullage_bank::wire::ClientBatch { client, messages: vec![message], ..Default::default() };
                let answers = bank.messages(&batch).await.unwrap();
                let BankToClient::Granted { pieces, .. } = &answers.messages[0] else { panic!("{answers:?}") };
                voucher = encode_header(pieces);
            }
            let capability = Capability {
                user: user.into(),
                owner: "alice".into(),
                prefix: "alice/".into(),
                rights: Rights::ALL,
                expires: clock::now_secs() + 100,
            };
            let headers = [
                (&CAPABILITY_HEADER, capability.sign(&cluster.capability_key)),
                (&CLIENT_HEADER, format!("{:016x}", client.0)),
                (&OP_HEADER, op.to_string()),
                (&CHECKSUM_HEADER, checksum(&data)),
                (&VOUCHER_HEADER, voucher),
            ];
            let http = cluster::http(&cluster.certificates(), user);
            let reply = http.call(&cluster.stores[0].address, method, path, &headers, data.into()).await.unwrap();
            serde_json::from_slice::<WriteAnswer>(&reply.body).unwrap().outcomes
        };
        send("alice", 1, hyper::Method::PUT, "/v1/chunks/alice/s?mode=666", vec![1; 4096], 16_384).await;
        send("bob", 1, hyper::Method::PATCH, "/v1/chunks/alice/s?offset=4096", vec![2; 8192], 16_384).await;
        assert_eq!((cluster.used("alice"), cluster.used("bob")), (8192, 8192));
        let refunds = send("bob", 2, hyper::Method::DELETE, "/v1/chunks/alice/s", Vec::new(), 0).await;
        let given: Vec<_> = refunds
            .iter()
            .filter_map(|outcome| match outcome {
                StoreToClient::Refunded { refund, .. } => refund.map(|piece| (piece.voucher.terms.user, piece.amount)),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((refunds.len(), given), (2, vec![(identity::user("bob"), 8192)]));
        for user in ["alice", "bob"] {
            assert_eq!(cluster.reconciled(user).await.settled_bytes, 0);
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}
