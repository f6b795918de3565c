//! Both ends of a transfer: what becomes of local files, and of a new version whose store falls silent.

use crate::cluster::{Cluster, Plan, fixed, http, on_disk, quiet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ullage_bank::client::BankClient;
use ullage_store::client::{Chunks, FileError, Files, Purse, PurseSettings, StoreAddress};
use ullage_voucher::{Node, Op};

const TIME_MAX: Duration = Duration::from_secs(120);
const STRIPE: u64 = 65_536;

/// Stands before a store, and loses every answer, or the first, after the store's disk holds more than it is told.
#[derive(Default)]
struct Line {
    store: String,
    disk: PathBuf,
    most: AtomicU64,
    cut: AtomicBool,
    once: bool,
    /// Nothing goes through after the loss until this is taken back.
    hold: AtomicBool,
    lost: AtomicBool,
}

impl Line {
    async fn before(store: String, disk: PathBuf, once: bool) -> (Arc<Self>, String) {
        let line = Arc::new(Self { store, disk, most: AtomicU64::new(u64::MAX), once, ..Self::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let own = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(own.clone().carry(client));
            }
        });
        (line, address)
    }

    async fn carry(self: Arc<Self>, client: TcpStream) {
        if self.cut.load(Relaxed) {
            return;
        }
        while self.lost.load(Relaxed) && self.hold.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let Ok(store) = TcpStream::connect(&self.store).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_store, mut to_store) = store.into_split();
        let questions = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_store).await });
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_store.read(&mut buffer).await {
            if on_disk(&self.disk) > self.most.load(Relaxed) {
                self.lost.store(true, Relaxed);
                if self.once {
                    self.most.store(u64::MAX, Relaxed);
                    break;
                }
                self.cut.store(true, Relaxed);
            }
            if self.cut.load(Relaxed) || to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
        questions.abort();
    }
}

impl Line {
    /// From when all stripes are there, an answer that follows a change is lost.
    fn when_all_is_there(self: &Arc<Self>) -> ullage_store::client::Progress {
        let line = self.clone();
        Arc::new(move |done, all| {
            if done == all {
                line.most.store(on_disk(&line.disk), Relaxed);
            }
        })
    }
}

fn alice(patience: Duration) -> PurseSettings {
    PurseSettings {
        user: "alice".into(),
        policy: fixed(1 << 20),
        patience,
        listen: false,
        addressed: std::collections::BTreeSet::new(),
    }
}

/// Alice's files at the one store, which she reaches at this address.
fn through(cluster: &Cluster, address: String, patience: Duration) -> Files {
    let purse = Purse::new(cluster.bank_client("alice"), alice(patience));
    let stores = vec![StoreAddress { node: ullage_voucher::Node(1), address, addressed: false }];
    Files::new(Chunks::new(http(&cluster.certificates(), "alice"), purse, stores, patience))
}

async fn site() -> Cluster {
    let cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
    cluster.user("alice", 1 << 30).await;
    cluster
}

/// A store that remembers no requests, behind a line that loses an answer once; and Alice's files there.
async fn forgetful() -> (Cluster, Arc<Line>, Files) {
    let cluster = Cluster::start(Plan { stores: 1, checked: false, ..Plan::default() }).await;
    cluster.user("alice", 1 << 30).await;
    let disk = cluster.directory.path().join("store1");
    let (line, address) = Line::before(cluster.stores[0].address.clone(), disk, true).await;
    let files = through(&cluster, address, Duration::from_secs(20));
    (cluster, line, files)
}

fn written(here: &Path, name: &str, length: usize) -> PathBuf {
    let path = here.join(name);
    fs::write(&path, (0..length).map(|i| (i / 7) as u8 ^ i as u8).collect::<Vec<u8>>()).unwrap();
    path
}

