//! From requests to the shard members and back. `docs/openapi-bank.json` describes every route; a test compares.

use crate::capability::Capability;
use crate::identity;
use crate::live::Live;
use crate::member::Member;
use crate::server::Shared;
use crate::wire::{
    AccountChange, AccountView, BankStatus, CapabilityRequest, ClientAnswers, ClientBatch, History, MESSAGES_MAX,
    StoreAnswers, StoreBatch,
};
use hyper::body::{Body as _, Incoming};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ullage_net::memory::{Held, Memory};
use ullage_net::{Answer, Peer, Problem, Role, clock, json, pki, read_json};
use ullage_voucher::bank::{BankEvent, Policy};
use ullage_voucher::message::{ClientToBank, StoreToBank};
use ullage_voucher::{Node, User};

/// The API's description, served at `/v1/openapi.json`.
pub const OPENAPI: &str = include_str!("../../../docs/openapi-bank.json");

/// Longest body of a client or administrator.
const BODY_MAX_BYTES: usize = 1 << 20;
/// Longest body of a store: a report names every voucher of an epoch.
const REPORT_MAX_BYTES: usize = 64 << 20;
/// What bodies of stores and administrators may take of memory together; one party's part is a report at least.
const REPORTS_MIB: u32 = 192;
/// And those of users, who so hold up no store.
const BATCHES_MIB: u32 = 64;
/// Longest wait for mail.
const LISTEN_MAX: Duration = Duration::from_secs(30);

/// What bodies may take of memory.
pub(crate) struct Bodies {
    users: Memory,
    others: Memory,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        let users = Memory::new(BATCHES_MIB, BODY_MAX_BYTES as u64);
        Self { users, others: Memory::new(REPORTS_MIB, REPORT_MAX_BYTES as u64) }
    }

    async fn take(&self, peer: &Peer, bytes: u64) -> Result<Held, Problem> {
        let memory = if peer.role == Role::User { &self.users } else { &self.others };
        memory.take(&peer.name, bytes).await
    }
}

fn forbidden(message: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", message)
}

fn bad(message: impl ToString) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", message)
}

fn no_user(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown_user", format!("there is no account of {name}"))
}

/// Answers one request.
pub(crate) async fn route(shared: Arc<Shared>, request: Request<Incoming>, peer: Peer) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (&head.method, parts.as_slice()) {
        (&Method::POST, ["v1", "messages"]) => messages(&shared, &peer, head.uri.query(), body).await,
        (&Method::POST, ["v1", "stores", "messages"]) => from_store(&shared, &peer, body).await,
        (&Method::POST, ["v1", "stores", node, "exclude"]) => exclude(&shared, &peer, node, head.uri.query()).await,
        (&Method::GET, ["v1", "users"]) => users(&shared, &peer, head.uri.query()).await,
        (&Method::GET, ["v1", "users", name]) => {
            may_see(&peer, name)?;
            account(&shared, name).await.map(|view| json(&view))
        }
        (&Method::PUT, ["v1", "users", name]) => change(&shared, &peer, name, body).await,
        (&Method::DELETE, ["v1", "users", name]) => remove(&shared, &peer, name).await,
        (&Method::GET, ["v1", "users", name, "history"]) => history(&shared, &peer, name).await,
        (&Method::GET, ["v1", "findings"]) => findings(&shared, &peer, head.uri.query()).await,
        (&Method::GET, ["v1", "status"]) => {
            Ok(json(&BankStatus { shards: shared.members.iter().map(|member| member.status()).collect() }))
        }
        (&Method::GET, ["v1", "openapi.json"]) => {
            Ok(json(&serde_json::from_str::<serde_json::Value>(OPENAPI).unwrap_or_default()))
        }
        _ => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no_route",
            "there is no such path or method; see /v1/openapi.json",
        )),
    }
}

fn member_of(shared: &Shared, user: User) -> Result<&Arc<Member>, Problem> {
    let shard = identity::shard_of(user, shared.settings.shards);
    shared.members.get(shard as usize).ok_or_else(|| bad("no such shard"))
}

/// Reads a body, within what bodies may take of memory together: only once it is known that this party may send one.
async fn receive<T: DeserializeOwned>(
    shared: &Shared,
    peer: &Peer,
    body: Incoming,
    most: usize,
) -> Result<(T, Held), Problem> {
    // What is longer is refused where it is read.
    let length = body.size_hint().upper().unwrap_or(u64::MAX).min(most as u64);
    let held = shared.memory.take(peer, length).await?;
    Ok((read_json(body, most).await?, held))
}

