//! One operation on one chunk: pays, sends, repeats while the outcome is unknown, and hands the answer to the wallet.

use super::crowd::Crowd;
use super::layout::expected_allocation;
use super::purse::{Purse, Request, Unpayable};
use crate::headers::{
    CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, GENERATION_HEADER, OP_HEADER, SETTLED_HEADER, STORE_HEADER,
    VOUCHER_HEADER, checksum,
};
use crate::wire::{ChunkList, ChunkView, WriteAnswer};
use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_net::Role;
use ullage_net::client::{CallError, Client, Reply};
use ullage_voucher::message::{Refusal, StoreToClient};
use ullage_voucher::{Epoch, Node, Op, Piece, Pieces, encode_header};

/// How soon a request is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// A storage server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress {
    /// Its number.
    pub node: Node,
    /// `host:port`.
    pub address: String,
    /// Whether it takes nothing but vouchers addressed to it.
    #[serde(default)]
    pub addressed: bool,
}

/// Why an operation on a chunk failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChunkError {
    /// The store or the bank.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It cannot be paid.
    #[error(transparent)]
    Unpayable(#[from] Unpayable),
    /// No store of that number is known here.
    #[error("no address of store {0} is known")]
    UnknownStore(Node),
    /// The data came damaged.
    #[error("the data from store {0} do not match their checksum")]
    Damaged(Node),
    /// The answer makes no sense.
    #[error("the answer of store {0} is unexpected")]
    Unexpected(Node),
}

impl ChunkError {
    /// Whether the store says that there is no such chunk.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call(error) if error.code() == Some("not_found"))
    }

    /// Whether the store says that the chunk is another version than the one meant.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Call(error) if error.code() == Some("changed"))
    }

    /// Whether the store says that the chunk does not match its checksum.
    pub fn is_damaged_there(&self) -> bool {
        matches!(self, Self::Call(error) if error.code() == Some("damaged"))
    }

    /// Whether the store may have done what it was asked: it was silent, or said that it does not know. Every other refusal comes
    /// before anything is done.
    pub fn leaves_open(&self) -> bool {
        match self {
            Self::Call(CallError::Refused(problem)) => problem.status >= 500 && problem.code != "no_space",
            Self::Call(_) | Self::Unexpected(_) => true,
            Self::Unpayable(_) | Self::UnknownStore(_) | Self::Damaged(_) => false,
        }
    }

    /// Whether the quota is used up.
    pub fn is_over_quota(&self) -> bool {
        use ullage_voucher::message::Denial;
        use ullage_voucher::wallet::Unpaid;
        matches!(self, Self::Unpayable(Unpayable::Refused(Unpaid::Denied(Denial::OverQuota))))
    }
}

/// Chunk operations of one user at all stores.
#[derive(Debug, Clone)]
pub struct Chunks {
    http: Arc<Client>,
    purse: Purse,
    stores: Arc<Vec<StoreAddress>>,
    patience: Duration,
    pays: bool,
}

struct Attempt<'a> {
    store: &'a StoreAddress,
    method: Method,
    path: &'a str,
    body: Bytes,
    need: u64,
    /// It may turn out to allocate nothing: tried without vouchers when none are to be had.
    may_be_free: bool,
}

impl Chunks {
    /// Operations paid from `purse`; each is repeated for up to `patience` while its outcome is unknown or a store waits for
    /// its bank.
    pub fn new(http: Arc<Client>, purse: Purse, stores: Vec<StoreAddress>, patience: Duration) -> Self {
        let http = Arc::new(http.only_to(Role::Store));
        Self { http, purse, stores: Arc::new(stores), patience, pays: true }
    }

    /// Asks stores about requests that were refused or given up, since a copy may still be under way; only then does the
    /// wallet use their vouchers again. What is not answered the wallet asks for again.
    pub(super) async fn cancel(&self) {
        for (op, node, pieces) in self.purse.take_cancels() {
            let Ok(store) = self.store(node) else { continue };
            let headers = [
                (&STORE_HEADER, node.to_string()),
                (&CLIENT_HEADER, format!("{:016x}", self.purse.client().0)),
                (&OP_HEADER, op.to_string()),
                (&VOUCHER_HEADER, encode_header(&pieces)),
            ];
            let reply = self.http.call(&store.address, Method::POST, "/v1/cancel", &headers, Bytes::new()).await;
            if let Ok(answer) = reply.map(|reply| serde_json::from_slice::<WriteAnswer>(&reply.body)) {
                self.purse.answered(answer.map(|answer| answer.outcomes).unwrap_or_default());
            }
        }
    }