/// The client took a new version whose answer was lost for one that was never placed, and removed what it names; the old
/// version was gone too.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_answer_was_lost_stays_whole() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site().await;
        let disk = cluster.directory.path().join("store1");
        let (line, address) = Line::before(cluster.stores[0].address.clone(), disk, false).await;
        let files = through(&cluster, address, Duration::from_secs(1));
        let here = tempfile::tempdir().unwrap();
        let input = written(here.path(), "in", 100_000);
        let unknown = files.put(&input, "new", STRIPE, line.when_all_is_there()).await.unwrap_err();
        assert!(matches!(unknown, FileError::Unknown { .. }), "{unknown}");
        line.most.store(u64::MAX, Relaxed);
        line.cut.store(false, Relaxed);
        files.get("new", &here.path().join("out"), quiet()).await.unwrap();
        assert!(fs::read(here.path().join("out")).unwrap() == fs::read(&input).unwrap());
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A store that remembers no requests takes a repeated one for another client's: the client took its own version for the one
/// before, and removed its stripes.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_answer_was_lost_once_is_not_taken_for_the_one_before() {
    tokio::time::timeout(TIME_MAX, async {
        let (mut cluster, line, files) = forgetful().await;
        let here = tempfile::tempdir().unwrap();
        let input = written(here.path(), "in", 200_000);
        files.put(&input, "f", STRIPE, line.when_all_is_there()).await.unwrap();
        assert_eq!(line.most.load(Relaxed), u64::MAX, "no answer was lost");
        files.get("f", &here.path().join("out"), quiet()).await.unwrap();
        assert!(fs::read(here.path().join("out")).unwrap() == fs::read(&input).unwrap());
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Such a client whose version was replaced by another's before it asked again placed it anew: the name led to stripes that were gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_replaced_before_its_answer_came_is_not_placed_again() {
    tokio::time::timeout(TIME_MAX, async {
        let (mut cluster, line, files) = forgetful().await;
        line.hold.store(true, Relaxed);
        let others = through(&cluster, cluster.stores[0].address.clone(), Duration::from_secs(20));
        let here = tempfile::tempdir().unwrap();
        let (input, other) = (written(here.path(), "in", 200_000), written(here.path(), "other", 100_000));
        let progress = line.when_all_is_there();
        let put = tokio::spawn(async move { files.put(&input, "f", STRIPE, progress).await });
        while !line.lost.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        others.put(&other, "f", STRIPE, quiet()).await.unwrap();
        line.hold.store(false, Relaxed);
        let unknown = put.await.unwrap().unwrap_err();
        assert!(matches!(unknown, FileError::Unknown { .. }), "{unknown}");
        others.get("f", &here.path().join("out"), quiet()).await.unwrap();
        assert!(fs::read(here.path().join("out")).unwrap() == fs::read(&other).unwrap());
        drop(others);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A manifest that its store finds damaged could be neither replaced nor removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_manifest_is_damaged_can_be_replaced_and_removed() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site().await;
        let files = cluster.client("alice", fixed(1 << 20));
        let here = tempfile::tempdir().unwrap();
        let input = written(here.path(), "in", 1000);
        let damage = || {
            let mut chunks: Vec<PathBuf> = Vec::new();
            for shard in fs::read_dir(cluster.directory.path().join("store1/chunks")).unwrap() {
                chunks.extend(fs::read_dir(shard.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
            }
            let manifest = |bytes: &[u8]| bytes.windows(12).position(|at| at == b"stripe_bytes");
            let mut damaged = 0;
            for path in chunks {
                let mut bytes = fs::read(&path).unwrap();
                if let Some(at) = manifest(&bytes) {
                    bytes[at] ^= 1;
                    fs::write(&path, bytes).unwrap();
                    damaged += 1;
                }
            }
            assert_eq!(damaged, 1);
        };
        files.put(&input, "f", STRIPE, quiet()).await.unwrap();
        damage();
        assert!(files.get("f", &here.path().join("out"), quiet()).await.is_err());
        files.put(&input, "f", STRIPE, quiet()).await.unwrap();
        files.get("f", &here.path().join("out"), quiet()).await.unwrap();
        damage();
        files.remove("f").await.unwrap();
        assert!(files.list("").await.unwrap().is_empty());
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_touches_nothing_but_its_file_and_keeps_mode_and_link() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site().await;
        let files = cluster.client("alice", fixed(1 << 20));
        let here = tempfile::tempdir().unwrap();
        let at = |name: &str| here.path().join(name);
        let input = written(here.path(), "in", 100_000);
        files.put(&input, "f", STRIPE, quiet()).await.unwrap();
        // What was once the name of the partial file.
        fs::write(at("out.part"), "mine").unwrap();
        fs::write(at("out"), "old").unwrap();
        fs::set_permissions(at("out"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("out", at("link")).unwrap();
        files.get("f", &at("link"), quiet()).await.unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert!(fs::read(at("out")).unwrap() == fs::read(&input).unwrap());
        assert_eq!(fs::metadata(at("out")).unwrap().mode() & 0o7777, 0o600);
        // Root's copy over a user's setuid file was root's setuid file.
        fs::set_permissions(at("out"), fs::Permissions::from_mode(0o4700)).unwrap();
        let is_root = std::os::unix::fs::chown(at("out"), Some(12_345), None).is_ok();
        fs::set_permissions(at("out"), fs::Permissions::from_mode(0o4700)).unwrap();
        files.get("f", &at("out"), quiet()).await.unwrap();
        let now = fs::metadata(at("out")).unwrap();
        assert_eq!((now.mode() & 0o7777, is_root && now.uid() != 12_345), (0o700, false));
        assert_eq!(fs::read_to_string(at("out.part")).unwrap(), "mine");
        // Refused before anything is made, or failed later: nothing is left.
        let before = fs::read_dir(here.path()).unwrap().count();
        fs::create_dir(at("directory")).unwrap();
        let refused = files.get("f", &at("directory"), quiet()).await.unwrap_err();
        assert!(refused.to_string().contains("is not a regular file"), "{refused}");
        let chunks = files.chunks();
        let stripe = chunks.list(chunks.nodes()[0], "alice/d/").await.unwrap().pop().unwrap();
        chunks.delete(chunks.nodes()[0], &stripe.name).await.unwrap();
        files.get("f", &at("out"), quiet()).await.unwrap_err();
        assert!(fs::read(at("out")).unwrap() == fs::read(&input).unwrap());
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), before + 1);
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A pipe was put as nothing, and a file that was written meanwhile as parts of two.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_whole_version_of_a_regular_file_is_put() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site().await;
        let files = cluster.client("alice", fixed(1 << 20));
        let here = tempfile::tempdir().unwrap();
        let input = written(here.path(), "in", 100_000);
        files.put(&input, "f", STRIPE, quiet()).await.unwrap();
        let used = cluster.used("alice");
        let pipe = here.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let refused = files.put(&pipe, "f", STRIPE, quiet()).await.unwrap_err();
        assert!(refused.to_string().contains("is not a regular file"), "{refused}");
        let own = input.clone();
        let written_to = Arc::new(move |_, _| fs::write(&own, vec![1; 100_000]).unwrap());
        let changed = files.put(&input, "f", STRIPE, written_to).await.unwrap_err();
        assert!(matches!(changed, FileError::Changed(_)), "{changed}");
        assert_eq!(cluster.used("alice"), used, "what was written of it is gone again");
        files.get("f", &here.path().join("out"), quiet()).await.unwrap();
        assert_eq!(fs::metadata(here.path().join("out")).unwrap().len(), 100_000);
        drop(files);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Where no bank answered, each stripe of the file was then looked for, thirty seconds after the other: hours for a large one. And of those who
/// wanted the same capability each waited for all before it. Who was given no vouchers was not told what was met instead of them: a bank that is
/// not there, a certificate that is not good by this clock.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_bank_a_put_fails_as_soon_as_it_was_to() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = site().await;
        cluster.bank.stop().await;
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("in");
        fs::write(&file, vec![1; 200 * 4096]).unwrap();
        let patience = Duration::from_secs(1);
        let http = http(&cluster.certificates(), "alice");
        let bank = BankClient::new(Arc::clone(&http), vec![cluster.bank.address.clone()], patience);
        let files = Files::new(Chunks::new(http, Purse::new(bank, alice(patience)), cluster.addresses(), patience));
        let began = Instant::now();
        files.put(&file, "a", 4096, quiet()).await.unwrap_err();
        assert!(began.elapsed() < 5 * patience, "{:?}", began.elapsed());
        let error = files.chunks().purse().pay(Op(1), Node(1), 4096).await.unwrap_err().to_string();
        assert!(error.starts_with("no bank gave vouchers") && error.contains(&cluster.bank.address), "{error}");
        let began = Instant::now();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let purse = files.chunks().purse().clone();
            waiting.spawn(async move { purse.capability("alice/").await });
        }
        while let Some(answer) = waiting.join_next().await {
            answer.unwrap().unwrap_err();
        }
        assert!(began.elapsed() < 5 * patience, "{:?}", began.elapsed());
        cluster.stop().await;
    })
    .await
    .unwrap();
}