async fn messages(shared: &Shared, peer: &Peer, query: Option<&str>, body: Incoming) -> Result<Answer, Problem> {
    if peer.role != Role::User {
        return Err(forbidden("vouchers are for users: show a user's certificate or token"));
    }
    let (batch, held) = receive::<ClientBatch>(shared, peer, body, BODY_MAX_BYTES).await?;
    // What is left of it is small, and may wait for mail.
    drop(held);
    if !identity::is_client_of(batch.client, &peer.name) {
        return Err(forbidden("this client number is not one of yours"));
    }
    if batch.messages.len() > MESSAGES_MAX || batch.capabilities.len() > MESSAGES_MAX {
        return Err(bad(format!("more than {MESSAGES_MAX} messages in one request")));
    }
    if !batch.messages.is_empty() && !shared.rate.allows_many(&peer.name, batch.messages.len(), Instant::now()) {
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", "more messages than this bank allows"));
    }
    let own = identity::user(&peer.name);
    for message in &batch.messages {
        let (ClientToBank::Request { user, .. } | ClientToBank::Return { user, .. }) = message;
        if *user != own {
            return Err(forbidden(
                "vouchers of another user: stores charge the owner, who alone can pay; started with --charge-by writer they charge who writes",
            ));
        }
    }
    let member = member_of(shared, own)?;
    let capabilities =
        batch.capabilities.iter().map(|wanted| capability(shared, peer, wanted)).collect::<Result<_, _>>()?;
    let asked = !batch.messages.is_empty();
    let mut messages = if asked { member.client(batch.client, batch.messages).await? } else { Vec::new() };
    let listen = query.and_then(|query| query.strip_prefix("listen_ms=")).and_then(|text| text.parse().ok());
    let patience = listen.map_or(Duration::ZERO, Duration::from_millis).min(LISTEN_MAX);
    messages.extend(member.mail(own, batch.client, if asked { Duration::ZERO } else { patience }).await?);
    let account = if batch.account { account(shared, &peer.name).await.ok() } else { None };
    let revokes = matches!(shared.settings.policy, Policy::Revocation { .. });
    Ok(json(&ClientAnswers { messages, capabilities, revokes, account }))
}

fn capability(shared: &Shared, peer: &Peer, wanted: &CapabilityRequest) -> Result<String, Problem> {
    let (owner, _) = wanted.prefix.split_once('/').ok_or_else(|| bad("a prefix is OWNER/..."))?;
    if owner != peer.name {
        return Err(forbidden("only the owner gives capabilities for what is the owner's"));
    }
    let user = wanted.user.clone().unwrap_or_else(|| peer.name.clone());
    if !pki::is_name(&user) {
        return Err(bad("that is no user's name"));
    }
    let expires = clock::now_secs() + shared.settings.capability_life.as_secs();
    let capability =
        Capability { user, owner: owner.to_owned(), prefix: wanted.prefix.clone(), rights: wanted.rights, expires };
    Ok(capability.sign(shared.settings.capability_key.key()))
}

async fn from_store(shared: &Shared, peer: &Peer, body: Incoming) -> Result<Answer, Problem> {
    let node = identity::node_of(&peer.name).filter(|_| peer.role == Role::Store);
    let node = node.ok_or_else(|| forbidden("only stores report: show the certificate of STORE-NUMBER"))?;
    let (batch, _held) = receive::<StoreBatch>(shared, peer, body, REPORT_MAX_BYTES).await?;
    for message in &batch.messages {
        let named = match message {
            StoreToBank::Renew(renew) => renew.store,
            StoreToBank::Report(report) => report.store,
            StoreToBank::Early { store, .. } => *store,
        };
        if named != node {
            return Err(forbidden("a store speaks for itself only"));
        }
    }
    if batch.messages.len() > MESSAGES_MAX {
        return Err(bad(format!("more than {MESSAGES_MAX} messages in one request")));
    }
    let shards = shared.members.len();
    if batch.shards != 0 && batch.shards as usize != shards {
        let message = format!(
            "the banks spread users over {shards} shards, this store over {}: start it with --shards {shards}",
            batch.shards
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, "shards", message).with_detail(shards));
    }
    let member = shared.members.get(batch.shard as usize).ok_or_else(|| bad("no such shard"))?;
    Ok(json(&StoreAnswers { messages: member.store(batch.messages).await? }))
}

fn must_be_admin(peer: &Peer) -> Result<(), Problem> {
    if peer.role == Role::Admin { Ok(()) } else { Err(forbidden("this is for administrators")) }
}

fn may_see(peer: &Peer, name: &str) -> Result<(), Problem> {
    let own = peer.role == Role::User && peer.name == name;
    if own { Ok(()) } else { must_be_admin(peer) }
}