    /// For stores with checks off: sends no vouchers.
    #[must_use]
    pub fn without_paying(self) -> Self {
        Self { pays: false, ..self }
    }

    /// The purse.
    pub fn purse(&self) -> &Purse {
        &self.purse
    }

    /// The stores' numbers.
    pub fn nodes(&self) -> Vec<Node> {
        self.stores.iter().map(|store| store.node).collect()
    }

    fn store(&self, node: Node) -> Result<&StoreAddress, ChunkError> {
        self.stores.iter().find(|store| store.node == node).ok_or(ChunkError::UnknownStore(node))
    }

    async fn capability(&self) -> Result<String, ChunkError> {
        Ok(self.purse.capability(&format!("{}/", self.purse.user())).await?)
    }

    /// Creates a chunk, or replaces it as a whole.
    ///
    /// # Errors
    /// When it cannot be paid, or the store refuses or stays silent.
    pub async fn put(
        &self,
        node: Node,
        name: &str,
        data: Bytes,
        replace: bool,
    ) -> Result<Option<ChunkView>, ChunkError> {
        self.put_to(node, &format!("/v1/chunks/{name}?replace={}", u8::from(replace)), data, replace).await
    }

    /// Replaces a chunk if it is still of this generation (0: if there is none); nothing replaces whatever is there.
    ///
    /// # Errors
    /// As [`Self::put`], and when it [was changed](ChunkError::is_changed).
    pub async fn put_over(
        &self,
        node: Node,
        name: &str,
        data: Bytes,
        generation: Option<u64>,
    ) -> Result<Option<ChunkView>, ChunkError> {
        let only = generation.map(|generation| format!("&generation={generation}")).unwrap_or_default();
        self.put_to(node, &format!("/v1/chunks/{name}?replace=1{only}"), data, true).await
    }

    async fn put_to(
        &self,
        node: Node,
        path: &str,
        data: Bytes,
        may_be_free: bool,
    ) -> Result<Option<ChunkView>, ChunkError> {
        let store = self.store(node)?;
        let need = expected_allocation(data.len() as u64);
        self.change(Attempt { store, method: Method::PUT, path, body: data, need, may_be_free }).await
    }

