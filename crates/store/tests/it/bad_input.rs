//! Everything that must be refused, over real connections: the store changes nothing and charges nothing.

use crate::cluster::{Cluster, Plan, fixed, http, keyring};
use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderName;
use std::time::Duration;
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::client::BankClient;
use ullage_bank::identity;
use ullage_bank::wire::{AccountChange, ClientBatch};
use ullage_net::client::{CallError, Client, Settings};
use ullage_net::{ErrorBody, Role, clock, tls};
use ullage_store::client::Chunks;
use ullage_store::headers::{
    CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, SETTLED_HEADER, VOUCHER_HEADER, checksum,
};
use ullage_store::wire::WriteAnswer;
use ullage_voucher::message::{BankToClient, ClientToBank, StoreToClient};
use ullage_voucher::{Epoch, Node, Op, Piece, encode_header};

const TIME_MAX: Duration = Duration::from_secs(100);

/// One user at the wire.
struct Raw<'a> {
    cluster: &'a Cluster,
    user: &'a str,
    client: ullage_voucher::Client,
    http: std::sync::Arc<Client>,
    capability: String,
}

impl<'a> Raw<'a> {
    fn new(cluster: &'a Cluster, user: &'a str) -> Self {
        let capability = capability(cluster, user, user, "", Rights::ALL, 600);
        let http = http(&cluster.certificates(), user);
        Self { cluster, user, client: identity::client(user, 1), http, capability }
    }

    async fn withdraw(&self, op: u64, want: u64) -> Vec<Piece> {
        let messages =
            vec![ClientToBank::Request { user: identity::user(self.user), op: Op(op), want, audience: None }];
        let batch = ClientBatch { client: self.client, messages, ..ClientBatch::default() };
        let answers = self.cluster.bank_client(self.user).messages(&batch).await.unwrap();
        match &answers.messages[0] {
            BankToClient::Granted { pieces, .. } => pieces.clone(),
            other => panic!("no vouchers: {other:?}"),
        }
    }

    fn headers(&self, op: u64, voucher: &str, data: &[u8]) -> Vec<(&'static HeaderName, String)> {
        vec![
            (&CAPABILITY_HEADER, self.capability.clone()),
            (&CLIENT_HEADER, format!("{:016x}", self.client.0)),
            (&OP_HEADER, op.to_string()),
            (&CHECKSUM_HEADER, checksum(data)),
            (&VOUCHER_HEADER, voucher.to_owned()),
        ]
    }