fn view(live: &Live, user: User) -> Option<AccountView> {
    let (settled, issued) = live.core.parts(user)?;
    let removed = live.core.is_removed(user)?;
    if removed && settled == 0 && issued == 0 {
        return None;
    }
    Some(AccountView {
        user: live.memory.name(user).unwrap_or("?").to_owned(),
        quota_bytes: live.core.quota(user)?,
        settled_bytes: settled as i64,
        issued_bytes: issued,
        authorized_bytes: live.core.authorized(user).unwrap_or(settled + i128::from(issued)) as i64,
        blocked: live.core.is_blocked(user)?,
        removed,
        epoch: live.core.epoch(),
        horizon: live.core.horizon(),
    })
}

async fn account(shared: &Shared, name: &str) -> Result<AccountView, Problem> {
    let user = identity::user(name);
    member_of(shared, user)?.read(|live| view(live, user)).await?.ok_or_else(|| no_user(name))
}

/// The shards that a request is about: the one it names, or all, which this bank then has to lead.
fn named<'a>(shared: &'a Shared, query: Option<&str>) -> Result<&'a [Arc<Member>], Problem> {
    let Some(shard) = query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("shard="))) else {
        return Ok(&shared.members);
    };
    let of = |shard: usize| shared.members.get(shard..=shard);
    shard.parse().ok().and_then(of).ok_or_else(|| bad("no such shard"))
}

async fn users(shared: &Shared, peer: &Peer, query: Option<&str>) -> Result<Answer, Problem> {
    must_be_admin(peer)?;
    let mut all = Vec::new();
    for member in named(shared, query)? {
        let views = |live: &Live| live.core.users().filter_map(|user| view(live, user)).collect::<Vec<_>>();
        all.extend(member.read(views).await?);
    }
    all.sort_by(|a, b| a.user.cmp(&b.user));
    Ok(json(&all))
}

async fn change(shared: &Shared, peer: &Peer, name: &str, body: Incoming) -> Result<Answer, Problem> {
    must_be_admin(peer)?;
    if !pki::is_name(name) {
        return Err(bad("that is no user's name"));
    }
    let (change, _held) = receive::<AccountChange>(shared, peer, body, BODY_MAX_BYTES).await?;
    let user = identity::user(name);
    let mut events = Vec::new();
    if let Some(quota) = change.quota_bytes {
        events.push(BankEvent::SetQuota { user, quota });
    }
    if let Some(blocked) = change.blocked {
        events.push(BankEvent::SetBlocked { user, blocked });
    }
    let member = member_of(shared, user)?;
    member.step(|live, _, outcome| live.set_name(user, name, outcome), events).await?;
    account(shared, name).await.map(|view| json(&view))
}

async fn remove(shared: &Shared, peer: &Peer, name: &str) -> Result<Answer, Problem> {
    must_be_admin(peer)?;
    let user = identity::user(name);
    let view = account(shared, name).await?;
    member_of(shared, user)?.step(|_, _, _| {}, vec![BankEvent::RemoveUser { user }]).await?;
    Ok(json(&view))
}

async fn history(shared: &Shared, peer: &Peer, name: &str) -> Result<Answer, Problem> {
    may_see(peer, name)?;
    let user = identity::user(name);
    let past = |live: &Live| live.memory.name(user).map(|_| live.memory.past(user));
    let entries = member_of(shared, user)?.read(past).await?.ok_or_else(|| no_user(name))?;
    Ok(json(&History { user: name.to_owned(), entries }))
}

async fn findings(shared: &Shared, peer: &Peer, query: Option<&str>) -> Result<Answer, Problem> {
    must_be_admin(peer)?;
    let mut all = Vec::new();
    for member in named(shared, query)? {
        all.extend(member.read(|live| live.memory.findings()).await?);
    }
    all.sort_by_key(|finding| finding.at_ms);
    Ok(json(&all))
}

async fn exclude(shared: &Shared, peer: &Peer, node: &str, query: Option<&str>) -> Result<Answer, Problem> {
    must_be_admin(peer)?;
    let members = named(shared, query)?;
    let store = Node(node.parse().map_err(|_| bad("a store is named by its number"))?);
    let mut known = false;
    for member in members {
        known |= member.read(|live| live.core.knows_store(store)).await?;
    }
    if !known {
        let message =
            format!("there is no store {node} here, or it counts no more; `ullage bank status` names those that do");
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    for member in members {
        member.step(|_, _, _| {}, vec![BankEvent::Exclude { store }]).await?;
    }
    Ok(json(&BankStatus { shards: members.iter().map(|member| member.status()).collect() }))
}
