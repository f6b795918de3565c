//! From requests to the chunk store and back.

use super::accounts::{Accounts, Unpaid};
use super::config::StoreSettings;
use super::explain::explain;
use super::read::read;
use super::request::{
    authorize, bad, check_body, chunk_name, client_and_op, expected, header, is_meant, number, payment, pieces,
    problem, query,
};
use crate::chunk::{
    Access, CHUNK_MAX_BYTES, ChunkInfo, ChunkName, ChunkStore, Done, Expected, INLINE_MAX_BYTES, OpError,
};
use crate::wire::{ChunkList, ChunkView, StoreStatus, WriteAnswer};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use std::sync::Arc;
use ullage_bank::capability::Rights;
use ullage_net::memory::{Held, Memory};
use ullage_net::{Answer, Peer, Problem, Role, json, read_body};
use ullage_voucher::Client;
use ullage_voucher::message::StoreToClient;

/// Most names in one answer.
const LIST_MAX: usize = 10_000;

/// The most that one request takes of memory: a body, and the chunk that it goes into.
pub(crate) const REQUEST_MAX_BYTES: u64 = 2 * CHUNK_MAX_BYTES;

pub(crate) struct Shared {
    pub(crate) settings: StoreSettings,
    pub(crate) chunks: Arc<ChunkStore<Accounts>>,
    pub(crate) memory: Memory,
}

pub(crate) const READ: Rights = Rights { read: true, write: false, delete: false, list: false };
const WRITE: Rights = Rights { read: false, write: true, delete: false, list: false };
const DELETE: Rights = Rights { read: false, write: false, delete: true, list: false };
const LIST: Rights = Rights { read: false, write: false, delete: false, list: true };

type Outcome = Result<Done<Vec<StoreToClient>>, OpError<Unpaid>>;

/// Answers one request.
pub(crate) async fn route(shared: Arc<Shared>, request: Request<Incoming>, peer: Peer) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/v1/status" && head.method == Method::GET {
        return status(&shared);
    }
    // Whoever else has a certificate may be called as a user is.
    if peer.role != Role::User {
        let message = "chunks are for users: show a user's certificate or token";
        return Err(problem(StatusCode::FORBIDDEN, "forbidden", message));
    }
    is_meant(&head, shared.settings.node)?;
    if path == "/v1/chunks" && head.method == Method::GET {
        return list(&shared, &head, &peer).await;
    }
    if path == "/v1/cancel" && head.method == Method::POST {
        return cancel(&shared, &head, &peer).await;
    }
    let name =
        path.strip_prefix("/v1/chunks/").ok_or_else(|| problem(StatusCode::NOT_FOUND, "no_route", "no such path"))?;
    let name = chunk_name(name)?;
    match head.method {
        Method::GET => read(shared, head, peer, name).await,
        Method::PUT => write(shared, head, body, peer, name, Kind::Put).await,
        Method::PATCH => write(shared, head, body, peer, name, Kind::Patch).await,
        Method::POST => write(shared, head, body, peer, name, Kind::Truncate).await,
        Method::DELETE => delete(shared, head, peer, name).await,
        _ => Err(problem(StatusCode::METHOD_NOT_ALLOWED, "no_route", "no such method")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Patch,
    Truncate,
}

pub(crate) async fn off_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request failed; see the server's log"))
}

impl Kind {
    /// What a request with a body of `length` bytes takes of memory: some changes are made in a copy of the chunk.
    fn memory_bytes(self, length: u64) -> u64 {
        match self {
            Self::Patch if length > INLINE_MAX_BYTES as u64 => length + CHUNK_MAX_BYTES,
            Self::Truncate => CHUNK_MAX_BYTES,
            Self::Put | Self::Patch => length,
        }
    }
}

