//! Several clients and one name: who reads sees one version wholly, and what is replaced is removed.

use crate::cluster::{Cluster, Plan, fixed, quiet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ullage_store::client::Files;

const TIME_MAX: Duration = Duration::from_secs(120);
const STRIPE: u64 = 4096;
const STRIPES: usize = 6;

/// A file of one byte's value.
fn write(path: &Path, value: u8) {
    std::fs::write(path, vec![value; STRIPE as usize * STRIPES]).unwrap();
}

/// All found the same version before theirs, and each removed only that one's stripes: the others' stayed charged.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_puts_of_one_name_one_file_is_left_and_nothing_else() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let here = Arc::new(tempfile::tempdir().unwrap());
        let clients: Vec<Files> = (0..4).map(|_| cluster.client("alice", fixed(1 << 20))).collect();
        for round in 0..5 {
            let mut puts = tokio::task::JoinSet::new();
            for (number, files) in clients.iter().cloned().enumerate() {
                let path = here.path().join(number.to_string());
                write(&path, number as u8);
                puts.spawn(async move { files.put(&path, "one", STRIPE, quiet()).await });
            }
            while let Some(put) = puts.join_next().await {
                put.unwrap().unwrap();
            }
            let mut stripes = 0;
            for node in clients[0].chunks().nodes() {
                stripes += clients[0].chunks().list(node, "alice/d/").await.unwrap().len();
            }
            assert_eq!(stripes, STRIPES, "round {round}");
        }
        // The same of one that removes while another puts.
        let path = here.path().join("0");
        for _ in 0..10 {
            let (put, _) = tokio::join!(clients[0].put(&path, "one", STRIPE, quiet()), clients[1].remove("one"));
            put.unwrap();
        }
        let _ = clients[1].remove("one").await;
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (0, 0));
        drop(clients);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A stripe was gone that the manifest had named a moment before: a new version had taken its place.
#[tokio::test(flavor = "multi_thread")]
async fn who_gets_a_file_while_it_is_replaced_gets_one_version_of_it() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let (writer, reader) = (cluster.client("alice", fixed(1 << 20)), cluster.client("alice", fixed(1)));
        let (from, to) = (here.path().join("from"), here.path().join("to"));
        write(&from, 0);
        writer.put(&from, "one", STRIPE, quiet()).await.unwrap();
        let puts = tokio::spawn(async move {
            for value in 1..60 {
                write(&from, value);
                writer.put(&from, "one", STRIPE, quiet()).await.unwrap();
            }
        });
        let mut seen = 0;
        while !puts.is_finished() {
            reader.get("one", &to, quiet()).await.unwrap();
            let whole = std::fs::read(&to).unwrap();
            assert!(whole.len() == STRIPE as usize * STRIPES && whole.iter().all(|byte| *byte == whole[0]));
            assert!(whole[0] >= seen, "{} after {seen}", whole[0]);
            seen = whole[0];
        }
        puts.await.unwrap();
        // What is missing of a file that nobody replaces is still said.
        let stripe = reader.chunks().list(reader.chunks().nodes()[0], "alice/d/").await.unwrap().remove(0);
        reader.chunks().delete(reader.chunks().nodes()[0], &stripe.name).await.unwrap();
        let missing = reader.get("one", &to, quiet()).await.unwrap_err().to_string();
        assert!(missing.contains("there is no chunk"), "{missing}");
        drop(reader);
        cluster.stop().await;
    })
    .await
    .unwrap();
}
