//! What an interrupted transfer leaves at the stores: nothing, also where its requests come after all that it asked for then.

use crate::cluster::{Cluster, Plan, fixed, quiet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use ullage_net::client::{Client, Settings};
use ullage_net::server::Gate;
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_store::client::{Chunks, FileError, Files, Purse, PurseSettings, Stop, StoreAddress};
use ullage_voucher::Node;

const TIME_MAX: Duration = Duration::from_secs(100);
const STRIPE: usize = 65_536;
const TOKEN_KEY: [u8; 32] = [5; 32];

/// Requests that begin so, and whether they wait.
struct Held {
    begin: &'static [u8],
    waits: AtomicBool,
    came: AtomicUsize,
}

impl Held {
    fn new(begin: &'static str) -> Self {
        Self { begin: begin.as_bytes(), waits: AtomicBool::new(true), came: AtomicUsize::new(0) }
    }

    async fn pass(&self, request: &[u8]) {
        if request.starts_with(self.begin) {
            self.came.fetch_add(1, SeqCst);
            until("it is let through", || !self.waits.load(SeqCst)).await;
        }
    }
}

async fn until(what: &str, ready: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < end, "not until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stands before a store; what waits here goes on when its client has gone, of which the store does not hear.
struct Line {
    store: String,
    puts: Held,
    cancels: Held,
}

impl Line {
    async fn before(store: String) -> (Arc<Self>, String) {
        let (puts, cancels) = (Held::new("PUT /v1/chunks/alice/d/"), Held::new("POST /v1/cancel"));
        let line = Arc::new(Self { store, puts, cancels });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let own = Arc::clone(&line);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&own).carry(client));
            }
        });
        (line, address)
    }

    async fn carry(self: Arc<Self>, client: TcpStream) {
        let Ok(store) = TcpStream::connect(&self.store).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_store, mut to_store) = store.into_split();
        let (asked, mut to_ask) = unbounded_channel::<Vec<u8>>();
        // All at once: what nobody has taken is lost when the client goes.
        tokio::spawn(async move {
            let mut buffer = vec![0; STRIPE];
            while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                let _ = asked.send(buffer[..length].to_vec());
            }
        });
        let questions = tokio::spawn(async move {
            while let Some(bytes) = to_ask.recv().await {
                self.puts.pass(&bytes).await;
                self.cancels.pass(&bytes).await;
                if to_store.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        });
        let mut buffer = vec![0; STRIPE];
        while let Ok(length @ 1..) = from_store.read(&mut buffer).await {
            let _ = to_client.write_all(&buffer[..length]).await;
        }
        questions.abort();
    }
}

/// Its stripes were removed before the store was told that the requests which wrote them had been given up: those that came between stayed,
/// charged to their user and named by nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_an_interrupted_put_whose_requests_come_late() {
    tokio::time::timeout(TIME_MAX, async {
        // What goes through is read on the way.
        let store = |settings: &mut ullage_store::server::StoreSettings| {
            settings.gate = Gate { tls: None, token_key: Some(TOKEN_KEY) }
        };
        let mut cluster = Cluster::start(Plan { stores: 1, store, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let (line, address) = Line::before(cluster.stores[0].address.clone()).await;
        let patience = Duration::from_secs(20);
        let settings = PurseSettings {
            user: "alice".into(),
            policy: fixed(1 << 20),
            patience,
            listen: false,
            addressed: std::collections::BTreeSet::new(),
        };
        let purse = Purse::new(cluster.bank_client("alice"), settings);
        let stores = vec![StoreAddress { node: Node(1), address, addressed: false }];
        let token =
            Bearer { name: "alice".into(), role: Role::User, expires: clock::now_secs() + 100 }.sign(&TOKEN_KEY);
        let http = Arc::new(Client::new(Settings { token: Some(token), ..Settings::default() }));
        let (give, stop) = Stop::new();
        let files = Files::new(Chunks::new(http, purse, stores, patience)).with_stop(stop);
        let here = tempfile::tempdir().unwrap();
        let input = here.path().join("in");
        std::fs::write(&input, vec![1; 4 * STRIPE]).unwrap();
        let put = tokio::spawn(async move { files.put(&input, "f", STRIPE as u64, quiet()).await });
        until("all are on the way", || line.puts.came.load(SeqCst) == 4).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        give.send(true).unwrap();
        until("they are given up", || line.cancels.came.load(SeqCst) > 0).await;
        // What does not wait is answered in this time.
        tokio::time::sleep(Duration::from_millis(500)).await;
        line.puts.waits.store(false, SeqCst);
        until("all are there", || cluster.used("alice") == 4 * (STRIPE as u64 + 4096)).await;
        line.cancels.waits.store(false, SeqCst);
        let stopped = put.await.unwrap().unwrap_err();
        assert!(matches!(stopped, FileError::Stopped), "{stopped}");
        assert_eq!(cluster.used("alice"), 0);
        cluster.stop().await;
    })
    .await
    .unwrap();
}