/// Takes the memory for a request before its body is read; it is given back when the request is done.
async fn receive(
    shared: &Shared,
    peer: &Peer,
    head: &Parts,
    body: Incoming,
    kind: Kind,
) -> Result<(Bytes, Held), Problem> {
    if kind == Kind::Truncate {
        return Ok((Bytes::new(), shared.memory.take(&peer.name, kind.memory_bytes(0)).await?));
    }
    let length: u64 = header(head, &CONTENT_LENGTH)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| problem(StatusCode::LENGTH_REQUIRED, "length", "a body's length must be stated"))?;
    if length > CHUNK_MAX_BYTES {
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is larger than a chunk can be"));
    }
    let memory = shared.memory.take(&peer.name, kind.memory_bytes(length)).await?;
    let bytes = read_body(body, CHUNK_MAX_BYTES as usize).await?;
    check_body(head, &bytes)?;
    Ok((bytes, memory))
}

async fn write(
    shared: Arc<Shared>,
    head: Parts,
    body: Incoming,
    peer: Peer,
    name: ChunkName,
    kind: Kind,
) -> Result<Answer, Problem> {
    let settings = &shared.settings;
    let capability = authorize(&head, &peer, settings.capability_key.key(), name.as_str(), WRITE)?;
    let existing = shared.chunks.stat(&name);
    // Whose it is decides who is charged: a chunk that exists stays its owner's.
    let owner: Arc<str> =
        existing.as_ref().map_or_else(|| Arc::from(capability.owner.as_str()), |info| info.owner.clone());
    let payment = payment(&head, &peer, &owner, settings.charge_by)?;
    let request = (payment.client, payment.op);
    // Before anything else can be wrong with a repetition, its body too.
    if let Some(earlier) = earlier(&shared, request).await? {
        return Ok(json(&WriteAnswer {
            outcomes: earlier,
            chunk: existing.as_ref().map(|info| ChunkView::new(&name, info)),
        }));
    }
    if let Some(info) = &existing {
        let access = if kind == Kind::Put { Access::Remove } else { Access::Change };
        permitted(&name, info, &peer.name, access)?;
    }
    let offset = number(&head, "offset")?;
    let size = number(&head, "size")?;
    let replace = expected(&head, (query(&head, "replace") == Some("1")).into())?;
    let mode = match query(&head, "mode") {
        Some(text) => {
            let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o666);
            Some(mode.ok_or_else(|| bad("bad_request", "a mode is octal, at most 666"))?)
        }
        None => None,
    };
    let (data, memory) = receive(&shared, &peer, &head, body, kind).await?;
    let chunks = Arc::clone(&shared.chunks);
    let chunk = name.clone();
    // The work goes on when the connection ends: so it is what holds the memory.
    let result: Outcome = match kind {
        Kind::Put => {
            off_loop(move || {
                let _held = memory;
                chunks.put(&chunk, &peer.name, &owner, &payment.payer, mode, &data, replace, &payment)
            })
            .await?
        }
        Kind::Patch => {
            let offset = offset.ok_or_else(|| bad("bad_request", "an offset is needed"))?;
            off_loop(move || {
                let _held = memory;
                chunks.write_at(&chunk, &peer.name, &payment.payer, offset, &data, &payment)
            })
            .await?
        }
        Kind::Truncate => {
            let size = size.ok_or_else(|| bad("bad_request", "a size is needed"))?;
            off_loop(move || {
                let _held = memory;
                chunks.truncate(&chunk, &peer.name, &payment.payer, size, &payment)
            })
            .await?
        }
    };
    finish(&shared, &name, request, result).await
}

/// What a repetition is answered. The accounts know it before it is durable: the first request may still wait for that.
async fn earlier(shared: &Shared, (client, op): (Client, u64)) -> Result<Option<Vec<StoreToClient>>, Problem> {
    let found = shared.chunks.with_ledger(|accounts| (None, accounts.earlier(client, op))).map_err(explain)?;
    if found.is_some() {
        wait_durable(shared).await?;
    }
    Ok(found)
}

pub(crate) async fn wait_durable(shared: &Shared) -> Result<(), Problem> {
    let chunks = Arc::clone(&shared.chunks);
    off_loop(move || chunks.wait_durable()).await?.map_err(explain)
}

