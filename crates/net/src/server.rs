//! A server: connections in, one async function from request to answer, everything bounded.

use crate::handshakes::Handshakes;
use crate::limit::RateLimit;
use crate::linger::linger;
use crate::patience::{Patient, while_moving};
use crate::seldom::Seldom;
use crate::shares::Shares;
use crate::tls::{self, Certificate};
use crate::token::Bearer;
use crate::{Answer, Peer, Problem, Role, clock};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// What bounds a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Connections beyond these, for one request each: a GET, so that who waits can find out that the server is there, or any of a
    /// store or an administrator. Who else finds no place is told so (503). Without any, all wait to be accepted.
    pub spare: usize,
    /// TLS handshakes at a time, half of them from one address: more end the oldest. They have no place among the connections.
    pub handshakes: usize,
    /// Bytes of a request's head; more is answered with 431.
    pub head_bytes: usize,
    /// Time to send a request's head, and to finish a TLS handshake.
    pub head_timeout: Duration,
    /// Time from head to answer, and to send or take a part of body or answer: who sends or takes less is not waited for.
    pub request_timeout: Duration,
    /// Requests a second of one party; zero is no limit.
    pub requests_per_second: u32,
    /// How far a sender's clock may be from ours.
    pub clock_tolerance_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            spare: 0,
            handshakes: 1024,
            head_bytes: 64 << 10,
            head_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            requests_per_second: 0,
            clock_tolerance_ms: clock::TOLERANCE_MS,
        }
    }
}

/// One part in so many of all descriptors may be connections: a request has files open beside its own, and a journal that gets none ends.
const CONNECTIONS_PART: u64 = 3;

/// And one in so many those of whom nobody knows yet who they are.
const HANDSHAKES_PART: u64 = 12;

impl Limits {
    /// As many connections, those to spare among them, as leave enough of so many descriptors.
    fn within(self, descriptors: u64) -> Self {
        let most = usize::try_from(descriptors / CONNECTIONS_PART).unwrap_or(usize::MAX).max(1);
        let spare = self.spare.min(most / 2);
        let handshakes = usize::try_from(descriptors / HANDSHAKES_PART).unwrap_or(usize::MAX);
        let handshakes = self.handshakes.min(handshakes).max(1);
        Self { connections: self.connections.min(most - spare), spare, handshakes, ..self }
    }
}

/// How a server knows who asks.
#[derive(Clone, Default)]
pub struct Gate {
    /// Certificates both ways; without it the connection is plain and only tokens count.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The key of user tokens.
    pub token_key: Option<[u8; 32]>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("tls", &self.tls.is_some()).field("tokens", &self.token_key.is_some()).finish()
    }
}

struct Shared<H> {
    handler: H,
    gate: Gate,
    limits: Limits,
    rate: RateLimit,
    turned_away: TurnedAway,
}

/// Whether it was said lately that somebody was turned away.
#[derive(Default)]
struct TurnedAway(Seldom);

impl TurnedAway {
    fn say(&self, from: SocketAddr, why: &str) {
        if self.0.is_due("turned away") {
            tracing::warn!(%from, why, "a connection is turned away");
        }
    }

    /// Who leaves without a word only looked whether anybody listens.
    fn say_error(&self, from: SocketAddr, error: &io::Error) {
        if error.kind() != ErrorKind::UnexpectedEof {
            self.say(from, &error.to_string());
        }
    }
}

/// What a connection is good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has one of the places.
    Own,
    /// One of those to spare.
    Spare,
    /// None: its party has too many. It is told so, and is ended as one that has not said who it is, where more come.
    None,
}

impl Place {
    /// Which kind the last one is that was taken.
    fn taken(places: &Semaphore, spare: usize) -> Self {
        if places.available_permits() < spare { Self::Spare } else { Self::Own }
    }
}

