//! A store whose disk fails: nobody gets an answer, or a voucher, that a restart would not stand by.

use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, Plan, fixed};
use crate::disk::{Frozen, Mounted, can_mount};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ullage_voucher::message::StoreToClient;

const TIME_MAX: Duration = Duration::from_secs(100);

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

/// Others were told that a chunk was gone before that was durable, and removed what belonged to it: after a power cut it was there again.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_hears_of_a_removal_that_is_not_durable() {
    if !can_mount(&["mkfs.ext4"]) {
        return;
    }
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        let ground = tempfile::tempdir().unwrap();
        let disk = Mounted::image(&ground.path().join("disk"), &ground.path().join("image"), "ext4", 256);
        cluster.stores[0].stop().await;
        let journal = cluster.directory.path().join("store1/journal");
        let moved = disk.path().join("journal");
        fs::create_dir(&moved).unwrap();
        for file in fs::read_dir(&journal).unwrap().map(|file| file.unwrap()) {
            fs::copy(file.path(), moved.join(file.file_name())).unwrap();
        }
        fs::remove_dir_all(&journal).unwrap();
        symlink(&moved, &journal).unwrap();
        restart(&mut cluster).await;
        let alice = Arc::new(Raw::new(&cluster).await);
        alice.put(1, "gone").await.unwrap();
        alice.put(2, "kept").await.unwrap();
        let frozen = Frozen::new(disk.path());
        let removes = tokio::spawn({
            let alice = Arc::clone(&alice);
            async move { alice.delete(3, "gone").await }
        });
        while cluster.used("alice") > 8192 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let files = cluster.client("alice", fixed(65_536));
        let (chunks, node) = (files.chunks().clone(), files.chunks().nodes()[0]);
        let ask = |look: u8| {
            let chunks = chunks.clone();
            tokio::spawn(async move {
                match look {
                    0 => chunks.list(node, "alice/").await.map(|listed| listed.len()),
                    1 => chunks.stat(node, "alice/kept").await.map(|_| 1),
                    _ => chunks.read(node, "alice/gone", 0, 1).await.map(|bytes| bytes.len()),
                }
            })
        };
        let asked = [0, 1, 2].map(ask);
        tokio::time::sleep(Duration::from_millis(500)).await;
        for (look, answered) in asked.iter().enumerate() {
            assert!(!answered.is_finished(), "{look} is answered");
        }
        drop(frozen);
        removes.await.unwrap().unwrap();
        let [listed, stat, read] = asked;
        assert_eq!((listed.await.unwrap().unwrap(), stat.await.unwrap().unwrap()), (1, 1));
        assert!(read.await.unwrap().is_err_and(|error| error.is_not_found()));
        cluster.stop().await;
    })
    .await
    .unwrap();
}