    async fn send(
        &self,
        store: usize,
        method: Method,
        path: &str,
        headers: &[(&'static HeaderName, String)],
        data: &[u8],
    ) -> Result<WriteAnswer, (u16, String, String)> {
        let address = &self.cluster.stores[store].address;
        let Ok(reply) = self.http.send(address, method, path, headers, Bytes::copy_from_slice(data)).await else {
            return Err((0, "transport".into(), String::new()));
        };
        if reply.status.is_success() {
            return Ok(serde_json::from_slice(&reply.body).unwrap());
        }
        let Ok(body) = serde_json::from_slice::<ErrorBody>(&reply.body) else {
            return Err((reply.status.as_u16(), "http".into(), String::new()));
        };
        let reason = body.error.detail.get("reason").and_then(|r| r.as_str()).unwrap_or_default().to_owned();
        Err((reply.status.as_u16(), body.error.code, reason))
    }

    /// Puts a new 4 KiB chunk (8 KiB with its header).
    async fn put(
        &self,
        store: usize,
        name: &str,
        op: u64,
        voucher: &str,
    ) -> Result<WriteAnswer, (u16, String, String)> {
        let data = [7; 4096];
        let path = format!("/v1/chunks/{}/d/{name}", self.user);
        self.send(store, Method::PUT, &path, &self.headers(op, voucher, &data), &data).await
    }
}

fn capability(cluster: &Cluster, user: &str, owner: &str, rest: &str, rights: Rights, secs: i64) -> String {
    let expires = clock::now_secs().saturating_add_signed(secs);
    let prefix = format!("{owner}/{rest}");
    Capability { user: user.into(), owner: owner.into(), prefix, rights, expires }.sign(&cluster.capability_key)
}

fn voucher_refused(reason: &str) -> (u16, String, String) {
    (402, "voucher".into(), reason.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn vouchers_that_are_not_good_buy_nothing() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        cluster.user("bob", 1 << 30).await;
        let alice = Raw::new(&cluster, "alice");
        let bob = Raw::new(&cluster, "bob");
        let good = alice.withdraw(1, 65_536).await;
        let header = encode_header(&good);

        // None, too little, garbage, truncated.
        assert_eq!(alice.put(0, "x", 1, "").await.unwrap_err(), voucher_refused("short"));
        let mut part = good[0];
        let part = part.split(4096).unwrap();
        assert_eq!(alice.put(0, "x", 2, &encode_header(&[part])).await.unwrap_err(), voucher_refused("short"));
        for bad in ["@@@@", "AAAA", &header[..header.len() - 4], &header[..50], &format!("{header},")] {
            let (status, code, _) = alice.put(0, "x", 3, bad).await.unwrap_err();
            assert_eq!((status, code.as_str()), (400, "bad_voucher"), "{bad}");
        }
        let many = encode_header(&vec![good[0]; 64]) + "," + &header;
        assert_eq!(alice.put(0, "x", 4, &many).await.unwrap_err().1, "bad_voucher");

        // Every flipped bit of the signed part, and every changed field.
        let bytes = good[0].encode();
        for position in (0..bytes.len() - 8).step_by(5) {
            let mut flipped = bytes;
            flipped[position] ^= 0x10;
            let Ok(piece) = Piece::decode(&flipped) else { continue };
            let refused = alice.put(0, "x", 5, &encode_header(&[piece])).await.unwrap_err();
            assert_eq!((refused.0, refused.1.as_str()), (402, "voucher"), "byte {position}");
        }

        // Signed with another key.
        let forged = keyring([9; 32]).sign(good[0].voucher.terms).unwrap().whole();
        assert_eq!(
            alice.put(0, "x", 6, &encode_header(&[forged])).await.unwrap_err(),
            voucher_refused("bad_signature")
        );

        // With the right key, but what no bank would say.
        let keys = keyring(cluster.root);
        let terms = good[0].voucher.terms;
        let sign = |terms| encode_header(&[keys.sign(terms).unwrap().whole()]);
        let mut future = terms;
        future.epoch = Epoch(terms.epoch.0 + 5);
        future.expiry = Epoch(terms.expiry.0 + 5);
        assert_eq!(alice.put(0, "x", 7, &sign(future)).await.unwrap_err(), voucher_refused("future"));
        let mut expired = terms;
        expired.epoch = Epoch(terms.epoch.0 - 3);
        expired.expiry = Epoch(terms.epoch.0 - 1);
        assert_eq!(alice.put(0, "x", 8, &sign(expired)).await.unwrap_err(), voucher_refused("expired"));
        let mut eternal = terms;
        eternal.expiry = Epoch(terms.expiry.0 + 1000);
        assert_eq!(alice.put(0, "x", 9, &sign(eternal)).await.unwrap_err(), voucher_refused("malformed"));
        let mut elsewhere = terms;
        elsewhere.audience = ullage_voucher::Node(2);
        assert_eq!(alice.put(0, "x", 10, &sign(elsewhere)).await.unwrap_err(), voucher_refused("foreign_audience"));

        // Another user's voucher.
        assert_eq!(bob.put(0, "x", 11, &header).await.unwrap_err(), voucher_refused("foreign_user"));

        // Nothing has happened so far; the good one is still good.
        assert_eq!((cluster.used("alice"), cluster.used("bob"), cluster.on_disk()), (0, 0, 0));
        alice.put(0, "x", 12, &header).await.unwrap();
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_is_spent_once_however_it_is_split_and_repeated() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { epoch_ms: 500, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let alice = Raw::new(&cluster, "alice");
        let good = alice.withdraw(1, 16_384).await;
        let header = encode_header(&good);
        let first = alice.put(0, "a", 1, &header).await.unwrap();
        let StoreToClient::Spent { used: 8192, balance, .. } = &first.outcomes[0] else { panic!("{first:?}") };
        assert_eq!(balance.iter().map(|piece| piece.amount).sum::<u64>(), 8192);
        // The same request again: the same answer, no second charge, even for another chunk.
        let again = alice.put(0, "a", 1, &header).await.unwrap();
        assert_eq!(format!("{:?}", again.outcomes), format!("{:?}", first.outcomes));
        alice.put(0, "other", 1, &header).await.unwrap();
        assert_eq!(cluster.used("alice"), 8192);
        // The whole voucher again under another number: only half of it is left here.
        assert_eq!(alice.put(0, "b", 2, &header).await.unwrap_err(), voucher_refused("overspent"));
        alice.put(0, "b", 3, &encode_header(balance)).await.unwrap();
        assert_eq!(alice.put(0, "c", 4, &encode_header(balance)).await.unwrap_err(), voucher_refused("overspent"));
        // The other store cannot know: it accepts, and the cheater is named.
        alice.put(1, "c", 5, &header).await.unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let findings = loop {
            let findings = cluster.admin.findings().await.unwrap();
            if !findings.is_empty() {
                break findings;
            }
            assert!(std::time::Instant::now() < until, "the cheater is never named");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(findings[0].user.as_deref(), Some("alice"));
        // Refused further vouchers, as configured by default.
        assert!(cluster.account("alice").await.blocked);
        assert_eq!(cluster.reconciled("alice").await.settled_bytes as u64, cluster.used("alice"));
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_request_is_refused_and_one_cannot_settle_itself() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        cluster.user("alice", 1 << 30).await;
        let alice = Raw::new(&cluster, "alice");
        let mut rest = alice.withdraw(1, 1 << 20).await[0];
        let mut put = async |name: &str, op: u64, settled: &str| {
            let voucher = encode_header(&[rest.split(8192).unwrap()]);
            let data = [7; 4096];
            let mut headers = alice.headers(op, &voucher, &data);
            headers.push((&SETTLED_HEADER, settled.to_owned()));
            let path = format!("/v1/chunks/alice/d/{name}");
            alice.send(0, Method::PUT, &path, &headers, &data).await
        };
        put("a", 5, "5").await.unwrap();
        put("b", 6, "6").await.unwrap();
        assert_eq!(put("y", 5, "6").await.unwrap_err(), voucher_refused("settled"));
        assert_eq!(put("z", 4, "6").await.unwrap_err(), voucher_refused("settled"));
        // What is claimed beyond the request itself is not believed: it is answered again when it is repeated.
        put("c", 7, &u64::MAX.to_string()).await.unwrap();
        put("c", 7, "7").await.unwrap();
        assert_eq!(put("d", 8, "soon").await.unwrap_err().1, "bad_settled");
        assert_eq!(cluster.used("alice"), 3 * 8192);
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_modes_checksums_and_clients_are_checked() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan::default()).await;
        cluster.user("alice", 1 << 30).await;
        cluster.user("bob", 1 << 30).await;
        let mut alice = Raw::new(&cluster, "alice");
        let voucher = encode_header(&alice.withdraw(1, 1 << 20).await);
        alice.put(0, "a", 1, &voucher).await.unwrap();
        let used = cluster.used("alice");

        let own = alice.capability.clone();
        let read_only = Rights { read: true, ..Rights::default() };
        for (what, bad) in [
            ("none", String::new()),
            ("forged", own.replace(&own[own.len() - 4..], "0000")),
            ("another's", capability(&cluster, "bob", "alice", "", Rights::ALL, 600)),
            ("other chunks'", capability(&cluster, "alice", "bob", "", Rights::ALL, 600)),
            ("read only", capability(&cluster, "alice", "alice", "", read_only, 600)),
            ("expired", capability(&cluster, "alice", "alice", "", Rights::ALL, -10)),
        ] {
            alice.capability = bad;
            let (status, code, _) = alice.put(0, "b", 2, &voucher).await.unwrap_err();
            assert_eq!((status, code.as_str()), (403, "capability"), "{what}");
        }
        alice.capability = own;

        // The mode binds others, whatever capability the owner gave them.
        let mut bob = Raw::new(&cluster, "bob");
        bob.capability = capability(&cluster, "bob", "alice", "", Rights::ALL, 600);
        let delete = bob.send(0, Method::DELETE, "/v1/chunks/alice/d/a", &bob.headers(1, "", b""), b"").await;
        assert_eq!(delete.unwrap_err().1, "mode");

        // Wire damage, foreign or missing client and op, impossible names and sizes.
        let data = [1; 100];
        let path = "/v1/chunks/alice/d/c";
        let mut damaged = alice.headers(3, &voucher, &data);
        damaged[3].1 = checksum(b"other");
        assert_eq!(alice.send(0, Method::PUT, path, &damaged, &data).await.unwrap_err().1, "checksum");
        let mut foreign = alice.headers(3, &voucher, &data);
        foreign[1].1 = format!("{:016x}", identity::client("bob", 1).0);
        assert_eq!(alice.send(0, Method::PUT, path, &foreign, &data).await.unwrap_err().1, "foreign_client");
        let mut no_op = alice.headers(3, &voucher, &data);
        no_op[2].1 = u64::MAX.to_string();
        assert_eq!(alice.send(0, Method::PUT, path, &no_op, &data).await.unwrap_err().1, "bad_op");
        let headers = alice.headers(3, &voucher, &data);
        assert_eq!(
            alice.send(0, Method::PUT, "/v1/chunks/alice/%2e", &headers, &data).await.unwrap_err().1,
            "bad_name"
        );
        let beyond = alice.headers(3, &voucher, &data);
        let far = format!("{path}?offset={}", u64::MAX);
        assert_eq!(alice.send(0, Method::PATCH, &far, &beyond, &data).await.unwrap_err().1, "too_large");
        let large = vec![0; (16 << 20) + 1];
        // The server closes without reading it, which the sender may see before the answer.
        let refused = alice.send(0, Method::PUT, path, &alice.headers(3, &voucher, &large), &large).await.unwrap_err();
        assert!(refused.0 == 413 || refused.1 == "transport", "{refused:?}");
        let mut long_head = alice.headers(3, &voucher, &data);
        long_head[4].1 = "A".repeat(100_000);
        assert_eq!(alice.send(0, Method::PUT, path, &long_head, &data).await.unwrap_err().0, 431);
        assert_eq!((cluster.used("alice"), cluster.on_disk()), (used, used));
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_a_certificate_of_this_site() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        let address = &cluster.stores[0].address;
        let plain = Client::new(Settings { timeout: Duration::from_secs(3), ..Settings::default() });
        assert!(plain.send(address, Method::GET, "/v1/status", &[], Bytes::new()).await.is_err());
        // A certificate of another authority.
        let other = tempfile::tempdir().unwrap();
        ullage_net::pki::create_authority(other.path(), 1).unwrap();
        ullage_net::pki::issue(other.path(), "alice", Role::User, &[], 1).unwrap();
        std::fs::copy(cluster.certificates().join("ca.pem"), other.path().join("ca.pem")).unwrap();
        let tls = tls::client(&tls::Files::in_directory(other.path(), "alice")).unwrap();
        let stranger = Client::new(Settings { tls: Some(tls), ..Settings::default() });
        assert!(stranger.send(address, Method::GET, "/v1/status", &[], Bytes::new()).await.is_err());
        // Users are no administrators, no stores, and no other users.
        let alice = cluster.bank_client("alice");
        let code = |error: CallError| error.code().unwrap_or_default().to_owned();
        assert_eq!(code(alice.accounts().await.unwrap_err()), "forbidden");
        assert_eq!(code(alice.account("bob").await.unwrap_err()), "forbidden");
        assert_eq!(code(alice.change("alice", &AccountChange::default()).await.unwrap_err()), "forbidden");
        assert_eq!(code(alice.exclude(1).await.unwrap_err()), "forbidden");
        assert_eq!(code(cluster.admin.exclude(99).await.unwrap_err()), "not_found");
        let batch = ullage_bank::wire::StoreBatch { shard: 0, shards: 1, messages: Vec::new() };
        assert_eq!(code(alice.store_messages(&batch).await.unwrap_err()), "forbidden");
        let foreign = ClientToBank::Request { user: identity::user("bob"), op: Op(1), want: 1, audience: None };
        let batch =
            ClientBatch { client: identity::client("alice", 1), messages: vec![foreign], ..ClientBatch::default() };
        assert_eq!(code(alice.messages(&batch).await.unwrap_err()), "forbidden");
        let batch = ClientBatch { client: identity::client("bob", 1), ..ClientBatch::default() };
        assert_eq!(code(alice.messages(&batch).await.unwrap_err()), "forbidden");
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// It took vouchers of all, and accounted for those of other shards at a bank that did not know them: their quotas were unlimited.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_spreads_users_over_other_shards_takes_no_vouchers() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, shards: 4, ..Plan::default() }).await;
        let certificates = cluster.certificates();
        let issued = ullage_net::pki::issue(&certificates, "store-2", Role::Store, &["127.0.0.1".into()], 10);
        issued.unwrap();
        cluster.plan.store = |settings| settings.shards = 1;
        let (mut other, meter) = cluster.start_store(2, "127.0.0.1:0").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!meter.is_open());
        other.stop().await;
        let store = cluster.bank_client("store-2");
        let batch = ullage_bank::wire::StoreBatch { shard: 0, shards: 1, messages: Vec::new() };
        let error = store.store_messages(&batch).await.unwrap_err();
        assert!(error.code() == Some("shards") && error.to_string().contains("--shards 4"), "{error}");
        let older = ullage_bank::wire::StoreBatch { shards: 0, ..batch };
        store.store_messages(&older).await.unwrap();
        cluster.stop().await;
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_rates_and_audiences_are_bounded() {
    tokio::time::timeout(TIME_MAX, async {
        let plan = Plan {
            stores: 1,
            store: |settings| {
                settings.only_addressed = true;
                settings.limits.requests_per_second = 20;
            },
            ..Plan::default()
        };
        let mut cluster = Cluster::start(plan).await;
        cluster.user("alice", 1 << 20).await;
        let alice = Raw::new(&cluster, "alice");
        // This store takes only what is addressed to it; the bank's vouchers are for any store.
        let anyones = alice.withdraw(1, 16_384).await;
        assert_eq!(
            alice.put(0, "a", 1, &encode_header(&anyones)).await.unwrap_err(),
            voucher_refused("foreign_audience")
        );
        let mut terms = anyones[0].voucher.terms;
        terms.audience = ullage_voucher::Node(1);
        let addressed = keyring(cluster.root).sign(terms).unwrap().whole();
        alice.put(0, "a", 2, &encode_header(&[addressed])).await.unwrap();
        // The clock's tolerance is 30 s.
        let now = clock::now_ms();
        let address = &cluster.stores[0].address;
        for (theirs, fits) in [(now + 20_000, true), (now - 20_000, true), (now + 40_000, false), (now - 40_000, false)]
        {
            let status = skewed(&cluster, address, theirs).await;
            assert_eq!(status == 200, fits, "{status}");
        }
        let mut refused = 0;
        for _ in 0..60 {
            let reply = alice.http.send(address, Method::GET, "/v1/status", &[], Bytes::new()).await.unwrap();
            refused += u32::from(reply.status == 429);
        }
        assert!(refused > 20, "{refused}");
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A request whose sender's clock says `theirs_ms`, by hand.
async fn skewed(cluster: &Cluster, address: &str, theirs_ms: u64) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tls = tls::client(&tls::Files::in_directory(&cluster.certificates(), "alice")).unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(tls).connect(name, stream).await.unwrap();
    let request =
        format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx-ullage-time: {theirs_ms}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap()
}

/// It was asked again every two seconds for as long as the client had patience, and the reason only logged.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_bank_will_never_hear_ends_a_payment_at_once() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        let began = std::time::Instant::now();
        let files = cluster.client("root", fixed(1 << 20));
        let error = files.chunks().put(Node(1), "root/d/a", Bytes::from_static(b"a"), false).await.unwrap_err();
        assert!(error.to_string().contains("vouchers are for users"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// Whoever shortened, replaced or removed what is another's was handed that one's refund, and could write (and cheat) in the owner's name.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_handed_the_refund_of_another() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { epoch_ms: 400, ..Plan::default() }).await;
        for user in ["alice", "bob"] {
            cluster.user(user, 1 << 20).await;
        }
        let alice = Raw::new(&cluster, "alice");
        let mut bob = Raw::new(&cluster, "bob");
        bob.capability = capability(&cluster, "bob", "alice", "", Rights::ALL, 600);
        let (path, data) = ("/v1/chunks/alice/d/a", vec![7; 32_768]);
        let voucher = encode_header(&alice.withdraw(1, 65_536).await);
        let shared = format!("{path}?mode=666");
        alice.send(0, Method::PUT, &shared, &alice.headers(1, &voucher, &data), &data).await.unwrap();
        let changes: [(Method, &str, &[u8]); 3] =
            [(Method::POST, "?size=16384", b""), (Method::PUT, "?replace=1", &data[..4096]), (Method::DELETE, "", b"")];
        for (op, (method, query, data)) in (1..).zip(changes) {
            let before = cluster.used("alice");
            let answer =
                bob.send(0, method, &format!("{path}{query}"), &bob.headers(op, "", data), data).await.unwrap();
            assert!(cluster.used("alice") < before, "{query}");
            for outcome in answer.outcomes {
                assert!(matches!(outcome, StoreToClient::Refunded { refund: None, .. }), "{query}: {outcome:?}");
            }
        }
        assert_eq!(cluster.reconciled("alice").await.settled_bytes, 0, "who was charged has it back");
        cluster.stop().await;
    })
    .await
    .unwrap();
}

/// A store's certificate is good for its host, also at the address of a bank: it was told everything, and believed. And whoever had a
/// certificate of another role with a user's name was that user at a store.
#[tokio::test(flavor = "multi_thread")]
async fn everybody_is_what_their_certificate_says() {
    tokio::time::timeout(TIME_MAX, async {
        let mut cluster = Cluster::start(Plan { stores: 1, ..Plan::default() }).await;
        cluster.user("alice", 1 << 20).await;
        let (bank, store) = (cluster.bank.address.clone(), cluster.stores[0].address.clone());
        let patience = Duration::from_millis(100);
        // A client, a store and an administrator alike.
        for name in ["alice", "store-1", "root"] {
            let client = http(&cluster.certificates(), name);
            let error = BankClient::new(client, vec![store.clone()], patience).account("alice").await.unwrap_err();
            assert!(error.to_string().contains("store-1 (role store), and is no bank"), "{error}");
        }
        let mut files = cluster.addresses();
        files[0].address = bank;
        let purse = cluster.client("alice", fixed(65_536)).chunks().purse().clone();
        let chunks = Chunks::new(http(&cluster.certificates(), "alice"), purse, files, patience);
        let error = chunks.list(Node(1), "alice/").await.unwrap_err().to_string();
        assert!(error.contains("bank (role bank), and is no store"), "{error}");

        ullage_net::pki::issue(&cluster.certificates(), "mary", Role::Node, &[], 1).unwrap();
        let mary = Raw::new(&cluster, "mary");
        let refused = mary.send(0, Method::GET, "/v1/chunks?prefix=mary/", &mary.headers(1, "", b""), b"").await;
        assert_eq!(refused.unwrap_err(), (403, "forbidden".into(), String::new()));
        cluster.stop().await;
    })
    .await
    .unwrap();
}
