//! Files over real servers with certificates: put, get, ls, rm, quota to the byte.

use crate::cluster::{self, Cluster, Plan, fixed, quiet};
use std::time::Duration;
use ullage_store::client::{Chunks, FileError, Files, STRIPE_BYTES};

const TIME_MAX: Duration = Duration::from_secs(120);

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 7) as u8 ^ i as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_round_the_stores_and_comes_back() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { epoch_ms: 500, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(16 << 20));
        let here = tempfile::tempdir().unwrap();
        let data = contents(9_000_000);
        std::fs::write(here.path().join("in"), &data).unwrap();
        let put = files.put(&here.path().join("in"), "docs/a b.txt", STRIPE_BYTES, quiet()).await.unwrap();
        assert_eq!((put.size_bytes, put.stripes), (9_000_000, 3));
        assert_eq!(cluster.used("alice"), put.allocated_bytes);
        assert_eq!(cluster.on_disk(), put.allocated_bytes);
        let names: Vec<String> = files.list("docs/").await.unwrap().into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["docs/a b.txt"]);
        files.get("docs/a b.txt", &here.path().join("out"), quiet()).await.unwrap();
        assert!(std::fs::read(here.path().join("out")).unwrap() == data);
        // Replaced by a smaller one in small stripes: the old stripes go.
        std::fs::write(here.path().join("in"), &data[..100_000]).unwrap();
        let put = files.put(&here.path().join("in"), "docs/a b.txt", 65_536, quiet()).await.unwrap();
        assert_eq!(put.stripes, 2);
        assert_eq!(cluster.used("alice"), put.allocated_bytes);
        files.get("docs/a b.txt", &here.path().join("out"), quiet()).await.unwrap();
        assert!(std::fs::read(here.path().join("out")).unwrap() == data[..100_000]);
        files.remove("docs/a b.txt").await.unwrap();
        assert!(files.list("").await.unwrap().is_empty());
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (0, 0));
        drop(files);
        let account = cluster.reconciled("alice").await;
        assert_eq!(account.settled_bytes, 0);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// However it was put, a file was on all stores.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_on_as_many_stores_as_it_was_put_on() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 3, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let data = contents(17 << 20);
        std::fs::write(here.path().join("in"), &data).unwrap();
        for width in [1, 2, 3] {
            let files = cluster.client("alice", fixed(20 << 20)).with_width(Some(width));
            let put = files.put(&here.path().join("in"), "a", STRIPE_BYTES, quiet()).await.unwrap();
            assert_eq!(put.stripes, 5);
            let on = cluster.meters.iter().filter(|meter| meter.used("alice") > 1 << 20).count();
            assert_eq!(on, width);
            // Whoever reads it need not know.
            cluster.client("alice", fixed(1 << 20)).get("a", &here.path().join("out"), quiet()).await.unwrap();
            assert!(std::fs::read(here.path().join("out")).unwrap() == data);
            files.finish().await;
        }
        for width in [0, 4] {
            let files = cluster.client("alice", fixed(1 << 20)).with_width(Some(width));
            let error = files.put(&here.path().join("in"), "b", STRIPE_BYTES, quiet()).await.unwrap_err();
            assert!(matches!(&error, FileError::Usage(text) if text.contains("1 to 3")), "{error}");
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Every answer was remembered for K epochs: at thousands of small writes a second, gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn stores_remember_the_answers_of_few_requests() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 2, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(1 << 20));
        let chunks = files.chunks();
        for number in 0..1000 {
            let name = format!("alice/d/{number}");
            let node = chunks.nodes()[number % 2];
            chunks.put(node, &name, vec![1; 100].into(), false).await.unwrap();
            if number % 3 == 0 {
                chunks.delete(node, &name).await.unwrap();
            }
        }
        for meter in &cluster.meters {
            assert!(meter.remembered() < 150, "{} of 1,333 answers", meter.remembered());
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_kept_to_the_byte_and_freed_space_is_used_again() {
    tokio::time::timeout(TIME_MAX, async {
        // Ten chunks of 4 KiB and their headers fit exactly.
        let mut cluster = Cluster::start(Plan { epoch_ms: 400, ..Plan::default() }).await;
        cluster.user("alice", 10 * 8192).await;
        let files = cluster.client("alice", fixed(8192));
        let chunks = files.chunks();
        let nodes = chunks.nodes();
        let data = bytes::Bytes::from(contents(4096));
        for i in 0..10 {
            chunks.put(nodes[i % 2], &format!("alice/d/{i}"), data.clone(), false).await.unwrap();
        }
        let over = chunks.put(nodes[0], "alice/d/10", data.clone(), false).await.unwrap_err();
        assert!(over.is_over_quota(), "{over}");
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (81_920, 81_920));
        // A full quota does not hinder what allocates nothing.
        chunks.put(nodes[0], "alice/d/0", data.clone(), true).await.unwrap();
        chunks.write_at(nodes[0], "alice/d/0", 100, data.slice(..1000)).await.unwrap();
        assert!(chunks.write_at(nodes[0], "alice/d/0", 4096, data.clone()).await.unwrap_err().is_over_quota());
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (81_920, 81_920));
        // The refund of one pays for another, at the other store, without the bank.
        chunks.delete(nodes[0], "alice/d/0").await.unwrap();
        chunks.put(nodes[1], "alice/d/10", data.clone(), false).await.unwrap();
        assert!(chunks.put(nodes[1], "alice/d/11", data, false).await.unwrap_err().is_over_quota());
        let account = cluster.reconciled("alice").await;
        assert_eq!((account.settled_bytes, account.authorized_bytes), (81_920, 81_920));
        assert_eq!(cluster.used("alice"), 81_920);
        let history = cluster.admin.history("alice").await.unwrap();
        assert!(history.entries.iter().map(|e| e.granted_bytes).sum::<u64>() >= 81_920);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bank_and_stores_restart_and_nothing_is_lost() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { shards: 2, epoch_ms: 400, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        cluster.user("bob", 1 << 20).await;
        let (alice, bob) = (cluster.client("alice", fixed(65_536)), cluster.client("bob", fixed(65_536)));
        let data = bytes::Bytes::from(contents(4096));
        for round in 0..3 {
            for (files, user) in [(&alice, "alice"), (&bob, "bob")] {
                let node = files.chunks().nodes()[round % 2];
                files.chunks().put(node, &format!("{user}/d/{round}"), data.clone(), false).await.unwrap();
            }
            cluster.restart_bank().await;
            for node in 0..2 {
                cluster.stores[node].stop().await;
                let address = cluster.stores[node].address.clone();
                let (running, meter) = cluster.start_store(node as u32 + 1, &address).await;
                cluster.stores[node] = running;
                cluster.meters[node] = meter;
            }
            cluster.wait_open().await;
        }
        for user in ["alice", "bob"] {
            assert_eq!(cluster.reconciled(user).await.settled_bytes, 3 * 8192);
            assert_eq!(cluster.used(user), 3 * 8192);
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_removes_what_belongs_to_no_file_and_nothing_else() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(16 << 20));
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("in"), contents(100_000)).unwrap();
        files.put(&here.path().join("in"), "kept", 65_536, quiet()).await.unwrap();
        let before = cluster.used("alice");
        // As a client leaves them that dies between its stripes and its manifest: one long ago, one a moment ago.
        let node = files.chunks().nodes()[0];
        let stripe = |begun_ms: u64| format!("alice/d/{begun_ms:012x}{:016x}.000000", 5);
        let now = ullage_net::clock::now_ms();
        for name in [stripe(1), stripe(now), "alice/d/of-another-program".to_owned()] {
            files.chunks().put(node, &name, contents(5000).into(), false).await.unwrap();
        }
        let swept = files.sweep(Duration::from_secs(3600)).await.unwrap();
        assert_eq!((swept.removed, swept.young), (1, 1), "{swept:?}");
        assert!(swept.freed_bytes >= 5000 && cluster.used("alice") > before);
        assert!(files.chunks().stat(node, &stripe(1)).await.is_err());
        files.chunks().stat(node, &stripe(now)).await.unwrap();
        files.get("kept", &here.path().join("out"), quiet()).await.unwrap();
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: with a configuration from before a store was added, the parts of files whose names were there were taken for nobody's, and
/// removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_does_not_know_all_stores_removes_nothing() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { shards: 2, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let at = |name: &str| here.path().join(name);
        std::fs::write(at("in"), contents(200_000)).unwrap();
        let files = cluster.client("alice", fixed(16 << 20));
        let names: Vec<String> = (0..8).map(|number| format!("file-{number}")).collect();
        for name in &names {
            files.put(&at("in"), name, 65_536, quiet()).await.unwrap();
        }
        let before = cluster.used("alice");
        for known in 0..2 {
            let chunks = Chunks::new(
                cluster::http(&cluster.certificates(), "alice"),
                files.chunks().purse().clone(),
                vec![cluster.addresses().swap_remove(known)],
                Duration::from_secs(20),
            );
            let refused = Files::new(chunks).sweep(Duration::ZERO).await.unwrap_err().to_string();
            assert!(refused.contains(&format!("store {} counts", 2 - known)), "{refused}");
        }
        assert_eq!(files.sweep(Duration::ZERO).await.unwrap().removed, 0);
        assert_eq!(cluster.used("alice"), before);
        for name in &names {
            files.get(name, &at("out"), quiet()).await.unwrap();
            assert!(std::fs::read(at("out")).unwrap() == contents(200_000), "{name}");
        }
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Where many small files were removed no request could carry enough of their refunds to pay for one large stripe: "quota exceeded" for K epochs.
#[tokio::test(flavor = "multi_thread")]
async fn what_many_small_files_leave_pays_for_a_large_one() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 200 * 8192).await;
        let files = cluster.client("alice", fixed(8192));
        let (chunks, nodes) = (files.chunks(), files.chunks().nodes());
        for number in 0..200 {
            chunks.put(nodes[number % 2], &format!("alice/d/{number}"), vec![1; 100].into(), false).await.unwrap();
        }
        assert!(chunks.put(nodes[0], "alice/d/more", vec![1; 100].into(), false).await.unwrap_err().is_over_quota());
        for number in 0..200 {
            chunks.delete(nodes[number % 2], &format!("alice/d/{number}")).await.unwrap();
        }
        let here = tempfile::tempdir().unwrap();
        let data = contents(1_400_000);
        std::fs::write(here.path().join("in"), &data).unwrap();
        files.put(&here.path().join("in"), "large", STRIPE_BYTES, quiet()).await.unwrap();
        files.get("large", &here.path().join("out"), quiet()).await.unwrap();
        assert!(std::fs::read(here.path().join("out")).unwrap() == data);
        // What does not fit leaves nothing behind.
        assert!(files.put(&here.path().join("in"), "second", STRIPE_BYTES, quiet()).await.is_err());
        assert_eq!(cluster.used("alice"), cluster.on_disk());
        assert!(cluster.used("alice") < 1_500_000);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// What a short-lived client took and did not use was of no use to anybody until it was reconciled.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_leaves_unused_another_can_have_at_once() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 20).await;
        let (first, second) = (cluster.client("alice", fixed(1 << 20)), cluster.client("alice", fixed(1)));
        let node = first.chunks().nodes()[0];
        first.chunks().put(node, "alice/d/1", contents(4000).into(), false).await.unwrap();
        // Limiting leaves a part; most of it is in the first one's hands.
        let big = || contents(900_000).into();
        let refused = second.chunks().put(node, "alice/d/2", big(), false).await.unwrap_err();
        assert!(refused.is_over_quota(), "{refused}");
        first.finish().await;
        assert_eq!(first.chunks().purse().on_hand(), 0);
        second.chunks().put(node, "alice/d/2", big(), false).await.unwrap();
        drop((first, second));
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// All of a file was sent before its name was found too long; and one of a million stripes replaced what was there, and could not be read.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_read_or_named_is_refused_before_anything_is_sent() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        // So little that nothing could be sent for long.
        cluster.user("alice", 64 << 10).await;
        let files = cluster.client("alice", fixed(8192));
        let here = tempfile::tempdir().unwrap();
        let (huge, small) = (here.path().join("huge"), here.path().join("small"));
        std::fs::File::create(&huge).unwrap().set_len(1_000_000 << 12).unwrap();
        std::fs::write(&small, contents(5000)).unwrap();
        let long = "a".repeat(173);
        for (path, name, says) in
            [(&huge, "a", "--stripe 8KiB"), (&small, "", "is empty"), (&small, long.as_str(), "takes 181 bytes")]
        {
            let refused = files.put(path, name, 4096, quiet()).await.unwrap_err();
            assert!(matches!(&refused, FileError::Usage(why) if why.contains(says)), "{refused}");
        }
        assert!(cluster.used("alice") == 0 && files.chunks().purse().bank_requests() == 0);
        files.put(&small, &long[1..], 4096, quiet()).await.unwrap();
        files.get(&long[1..], &small, quiet()).await.unwrap();
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// The voucher request went alone, and then each of the first stripes asked for the same capability: five requests for five stripes.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_clients_put_asks_a_bank_once_before_it_writes() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("file");
        std::fs::write(&path, contents(5 * 4096)).unwrap();
        for number in 0..10 {
            let files = cluster.client("alice", fixed(1 << 20));
            files.put(&path, &format!("f{number}"), 4096, quiet()).await.unwrap();
            assert_eq!(files.chunks().purse().bank_requests(), 1);
            let reader = cluster.client("alice", fixed(1 << 20));
            let purse = reader.chunks().purse();
            let all = tokio::join!(purse.capability("alice/"), purse.capability("alice/"), purse.capability("alice/"));
            assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok(), "{all:?}");
            assert_eq!(purse.bank_requests(), 1);
        }
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A write that came too soon was repeated, and a read failed.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_more_than_a_store_allows_waits() {
    tokio::time::timeout(TIME_MAX, async {
        let store = |settings: &mut ullage_store::server::StoreSettings| settings.limits.requests_per_second = 20;
        let mut cluster = Cluster::start(Plan { stores: 1, store, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let (path, back) = (here.path().join("file"), here.path().join("back"));
        std::fs::write(&path, contents(50 * 4096)).unwrap();
        let files = cluster.client("alice", fixed(1 << 20));
        files.put(&path, "f", 4096, quiet()).await.unwrap();
        files.get("f", &back, quiet()).await.unwrap();
        assert_eq!(std::fs::read(&back).unwrap(), std::fs::read(&path).unwrap());
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: each stripe at a store that was away was waited for as long as any: hours for a file of some gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_waited_for_once_when_a_file_is_removed() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("in");
        std::fs::write(&path, contents(100 * 4096)).unwrap();
        let files = cluster.client("alice", fixed(16 << 20));
        for number in 0..10 {
            files.put(&path, &format!("f{number}"), 4096, quiet()).await.unwrap();
        }
        let (here_still, away) = (files.chunks().nodes()[0], files.chunks().nodes()[1]);
        // One whose name is at the store that stays.
        let manifest = files.chunks().list(here_still, "alice/m/").await.unwrap().swap_remove(0).name;
        let address = cluster.stores[1].address.clone();
        cluster.stores[1].stop().await;
        let patience = Duration::from_secs(1);
        let chunks = Chunks::new(
            cluster::http(&cluster.certificates(), "alice"),
            files.chunks().purse().clone(),
            cluster.addresses(),
            patience,
        );
        let begun = std::time::Instant::now();
        let removed = Files::new(chunks).remove(manifest.strip_prefix("alice/m/").unwrap()).await.unwrap();
        assert_eq!(removed.chunks, 51);
        assert!(begun.elapsed() < 5 * patience, "{:?}", begun.elapsed());
        (cluster.stores[1], cluster.meters[1]) = cluster.start_store(away.0, &address).await;
        cluster.wait_open().await;
        assert_eq!(files.sweep(Duration::ZERO).await.unwrap().removed, 50);
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: "the store's file system is full" was said of one of many.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_which_store_it_is_of() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(1 << 20));
        let (chunks, nodes) = (files.chunks(), files.chunks().nodes());
        for node in nodes {
            let read = chunks.read(node, "alice/d/none", 0, 1).await.map(drop);
            let deleted = chunks.delete(node, "alice/d/none").await;
            for error in [read, deleted].map(Result::unwrap_err) {
                assert!(error.is_not_found() && error.to_string().ends_with(&format!("(store {node})")), "{error}");
            }
        }
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: with the numbers of two stores mixed up in a configuration files went where nobody else looked for them, and nobody said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_under_anothers_number_takes_and_gives_nothing() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("in");
        std::fs::write(&path, contents(50_000)).unwrap();
        let files = cluster.client("alice", fixed(1 << 20));
        let mut mixed = cluster.addresses();
        let (first, second) = mixed.split_at_mut(1);
        std::mem::swap(&mut first[0].address, &mut second[0].address);
        let http = cluster::http(&cluster.certificates(), "alice");
        let chunks = Chunks::new(http, files.chunks().purse().clone(), mixed, Duration::from_secs(20));
        let stranger = Files::new(chunks);
        let put = stranger.put(&path, "a", 4096, quiet()).await.unwrap_err().to_string();
        let list = stranger.list("").await.unwrap_err().to_string();
        for error in [put, list] {
            assert!(error.contains("wrong_store") && error.contains("[[stores]]"), "{error}");
        }
        assert_eq!(cluster.used("alice"), 0);
        files.put(&path, "a", 4096, quiet()).await.unwrap();
        drop((files, stranger));
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: a file that was gone by then, or whose store could not read it, was listed as damaged.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_damaged_is_listed_so() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(1 << 20));
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("in"), b"data").unwrap();
        for name in ["a", "b"] {
            files.put(&here.path().join("in"), name, STRIPE_BYTES, quiet()).await.unwrap();
        }
        let manifest = |name: &str| {
            let shard = format!("{:02x}", xxhash_rust::xxh3::xxh3_64(format!("alice/m/{name}").as_bytes()) as u8);
            cluster.directory.path().join("store1/chunks").join(shard).join(format!("alice%m%{name}.chunk"))
        };
        let file = std::fs::File::options().write(true).open(manifest("a")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"X", 4096).unwrap();
        let listed = files.list("").await.unwrap();
        let whole: Vec<_> = listed.iter().map(|file| (file.name.as_str(), file.manifest.is_some())).collect();
        assert_eq!(whole, [("a", false), ("b", true)]);
        // No file is read from a directory.
        std::fs::remove_file(manifest("b")).unwrap();
        std::fs::create_dir(manifest("b")).unwrap();
        assert!(files.list("").await.is_err());
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Regression: a file of /proc, which says that it has no bytes, was stored without any.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_does_not_say_its_length_is_refused() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let files = cluster.client("alice", fixed(1 << 20));
        let put = files.put(std::path::Path::new("/proc/cpuinfo"), "a", STRIPE_BYTES, quiet()).await;
        assert!(matches!(&put, Err(FileError::Usage(text)) if text.contains("has more")), "{put:?}");
        assert!(files.list("").await.unwrap().is_empty());
        cluster.stop().await;
    })
    .await
    .unwrap();
}
