//! Copies of requests that arrive late: after the store has refused another one.

use crate::cluster::{Cluster, Plan, fixed, http, quiet};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::http::HeaderName;
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use ullage_net::client::Client;
use ullage_net::server::{Gate, Limits, serve};
use ullage_net::{Answer, Problem, tls};
use ullage_store::client::{Chunks, Files, Purse, PurseSettings, StoreAddress};
use ullage_voucher::Node;

const TIME_MAX: Duration = Duration::from_secs(60);

/// A request as it is passed on.
type Passed = (Method, String, Vec<(HeaderName, String)>, Bytes);

/// Stands before a store. The first manifest is kept back, and refused as by a store without a lease; it arrives before whatever comes next.
struct Front {
    http: Arc<Client>,
    store: String,
    answer: fn() -> Problem,
    kept: Mutex<Option<Passed>>,
    seen: Mutex<bool>,
}

impl Front {
    async fn pass(&self, (method, path, headers, body): Passed) -> Result<Answer, Problem> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name, value.clone())).collect();
        let reply = self.http.send(&self.store, method, &path, &headers, body).await.unwrap();
        let mut answer = Response::new(Full::new(reply.body));
        (*answer.status_mut(), *answer.headers_mut()) = (reply.status, reply.headers);
        Ok(answer)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Problem> {
        let (head, body) = request.into_parts();
        let own = head.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ullage-"));
        let headers = own.map(|(name, value)| (name.clone(), value.to_str().unwrap().to_owned())).collect();
        let path = head.uri.path_and_query().unwrap().to_string();
        let copy = (head.method.clone(), path.clone(), headers, body.collect().await.unwrap().to_bytes());
        if head.method == Method::PUT && path.contains("/m/") && !std::mem::replace(&mut self.seen.lock(), true) {
            *self.kept.lock() = Some(copy);
            return Err((self.answer)());
        }
        let late = self.kept.lock().take();
        if let Some(late) = late {
            let placed = self.pass(late).await.unwrap();
            assert_eq!(placed.status(), StatusCode::OK);
        }
        self.pass(copy).await
    }
}

fn no_lease() -> Problem {
    let detail = serde_json::json!({"reason": "no_lease", "needed_bytes": 0, "epoch": 0});
    Problem::new(StatusCode::PAYMENT_REQUIRED, "voucher", "no lease").with_detail(detail)
}

fn too_late() -> Problem {
    Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the request took too long; its outcome is unknown")
}

/// Regression: the manifest was placed by a copy of a request that had been refused; the client took it for the version before its own, and removed
/// its stripes.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_placed_late_is_not_taken_for_the_one_before() {
    for (checked, answer) in [(true, no_lease as fn() -> Problem), (false, too_late)] {
        let run = async {
            let mut cluster = Cluster::start(Plan { stores: 1, checked, ..Plan::default() }).await;
            cluster.user("alice", 1 << 30).await;
            let here = tempfile::tempdir().unwrap();
            let at = |name: &str| here.path().join(name);
            let plain =
                |files: Files| if checked { files } else { Files::new(files.chunks().clone().without_paying()) };
            std::fs::write(at("old"), vec![1; 300_000]).unwrap();
            std::fs::write(at("new"), vec![2; 200_000]).unwrap();
            plain(cluster.client("alice", fixed(1 << 20))).put(&at("old"), "file", 65_536, quiet()).await.unwrap();
            let front = Arc::new(Front {
                http: http(&cluster.certificates(), "alice"),
                store: cluster.stores[0].address.clone(),
                answer,
                kept: Mutex::default(),
                seen: Mutex::default(),
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let files = tls::Files::in_directory(&cluster.certificates(), "store-1");
            let gate = Gate { tls: Some(tls::server(&files).unwrap()), token_key: None };
            let own = front.clone();
            let handler = move |request, _| own.clone().answer(request);
            tokio::spawn(serve(listener, gate, Limits::default(), handler, std::future::pending()));
            let settings = PurseSettings {
                user: "alice".into(),
                policy: fixed(1 << 20),
                patience: Duration::from_secs(10),
                listen: false,
                addressed: [].into(),
            };
            let purse = Purse::new(cluster.bank_client("alice"), settings);
            let store = StoreAddress { node: Node(1), address, addressed: false };
            let patience = Duration::from_secs(10);
            let through = plain(Files::new(Chunks::new(front.http.clone(), purse, vec![store], patience)));
            through.put(&at("new"), "file", 65_536, quiet()).await.unwrap();
            assert!(*front.seen.lock() && front.kept.lock().is_none());
            through.get("file", &at("out"), quiet()).await.unwrap();
            assert!(std::fs::read(at("out")).unwrap() == vec![2; 200_000]);
            let left = through.chunks().list(Node(1), "alice/d/").await.unwrap();
            assert_eq!(left.len(), 4, "the old stripes are gone");
            cluster.stop().await;
        };
        tokio::time::timeout(TIME_MAX, run).await.unwrap();
    }
}
