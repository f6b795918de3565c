//! A bank that revokes, and clients as commands are: they end, and those that go on answer.

use crate::cluster::{Cluster, Plan, fixed, quiet};
use std::time::{Duration, Instant};
use ullage_store::client::STRIPE_BYTES;
use ullage_voucher::Micros;
use ullage_voucher::bank::{Policy, Waits};

const TIME_MAX: Duration = Duration::from_secs(100);
const TIMEOUT: Micros = Micros::from_secs(5);

async fn site(quota: u64) -> Cluster {
    let bank: fn(&mut ullage_bank::BankSettings) = |settings| {
        settings.policy = Policy::Revocation { timeout: TIMEOUT, waits: Waits::Answers };
    };
    let cluster = Cluster::start(Plan { stores: 1, bank, ..Plan::default() }).await;
    cluster.user("alice", quota).await;
    cluster
}

/// Each of its eight requests waited five seconds for programs that had ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_refused_waits_for_others_once_at_most() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site(20 << 20).await;
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("in");
        std::fs::write(&file, vec![1; 8 << 20]).unwrap();
        for name in ["a", "b"] {
            let files = cluster.client("alice", fixed(8 << 20));
            files.put(&file, name, STRIPE_BYTES, quiet()).await.unwrap();
            files.finish().await;
        }
        let began = Instant::now();
        let files = cluster.client("alice", fixed(8 << 20));
        let error = files.put(&file, "c", STRIPE_BYTES, quiet()).await.unwrap_err().to_string();
        assert!(error.contains("quota exceeded"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A client that nobody had configured to listen did not hear that others were short.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_vouchers_gives_them_back_when_asked_whatever_it_was_told_to_do() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site(10 << 20).await;
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("in");
        std::fs::write(&file, vec![1; 100_000]).unwrap();
        let holds = cluster.client("alice", fixed(9 << 20));
        holds.put(&file, "a", STRIPE_BYTES, quiet()).await.unwrap();
        assert!(holds.chunks().purse().on_hand() > 8 << 20);
        std::fs::write(&file, vec![1; 6 << 20]).unwrap();
        let began = Instant::now();
        let files = cluster.client("alice", fixed(6 << 20));
        files.put(&file, "b", STRIPE_BYTES, quiet()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Of two that were short at once, the first waited for the second to answer, and the second for the first to be answered: five seconds.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_are_short_at_once_do_not_wait_for_each_other() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site(10 << 20).await;
        let here = tempfile::tempdir().unwrap();
        let (small, large) = (here.path().join("small"), here.path().join("large"));
        std::fs::write(&small, vec![1; 100_000]).unwrap();
        std::fs::write(&large, vec![1; 8 << 20]).unwrap();
        let clients = [cluster.client("alice", fixed(5 << 20)), cluster.client("alice", fixed(4 << 20))];
        for (client, name) in clients.iter().zip(["a", "b"]) {
            client.put(&small, name, STRIPE_BYTES, quiet()).await.unwrap();
        }
        let began = Instant::now();
        let put = |client: usize| Box::pin(clients[client].put(&large, "c", 8 << 20, quiet()));
        let (one, two) = tokio::join!(put(0), put(1));
        assert!(one.is_err() || two.is_err(), "there is room for one at most");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        cluster.stop().await;
    })
    .await
    .unwrap();
}