/// Answers requests on `listener` until `end` completes. The handler gets authenticated requests only.
pub async fn serve<H, F>(listener: TcpListener, gate: Gate, limits: Limits, handler: H, end: impl Future<Output = ()>)
where
    H: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Answer, Problem>> + Send,
{
    let limits = limits.within(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    let rate = RateLimit::new(limits.requests_per_second, limits.requests_per_second.max(1));
    let shared = Arc::new(Shared { handler, gate, limits, rate, turned_away: TurnedAway::default() });
    let places = Arc::new(Semaphore::new(limits.connections + limits.spare));
    let shares = Shares::new(limits.connections);
    let handshakes = Handshakes::new(limits.handshakes);
    tokio::pin!(end);
    // Dropped at the end, and the connections with it: nothing is answered after this returns.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let next = async {
            // Whoever has shown who it is waits for a place before anybody else is let in to do so.
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.ok().filter(|_| shared.gate.tls.is_none());
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            () = &mut end => break,
        };
        let Ok((stream, from)) = accepted else {
            // Out of descriptors: let some connections end first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let kind = Place::taken(&places, limits.spare);
        let (shared, places, shares) = (Arc::clone(&shared), Arc::clone(&places), Arc::clone(&shares));
        let unknown = shared.gate.tls.clone().map(|config| (TlsAcceptor::from(config), handshakes.begin(from.ip())));
        connections.spawn(async move {
            let stream = Patient::new(stream, shared.limits.request_timeout);
            let moved = stream.moved();
            let Some((acceptor, mut handshake)) = unknown else {
                let _held = place;
                return connection(shared, stream, moved, None, kind).await;
            };
            let accepting = acceptor.accept(stream);
            let accepted = tokio::select! {
                accepted = tokio::time::timeout(shared.limits.head_timeout, accepting) => accepted,
                () = handshake.ended() => {
                    return shared.turned_away.say(from, "it has not said who it is, and too many others have come");
                }
            };
            let stream = match accepted {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return shared.turned_away.say_error(from, &error),
                Err(_) => return shared.turned_away.say(from, "it takes too long to say who it is"),
            };
            let Some(shown) = tls::shown_on(stream.get_ref().1) else {
                return shared.turned_away.say(from, "its certificate has no name and role");
            };
            let Some(_share) = shares.take(&shown.peer) else {
                return tokio::select! {
                    () = connection(shared, stream, moved, Some(shown), Place::None) => (),
                    () = handshake.ended() => (),
                };
            };
            drop(handshake);
            let Ok(_held) = Arc::clone(&places).acquire_owned().await else { return };
            let kind = Place::taken(&places, limits.spare);
            connection(shared, stream, moved, Some(shown), kind).await;
        });
    }
    connections.shutdown().await;
}

async fn connection<H, F, S>(
    shared: Arc<Shared<H>>,
    stream: S,
    moved: Arc<AtomicU64>,
    shown: Option<Certificate>,
    place: Place,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Answer, Problem>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = shared.limits;
    let shown = shown.map(Arc::new);
    let had_body = Arc::new(AtomicBool::new(false));
    let has_body = Arc::clone(&had_body);
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        let (shown, moved) = (shown.clone(), Arc::clone(&moved));
        has_body.store(!request.body().is_end_stream(), Ordering::Relaxed);
        async move {
            // Nothing reads the body of a GET, and what the client sends next over this connection would be lost.
            let mut is_last = request.method() == Method::GET && !request.body().is_end_stream();
            let answer = match shown.as_deref().filter(|shown| shown.has_ended()) {
                Some(ended) => {
                    is_last = true;
                    Err(ended_problem(ended))
                }
                None => answer(&shared, &moved, shown.map(|shown| shown.peer.clone()), place, request).await,
            };
            let mut answer = answer.unwrap_or_else(Problem::answer);
            if is_last {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    // An error here is a client that went away or spoke something else; there is nobody to tell.
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(place == Place::Own)
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes.max(8192))
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown()
        .await;
    if let Ok(parts) = ended {
        let mut stream = parts.io.into_inner();
        if had_body.load(Ordering::Relaxed) {
            // It may have been answered before it was read.
            linger(stream, limits.head_timeout).await;
        } else {
            let _ = stream.shutdown().await;
        }
    }
}

/// A kept connection is as good as its certificate: who wants to go on must connect anew.
fn ended_problem(ended: &Certificate) -> Problem {
    let message = format!("your certificate was good until {}: {}", ended.until, ended.peer.renewal());
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
}

async fn answer<H, F>(
    shared: &Shared<H>,
    moved: &AtomicU64,
    peer: Option<Peer>,
    place: Place,
    request: Request<Incoming>,
) -> Result<Answer, Problem>
where
    H: Fn(Request<Incoming>, Peer) -> F,
    F: Future<Output = Result<Answer, Problem>>,
{
    if place == Place::None {
        let most = shared.limits.connections;
        let message =
            format!("you have your part of the {most} connections of this server: ask again later, or over them");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message));
    }
    let head_bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>()
            + request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if head_bytes > shared.limits.head_bytes {
        let message = format!("a request's head has at most {} bytes", shared.limits.head_bytes);
        return Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message));
    }
    let peer = authenticate(&shared.gate, peer, &request)?;
    // Without its stores a bank is of no use to those who have the places, and an administrator may be about to help.
    let is_served = request.method() == Method::GET || matches!(peer.role, Role::Store | Role::Admin);
    if place == Place::Spare && !is_served {
        let message = format!("this server has its {} connections: ask again later", shared.limits.connections);
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "full", message));
    }
    if !shared.rate.allows(&peer.name, Instant::now()) {
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", "more requests than this server allows"));
    }
    if let Some(theirs) = request.headers().get(clock::TIME_HEADER) {
        let theirs = theirs.to_str().ok().and_then(|text| text.parse().ok());
        if let Some(why) = clock::differs(theirs, clock::now_ms(), shared.limits.clock_tolerance_ms) {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "clock", why));
        }
    }
    // Nothing reads it, and an answer that is longer than the connection holds would be cut off where it is closed.
    if request.method() == Method::GET && !request.body().is_end_stream() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", "a GET has no body"));
    }
    let answer = (shared.handler)(request, peer);
    while_moving(answer, moved, shared.limits.request_timeout).await.unwrap_or_else(|| {
        Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the request took too long; its outcome is unknown"))
    })
}

