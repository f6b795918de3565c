//! A client: connections kept open per server, every request with a time-out.

use crate::patience::{Patient, while_moving};
use crate::{ErrorBody, Peer, Problem, Role, clock, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderName;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Why there is no good answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server could not be reached, or broke off: whether it acted is unknown.
    #[error("talk to {server}: {reason}")]
    Transport {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The server answered with an error.
    #[error(transparent)]
    Refused(#[from] Problem),
}

impl CallError {
    /// The server's word for the problem, if it is the server's.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Transport { .. } => None,
            Self::Refused(problem) => Some(&problem.code),
        }
    }

    /// Whether the same request would be refused again, whenever it came.
    pub fn is_final(&self) -> bool {
        let rate = StatusCode::TOO_MANY_REQUESTS.as_u16();
        matches!(self, Self::Refused(problem) if (400..500).contains(&problem.status) && problem.status != rate)
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// How a client shows who it is, and how long it waits.
#[derive(Clone)]
pub struct Settings {
    /// Certificates both ways; without it connections are plain.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// A bearer token.
    pub token: Option<String>,
    /// To connect, and then to an answer; or to the next part of what is sent or comes, where that takes longer.
    pub timeout: Duration,
    /// Longest answer accepted.
    pub answer_max_bytes: usize,
    /// What a server's certificate must entitle to, if connections are not plain: any of the authority's is good for the host.
    pub role: Option<Role>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tls: None, token: None, timeout: Duration::from_secs(60), answer_max_bytes: 64 << 20, role: None }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("tls", &self.tls.is_some())
            .field("token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// How long a connection may take to say why it failed.
const WHY_MAX: Duration = Duration::from_secs(1);

/// What follows where each end speaks in another way.
const WANTS_TLS: &str = ": it may want TLS, and here no certificates are named";
const SPEAKS_PLAINLY: &str = ": it may be a server with --plain, and here certificates are named";

/// An open connection, and how it ends.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Bytes both ways.
    moved: Arc<AtomicU64>,
    end: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    /// Why a request failed. The request may say only that it was cancelled: a server that does not take our certificate, say, tells the
    /// connection.
    async fn why(self, error: &hyper::Error) -> String {
        drop(self.sender);
        match tokio::time::timeout(WHY_MAX, self.end).await {
            Ok(Ok(Err(end))) => reasons(&end),
            _ => reasons(error),
        }
    }
}

/// An error and what caused it.
fn reasons(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Refuses a server of another role before anything is sent to it.
fn check_role(role: Role, peer: Option<Peer>) -> Result<(), String> {
    match peer {
        Some(peer) if peer.role == role => Ok(()),
        Some(peer) => Err(format!("it shows the certificate of {} (role {}), and is no {role}", peer.name, peer.role)),
        None => Err(format!("its certificate has no name and role: it is no {role}")),
    }
}

/// Talks to any number of servers, named `host:port`.
#[derive(Debug, Default)]
pub struct Client {
    settings: Settings,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
}

impl Client {
    /// A client without connections.
    pub fn new(settings: Settings) -> Self {
        Self { settings, idle: Mutex::new(HashMap::new()) }
    }

    /// The same, with connections of its own, to servers of this role only: each server has a certificate, and a store is no bank.
    #[must_use]
    pub fn only_to(&self, role: Role) -> Self {
        Self::new(Settings { role: Some(role), ..self.settings.clone() })
    }

    /// The same, with connections of its own, for answers that may be as long as this.
    #[must_use]
    pub fn for_answers(&self, max_bytes: usize) -> Self {
        Self::new(Settings { answer_max_bytes: max_bytes, ..self.settings.clone() })
    }

    /// One request, one answer of any status.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(
        &self,
        server: &str,
        method: Method,
        path: &str,
        headers: &[(&HeaderName, String)],
        body: Bytes,
    ) -> Result<Reply, CallError> {
        let failed = |reason: String| CallError::Transport { server: server.to_owned(), reason };
        let patience = self.settings.timeout;
        let silent = || failed(format!("no answer within {patience:?}"));
        loop {
            let kept = self.idle.lock().get_mut(server).and_then(Vec::pop);
            let was_kept = kept.is_some();
            let connection = match kept {
                Some(connection) if connection.sender.is_closed() => continue,
                Some(connection) => connection,
                None => {
                    let connected = tokio::time::timeout(patience, self.connect(server)).await;
                    connected.map_err(|_| silent())?.map_err(failed)?
                }
            };
            let mut request = Request::builder().method(method.clone()).uri(path).header("host", server);
            request = request.header(clock::TIME_HEADER, clock::now_ms());
            if let Some(token) = &self.settings.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            let request = request.body(Full::new(body.clone())).map_err(|error| failed(error.to_string()))?;
            let moved = Arc::clone(&connection.moved);
            // Large, and so would be every future of who asks.
            let exchange = Box::pin(self.exchange(server, connection, was_kept, request));
            let reply = while_moving(exchange, &moved, patience).await.ok_or_else(silent)?;
            if let Some(reply) = reply.map_err(failed)? {
                return Ok(reply);
            }
        }
    }

    /// One request over one connection; nothing if that was closed before anything was sent.
    async fn exchange(
        &self,
        server: &str,
        mut connection: Connection,
        was_kept: bool,
        request: Request<Full<Bytes>>,
    ) -> Result<Option<Reply>, String> {
        // A kept connection may just have been closed by the server; if nothing was sent, another one serves.
        if connection.sender.ready().await.is_err() && was_kept {
            return Ok(None);
        }
        let response = match connection.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(error) if was_kept && error.message().is_some() => return Ok(None),
            Err(error) => {
                let error = error.into_error();
                let hint = if self.settings.tls.is_none() && error.is_parse() { WANTS_TLS } else { "" };
                return Err(connection.why(&error).await + hint);
            }
        };
        let (head, incoming) = response.into_parts();
        let body = Limited::new(incoming, self.settings.answer_max_bytes).collect().await;
        let body = body.map_err(|error| reasons(&*error))?.to_bytes();
        if !connection.sender.is_closed() {
            self.idle.lock().entry(server.to_owned()).or_default().push(connection);
        }
        Ok(Some(Reply { status: head.status, headers: head.headers, body }))
    }

    async fn connect(&self, server: &str) -> Result<Connection, String> {
        let stream = TcpStream::connect(server).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let stream = Patient::new(stream, self.settings.timeout);
        let moved = stream.moved();
        match &self.settings.tls {
            None => Self::handshake(stream, moved).await,
            Some(config) => {
                let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
                let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
                let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
                let stream = stream.map_err(|error| {
                    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                    let hint =
                        if matches!(cause, Some(rustls::Error::InvalidMessage(_))) { SPEAKS_PLAINLY } else { "" };
                    format!("{error}{hint}")
                })?;
                if let Some(role) = self.settings.role {
                    check_role(role, tls::shown_on(stream.get_ref().1).map(|shown| shown.peer))?;
                }
                Self::handshake(stream, moved).await
            }
        }
    }

    async fn handshake<S>(stream: S, moved: Arc<AtomicU64>) -> Result<Connection, String>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        Ok(Connection { sender, moved, end: tokio::spawn(connection) })
    }

    /// As [`Self::send`], with every status but success turned into the server's problem.
    ///
    /// # Errors
    /// When there is no answer or it is a refusal.
    pub async fn call(
        &self,
        server: &str,
        method: Method,
        path: &str,
        headers: &[(&HeaderName, String)],
        body: Bytes,
    ) -> Result<Reply, CallError> {
        let reply = self.send(server, method, path, headers, body).await?;
        if reply.status.is_success() {
            return Ok(reply);
        }
        let problem = serde_json::from_slice::<ErrorBody>(&reply.body).map_or_else(
            |_| Problem::new(reply.status, "http", String::from_utf8_lossy(&reply.body)),
            |body| Problem { status: reply.status.as_u16(), ..body.error },
        );
        Err(problem.into())
    }

    /// JSON in, JSON out.
    ///
    /// # Errors
    /// As [`Self::call`], and when the answer is something else.
    pub async fn json<A: Serialize, B: DeserializeOwned>(
        &self,
        server: &str,
        method: Method,
        path: &str,
        body: Option<&A>,
    ) -> Result<B, CallError> {
        let failed = |error: serde_json::Error| CallError::Transport {
            server: server.to_owned(),
            reason: format!("its answer is unexpected: {error}"),
        };
        let bytes = match body {
            Some(body) => Bytes::from(serde_json::to_vec(body).map_err(failed)?),
            None => Bytes::new(),
        };
        let reply = self.call(server, method, path, &[], bytes).await?;
        serde_json::from_slice(&reply.body).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Gate, Limits, serve};
    use crate::{json, pki};

    /// Regression: the one was told of an invalid version of HTTP, the other of a corrupt message.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_speaks_plainly_to_tls_and_the_other_way_round_is_told() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "bank", Role::Bank, &["127.0.0.1".into()], 1).unwrap();
        let files = tls::Files::in_directory(directory.path(), "bank");
        let client = |tls| Client::new(Settings { tls, ..Settings::default() });
        let gates = [Gate { tls: Some(tls::server(&files).unwrap()), token_key: None }, Gate::default()];
        let clients = [client(None), client(Some(tls::client(&files).unwrap()))];
        for ((gate, client), says) in gates.into_iter().zip(clients).zip([WANTS_TLS, SPEAKS_PLAINLY]) {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server =
                serve(listener, gate, Limits::default(), |_, _| async { Ok(json(&1)) }, std::future::pending());
            let server = tokio::spawn(server);
            let error = client.send(&address, Method::GET, "/", &[], Bytes::new()).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            server.abort();
        }
    }

    /// Any store on a bank's host could answer in its place: its certificate is of the same authority, and good for the host.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_of_another_role_is_sent_nothing() {
        let directory = tempfile::tempdir().unwrap();
        pki::create_authority(directory.path(), 1).unwrap();
        pki::issue(directory.path(), "store-1", Role::Store, &["127.0.0.1".into()], 1).unwrap();
        pki::issue(directory.path(), "alice", Role::User, &[], 1).unwrap();
        let files = |name| tls::Files::in_directory(directory.path(), name);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate { tls: Some(tls::server(&files("store-1")).unwrap()), token_key: None };
        let server = serve(listener, gate, Limits::default(), |_, _| async { Ok(json(&1)) }, std::future::pending());
        let server = tokio::spawn(server);
        let client = Client::new(Settings { tls: Some(tls::client(&files("alice")).unwrap()), ..Settings::default() });
        let ask = async |role| client.only_to(role).send(&address, Method::GET, "/", &[], Bytes::new()).await;
        assert_eq!(ask(Role::Store).await.unwrap().status, StatusCode::OK);
        let error = ask(Role::Bank).await.unwrap_err().to_string();
        assert!(error.contains("store-1 (role store)") && error.contains("no bank"), "{error}");
        server.abort();
    }
}