/// A client asks what became of a request that it will not repeat.
async fn cancel(shared: &Shared, head: &Parts, peer: &Peer) -> Result<Answer, Problem> {
    let (client, op) = client_and_op(head, peer)?;
    let pieces = pieces(head)?;
    let chunks = Arc::clone(&shared.chunks);
    let outcomes = off_loop(move || chunks.with_ledger(|accounts| accounts.cancel(client, op, &pieces)))
        .await?
        .map_err(explain)?;
    Ok(json(&WriteAnswer { outcomes, chunk: None }))
}

async fn delete(shared: Arc<Shared>, head: Parts, peer: Peer, name: ChunkName) -> Result<Answer, Problem> {
    let capability = authorize(&head, &peer, shared.settings.capability_key.key(), name.as_str(), DELETE)?;
    let payment = payment(&head, &peer, &capability.owner, shared.settings.charge_by)?;
    let request = (payment.client, payment.op);
    if let Some(outcomes) = earlier(&shared, request).await? {
        return Ok(json(&WriteAnswer { outcomes, chunk: None }));
    }
    if let Some(info) = shared.chunks.stat(&name) {
        permitted(&name, &info, &peer.name, Access::Remove)?;
    }
    let expected = expected(&head, Expected::Anything)?;
    let chunks = Arc::clone(&shared.chunks);
    let chunk = name.clone();
    let result = off_loop(move || chunks.delete_expected(&chunk, &peer.name, expected, &payment)).await?;
    finish(&shared, &name, request, result).await
}

async fn finish(shared: &Shared, name: &ChunkName, request: (Client, u64), result: Outcome) -> Result<Answer, Problem> {
    let error = match result {
        Ok(done) => {
            let chunk = done.info.as_ref().map(|info| ChunkView::new(name, info));
            return Ok(json(&WriteAnswer { outcomes: done.receipt, chunk }));
        }
        Err(error) => error,
    };
    let outcomes = match error {
        OpError::Refused(Unpaid::Earlier(outcomes)) => {
            wait_durable(shared).await?;
            outcomes
        }
        // Whatever stands in the way of a repetition now, what it paid for was done.
        error => earlier(shared, request).await?.ok_or_else(|| explain(error))?,
    };
    let chunk = shared.chunks.stat(name).map(|info| ChunkView::new(name, &info));
    Ok(json(&WriteAnswer { outcomes, chunk }))
}

/// Looks before a body, or memory for an answer, is taken; what counts is looked at once more below the chunk's lock.
pub(crate) fn permitted(name: &ChunkName, info: &ChunkInfo, by: &str, access: Access) -> Result<(), Problem> {
    if info.permits(by, access) { Ok(()) } else { Err(explain(OpError::Forbidden(name.clone()))) }
}

/// What is said to be there, or not to be, a power cut must not take back.
async fn list(shared: &Shared, head: &Parts, peer: &Peer) -> Result<Answer, Problem> {
    let prefix = query(head, "prefix").unwrap_or_default();
    authorize(head, peer, shared.settings.capability_key.key(), prefix, LIST)?;
    let limit = number(head, "limit")?.map_or(LIST_MAX, |limit| (limit as usize).min(LIST_MAX));
    let chunks = shared.chunks.list(prefix, query(head, "after").unwrap_or_default(), limit);
    wait_durable(shared).await?;
    Ok(json(&ChunkList { chunks: chunks.iter().map(|(name, info)| ChunkView::new(name, info)).collect() }))
}

fn status(shared: &Shared) -> Result<Answer, Problem> {
    let look = |accounts: &mut Accounts| (accounts.is_open(), accounts.epochs(), accounts.incarnations());
    let (open, epochs, incarnations) = shared.chunks.with_ledger(|accounts| (None, look(accounts))).map_err(explain)?;
    Ok(json(&StoreStatus {
        node: shared.settings.node.0,
        open,
        epochs,
        incarnations,
        charged_bytes: shared.chunks.charged_bytes(),
        recount: shared.chunks.recount().clone(),
    }))
}