/// A token names the user; the certificate below it must then be of a node (which acts for users), or the user's own.
fn authenticate(gate: &Gate, peer: Option<Peer>, request: &Request<Incoming>) -> Result<Peer, Problem> {
    let refuse = |message: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", message);
    let header = request.headers().get("authorization");
    let Some(header) = header else {
        return peer.ok_or_else(|| refuse("neither a certificate nor a token was shown"));
    };
    let token = header.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let (Some(token), Some(key)) = (token, &gate.token_key) else {
        return Err(refuse("this server takes no such authorization"));
    };
    let bearer = Bearer::verify(key, token, clock::now_secs()).map_err(|error| refuse(&error.to_string()))?;
    match peer {
        Some(peer) if peer != bearer && peer.role != Role::Node => {
            Err(refuse("the certificate is of another party than the token, and not of a node"))
        }
        _ => Ok(bearer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Settings};
    use crate::{json, pki};
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;

    /// Regression: who had many connections open took all descriptors there were, and the files of everybody's requests got none.
    #[test]
    fn connections_leave_descriptors_for_files() {
        for (spare, descriptors, expected) in [
            (0, u64::MAX, (4096, 0)),
            (64, 524_288, (4096, 64)),
            (0, 1024, (341, 0)),
            (64, 1024, (277, 64)),
            (64, 100, (17, 16)),
            (64, 4, (1, 0)),
            (0, 0, (1, 0)),
        ] {
            let limits = Limits { spare, ..Limits::default() }.within(descriptors);
            assert_eq!((limits.connections, limits.spare), expected, "{spare} of {descriptors}");
        }
    }

    /// Regression: a large answer to a GET with a body, which nobody read, was cut off.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_get_with_a_body_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate { tls: None, token_key: Some([7; 32]) };
        let large = |_, _| async { Ok(Answer::new(http_body_util::Full::new(Bytes::from(vec![1; 16 << 20])))) };
        tokio::spawn(serve(listener, gate, Limits::default(), large, std::future::pending()));
        let token = Bearer { name: "alice".into(), role: Role::User, expires: clock::now_secs() + 60 }.sign(&[7; 32]);
        let client = Client::new(Settings { token: Some(token), ..Settings::default() });
        for length in [0, 1, 4096, 300_000].repeat(5) {
            let reply = client.send(&address, Method::GET, "/", &[], vec![1; length].into()).await.unwrap();
            let expected = if length == 0 { (StatusCode::OK, true) } else { (StatusCode::BAD_REQUEST, false) };
            assert_eq!((reply.status, reply.body.len() == 16 << 20), expected, "{length}");
        }
    }

    /// Whoever could reach a server, without any certificate, held all its places with connections on which nothing was said.
    #[tokio::test(flavor = "multi_thread")]
    async fn connections_that_say_nothing_keep_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "store-1", Role::Store, &["127.0.0.1".into()], 1).unwrap();
        let files = tls::Files::in_directory(directory.path(), "store-1");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Gate { tls: Some(tls::server(&files).unwrap()), token_key: None };
        let long = Duration::from_secs(600);
        let limits = Limits { connections: 2, spare: 1, handshakes: 8, head_timeout: long, ..Limits::default() };
        let server = tokio::spawn(serve(listener, gate, limits, |_, _| async { Ok(json(&1)) }, std::future::pending()));
        let mut idle = Vec::new();
        for _ in 0..20 {
            idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let settings = Settings { tls: Some(tls::client(&files).unwrap()), ..Settings::default() };
        let soon = Duration::from_secs(20);
        let (client, address) = (Client::new(settings), address.to_string());
        let asks = client.send(&address, Method::POST, "/", &[], Bytes::new());
        let reply = tokio::time::timeout(soon, asks).await.expect("there is no place").unwrap();
        assert_eq!(reply.status, StatusCode::OK);
        let first = tokio::time::timeout(soon, idle[0].read(&mut [0])).await.expect("the oldest goes");
        assert!(matches!(first, Ok(0) | Err(_)));
        let last = tokio::time::timeout(Duration::from_millis(100), idle[19].read(&mut [0])).await;
        assert!(last.is_err(), "the newest may still say who it is");
        server.abort();
    }

    /// Regression: a certificate that had ended was good for as long as its connection was kept, which is as long as somebody likes.
    #[tokio::test]
    async fn a_connection_ends_with_its_certificate() {
        let limits = Limits::default();
        let rate = RateLimit::new(0, 1);
        let handler = |_, _| async { Ok(json(&1)) };
        let shared =
            Arc::new(Shared { handler, gate: Gate::default(), limits, rate, turned_away: TurnedAway::default() });
        let peer = Peer { name: "alice".into(), role: Role::User };
        let now = clock::now_secs().cast_signed();
        for (until_secs, expected) in [(now + 3600, "HTTP/1.1 200"), (now - 1, "HTTP/1.1 401")] {
            let shown = Certificate { peer: peer.clone(), from_secs: 0, until_secs, until: "then".into() };
            let (mut here, there) = tokio::io::duplex(4096);
            let served = tokio::spawn(connection(Arc::clone(&shared), there, Arc::default(), Some(shown), Place::Own));
            here.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut status = [0; 12];
            here.read_exact(&mut status).await.unwrap();
            assert_eq!(status, expected.as_bytes());
            if until_secs < now {
                let mut rest = String::new();
                here.read_to_string(&mut rest).await.unwrap();
                assert!(rest.contains("alice --role user --renew"), "{rest}");
                served.await.unwrap();
            }
        }
    }

    /// Regression: one user held all the places of a store, and nobody else was served.
    #[tokio::test(flavor = "multi_thread")]
    async fn one_user_leaves_places_to_others() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "store-1", Role::Store, &["127.0.0.1".into()], 1).unwrap();
        for user in ["alice", "bob"] {
            pki::issue(directory.path(), user, Role::User, &[], 1).unwrap();
        }
        let files = |name| tls::Files::in_directory(directory.path(), name);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate { tls: Some(tls::server(&files("store-1")).unwrap()), token_key: None };
        let limits = Limits { connections: 8, head_timeout: Duration::from_secs(600), ..Limits::default() };
        let server = tokio::spawn(serve(listener, gate, limits, |_, _| async { Ok(json(&1)) }, std::future::pending()));
        // Each keeps its connection.
        let client =
            |name| Client::new(Settings { tls: Some(tls::client(&files(name)).unwrap()), ..Settings::default() });
        let soon = Duration::from_secs(20);
        let ask = async |client: &Client| {
            let asked = client.send(&address, Method::GET, "/", &[], Bytes::new());
            tokio::time::timeout(soon, asked).await.expect("there is no place").unwrap().status.as_u16()
        };
        let mut kept = Vec::new();
        for _ in 0..6 {
            let alice = client("alice");
            assert_eq!(ask(&alice).await, 200);
            kept.push(alice);
        }
        let more = client("alice");
        assert_eq!((ask(&more).await, ask(&more).await), (429, 429));
        let bob = client("bob");
        assert_eq!(ask(&bob).await, 200);
        assert_eq!(ask(&kept[0]).await, 200);
        kept.clear();
        let until = Instant::now() + soon;
        while ask(&more).await != 200 {
            assert!(Instant::now() < until, "there is place again");
        }
        server.abort();
    }
}