    /// Writes at an offset of an existing chunk.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn write_at(
        &self,
        node: Node,
        name: &str,
        offset: u64,
        data: Bytes,
    ) -> Result<Option<ChunkView>, ChunkError> {
        let store = self.store(node)?;
        let path = format!("/v1/chunks/{name}?offset={offset}");
        let need = expected_allocation(data.len() as u64);
        self.change(Attempt { store, method: Method::PATCH, path: &path, body: data, need, may_be_free: true }).await
    }

    /// Cuts or lengthens.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn truncate(&self, node: Node, name: &str, size: u64) -> Result<Option<ChunkView>, ChunkError> {
        let store = self.store(node)?;
        let path = format!("/v1/chunks/{name}?size={size}");
        self.change(Attempt {
            store,
            method: Method::POST,
            path: &path,
            body: Bytes::new(),
            need: 0,
            may_be_free: false,
        })
        .await
    }

    /// Removes; what was charged comes back as a voucher.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn delete(&self, node: Node, name: &str) -> Result<(), ChunkError> {
        self.delete_version(node, name, None).await
    }

    /// The same, if it is still of this generation.
    ///
    /// # Errors
    /// As [`Self::put_over`].
    pub async fn delete_version(&self, node: Node, name: &str, generation: Option<u64>) -> Result<(), ChunkError> {
        let store = self.store(node)?;
        let only = generation.map(|generation| format!("?generation={generation}")).unwrap_or_default();
        let path = format!("/v1/chunks/{name}{only}");
        self.change(Attempt {
            store,
            method: Method::DELETE,
            path: &path,
            body: Bytes::new(),
            need: 0,
            may_be_free: false,
        })
        .await
        .map(drop)
    }

    async fn change(&self, mut attempt: Attempt<'_>) -> Result<Option<ChunkView>, ChunkError> {
        let mut until = Instant::now() + self.patience;
        let mut pause = Duration::from_millis(10);
        loop {
            self.cancel().await;
            let request = self.purse.begin();
            let op = request.op();
            let paid =
                if self.pays { self.purse.pay(op, attempt.store.node, attempt.need).await } else { Ok(Pieces::new()) };
            let pieces = match paid {
                Ok(pieces) => pieces,
                Err(error) if attempt.may_be_free && gives_none(&error) => {
                    attempt.may_be_free = false;
                    attempt.need = 0;
                    Pieces::new()
                }
                Err(error) => return Err(error.into()),
            };
            let error = match self.send(&attempt, &request, &pieces, &mut until).await {
                Ok(answer) => {
                    self.purse.answered(answer.outcomes);
                    return Ok(answer.chunk);
                }
                Err(error) => error,
            };
            let refusal = refusal_in(&error);
            match refusal {
                None => {
                    let refused = matches!(&error, ChunkError::Call(CallError::Refused(_)));
                    if refused && !error.leaves_open() {
                        self.refused(op, Refusal::NoLease, Epoch(0));
                    }
                    drop(request);
                    self.cancel().await;
                    return Err(error);
                }
                Some((reason, needed, epoch)) => {
                    self.refused(op, reason, epoch);
                    let again = match reason {
                        Refusal::Short if needed > attempt.need => {
                            attempt.need = needed;
                            true
                        }
                        Refusal::NoLease
                        | Refusal::NotYetOpen
                        | Refusal::Expired
                        | Refusal::Reported
                        | Refusal::Future => Instant::now() < until,
                        _ => false,
                    };
                    if !again {
                        self.cancel().await;
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
            }
        }
    }

    /// Tells the wallet that the store did not act: it gets its vouchers back unless they are bad.
    fn refused(&self, op: Op, reason: Refusal, epoch: Epoch) {
        self.purse.answered(vec![StoreToClient::Refused { op, reason, epoch }]);
    }

    /// Sends one request, again with the same number and vouchers while there is no answer.
    async fn send(
        &self,
        attempt: &Attempt<'_>,
        request: &Request<'_>,
        pieces: &[Piece],
        until: &mut Instant,
    ) -> Result<WriteAnswer, ChunkError> {
        let mut headers = Vec::with_capacity(7);
        headers.push((&CAPABILITY_HEADER, self.capability().await?));
        headers.push((&STORE_HEADER, attempt.store.node.to_string()));
        headers.push((&CLIENT_HEADER, format!("{:016x}", self.purse.client().0)));
        headers.push((&OP_HEADER, request.op().to_string()));
        headers.push((&CHECKSUM_HEADER, checksum(&attempt.body)));
        if !pieces.is_empty() {
            headers.push((&VOUCHER_HEADER, encode_header(pieces)));
        }
        if let Some(settled) = request.settled(attempt.store.node) {
            headers.push((&SETTLED_HEADER, settled.to_string()));
        }
        let mut lost = None;
        let mut crowd = Crowd::default();
        loop {
            let Attempt { store, method, path, body, .. } = attempt;
            let begun = Instant::now();
            match self.http.call(&store.address, method.clone(), path, &headers, body.clone()).await {
                Ok(reply) => {
                    return serde_json::from_slice(&reply.body).map_err(|_| ChunkError::Unexpected(store.node));
                }
                Err(error) if crowd.is_why(&error) => crowd.wait(begun, until).await,
                Err(error @ CallError::Transport { .. }) if Instant::now() < *until => {
                    lost = Some(error);
                    tokio::time::sleep(AGAIN).await;
                }
                // A store with checks off does not know a repetition: it may have been this very request that changed it.
                Err(error) if error.code() == Some("changed") => {
                    return Err(at(store, lost.unwrap_or(error)));
                }
                Err(CallError::Refused(problem))
                    if matches!(problem.code.as_str(), "timeout" | "stopped") && Instant::now() < *until =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(at(store, error)),
            }
            // It may have ended meanwhile. Without a bank the one there is may still be good.
            if let Ok(capability) = self.capability().await {
                headers[0].1 = capability;
            }
        }
    }

    async fn get_reply(&self, store: &StoreAddress, path: &str) -> Result<Reply, ChunkError> {
        let mut until = Instant::now() + self.patience;
        let mut crowd = Crowd::default();
        loop {
            let headers = [(&CAPABILITY_HEADER, self.capability().await?), (&STORE_HEADER, store.node.to_string())];
            let begun = Instant::now();
            match self.http.call(&store.address, Method::GET, path, &headers, Bytes::new()).await {
                Err(error) if crowd.is_why(&error) => crowd.wait(begun, &mut until).await,
                Err(error)
                    if (matches!(error, CallError::Transport { .. }) || error.code() == Some("timeout"))
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                other => return other.map_err(|error| at(store, error)),
            }
        }
    }

    /// Reads a part of a chunk.
    ///
    /// # Errors
    /// When the store refuses, or what comes is damaged.
    pub async fn read(&self, node: Node, name: &str, offset: u64, length: u64) -> Result<Bytes, ChunkError> {
        Ok(self.read_reply(node, &format!("/v1/chunks/{name}?offset={offset}&length={length}")).await?.body)
    }

    /// Reads a chunk as a whole, and which generation that is, if the store says so.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_version(&self, node: Node, name: &str) -> Result<(Bytes, Option<u64>), ChunkError> {
        let reply = self.read_reply(node, &format!("/v1/chunks/{name}")).await?;
        let generation = reply.headers.get(&GENERATION_HEADER).and_then(|value| value.to_str().ok());
        Ok((reply.body, generation.and_then(|text| text.parse().ok())))
    }

    async fn read_reply(&self, node: Node, path: &str) -> Result<Reply, ChunkError> {
        let reply = self.get_reply(self.store(node)?, path).await?;
        let stated = reply.headers.get(&CHECKSUM_HEADER).and_then(|value| value.to_str().ok());
        if stated == Some(checksum(&reply.body).as_str()) { Ok(reply) } else { Err(ChunkError::Damaged(node)) }
    }

    /// What is known of a chunk.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn stat(&self, node: Node, name: &str) -> Result<ChunkView, ChunkError> {
        let reply = self.get_reply(self.store(node)?, &format!("/v1/chunks/{name}?stat=1")).await?;
        serde_json::from_slice(&reply.body).map_err(|_| ChunkError::Unexpected(node))
    }

    /// All chunks at one store whose names start with `prefix`.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn list(&self, node: Node, prefix: &str) -> Result<Vec<ChunkView>, ChunkError> {
        let store = self.store(node)?;
        let mut all: Vec<ChunkView> = Vec::new();
        loop {
            let after = all.last().map_or("", |chunk| chunk.name.as_str());
            let path = format!("/v1/chunks?prefix={prefix}&after={after}&limit=1000");
            let reply = self.get_reply(store, &path).await?;
            let page: ChunkList = serde_json::from_slice(&reply.body).map_err(|_| ChunkError::Unexpected(node))?;
            if page.chunks.is_empty() {
                return Ok(all);
            }
            all.extend(page.chunks);
        }
    }
}

/// A refusal with which of the stores it is of.
fn at(store: &StoreAddress, error: CallError) -> ChunkError {
    match error {
        CallError::Refused(mut problem) => {
            problem.message = format!("{} (store {})", problem.message, store.node);
            CallError::Refused(problem).into()
        }
        error @ CallError::Transport { .. } => error.into(),
    }
}

/// Whether the bank answers that there is nothing to be had now.
fn gives_none(error: &Unpayable) -> bool {
    use ullage_voucher::message::Denial;
    use ullage_voucher::wallet::Unpaid;
    matches!(error, Unpayable::Refused(Unpaid::Denied(Denial::OverQuota | Denial::TooMany)))
}

/// Why the vouchers were refused, what would be needed, and in which epoch; nothing if the error is another.
fn refusal_in(error: &ChunkError) -> Option<(Refusal, u64, Epoch)> {
    #[derive(Deserialize)]
    struct Detail {
        reason: Refusal,
        needed_bytes: u64,
        epoch: Epoch,
    }
    let ChunkError::Call(CallError::Refused(problem)) = error else { return None };
    if problem.code != "voucher" {
        return None;
    }
    let detail: Detail = serde_json::from_value(problem.detail.clone()).ok()?;
    Some((detail.reason, detail.needed_bytes, detail.epoch))
}
