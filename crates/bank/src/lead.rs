//! What the leader of a shard has, and how it carries out what has become durable.

use crate::answers::Answers;
use crate::awaited::Waiting;
use crate::engine::{Engine, EngineError};
use crate::live::{Live, Outcome};
use crate::mail::Mail;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};
use ullage_voucher::bank::BankAction;
use ullage_voucher::message::BankToClient;
use ullage_voucher::{Client, Op, User};

#[derive(Default)]
pub(crate) struct Post {
    pub(crate) waiting: Waiting,
    /// What else clients are to be told.
    pub(crate) mail: Mail,
}

/// The leader's parts; gone when the lead is lost.
pub(crate) struct Lead {
    pub(crate) live: Mutex<Live>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) post: Mutex<Post>,
    pub(crate) posted: Notify,
    shard: u32,
    /// Epochs after which vouchers are of no use.
    expiry: u64,
    answers: Arc<Answers>,
}

impl Lead {
    pub(crate) fn new(live: Live, engine: Arc<dyn Engine>, shard: u32, expiry: u64, answers: Arc<Answers>) -> Self {
        let (live, post, posted) = (Mutex::new(live), Mutex::default(), Notify::new());
        Self { live, engine, post, posted, shard, expiry, answers }
    }

    /// It is another's now: who waits for an answer is to ask there, and what users are over is seen to there.
    pub(crate) fn end(&self) {
        self.answers.leave(self);
        self.post.lock().waiting.clear();
        self.posted.notify_waiters();
    }

    /// Waits until what was appended is durable, and carries it out, also when whoever asked for it goes away meanwhile: it concerns others
    /// too, and nobody would tell them later.
    pub(crate) async fn settle(
        self: Arc<Self>,
        outcome: Outcome,
        durable: oneshot::Receiver<Result<(), EngineError>>,
    ) -> Result<Vec<BankAction>, EngineError> {
        Settling { lead: self, rest: Some((outcome, durable)), is_apart: false }.wait().await
    }

    /// The site's program has ended well: what it was told of one user it is not told again.
    pub(crate) fn settled(&self, user: User, bytes: u64) {
        let mut live = self.live.lock();
        let writes = live.settled(user, bytes);
        // Else it is told once more, which does no harm.
        self.engine.append(&writes, Box::new(|_| ()));
    }

    pub(crate) fn carry_out(self: &Arc<Self>, actions: &[BankAction]) {
        for action in actions {
            match action {
                BankAction::ToClient(client, message) => self.deliver(*client, message),
                BankAction::Found(finding) => {
                    let view = self.live.lock().kept(finding);
                    tracing::warn!(shard = self.shard, finding = ?view, "cheating");
                    self.answers.tell(&view);
                }
                BankAction::Hook { user, excess } => {
                    let name = self.live.lock().memory.name(*user).map(str::to_owned);
                    self.answers.thin(*user, name, *excess, Arc::downgrade(self));
                }
                BankAction::Epoch { epoch, .. } => {
                    self.post.lock().mail.age(self.expiry);
                    tracing::debug!(shard = self.shard, %epoch, "epoch");
                }
                BankAction::Excluded { store, fence } => tracing::warn!(%store, %fence, "a store is given up"),
                BankAction::Dropped { store } => tracing::info!(%store, "a store no longer counts"),
                BankAction::Lapsed { store } => tracing::warn!(
                    shard = self.shard,
                    %store,
                    "a store has had no lease for an epoch: nothing is reconciled before it is back, or given up (`ullage bank exclude`)"
                ),
                BankAction::Back { store } => tracing::info!(shard = self.shard, %store, "a store is back"),
                BankAction::Recovered => tracing::info!(shard = self.shard, "the rebuilt bank knows all again"),
                // The caller's own answer.
                BankAction::ToStore(..) => {}
            }
        }
    }

    /// To whoever waits for it; what answers the caller of this very step finds nobody waiting and is returned to it.
    fn deliver(&self, client: Client, message: &BankToClient) {
        let mut post = self.post.lock();
        match op_of(message) {
            Some(op) => post.waiting.answer((client, op), message),
            None => {
                post.mail.put(user_of(message), client, message);
                self.posted.notify_waiters();
            }
        }
    }
}

/// What was appended, and is to be carried out when it is durable. Where the handler that waits for that is dropped, a task of its own goes on:
/// one for every step would cost each of them.
struct Settling {
    lead: Arc<Lead>,
    rest: Option<(Outcome, oneshot::Receiver<Result<(), EngineError>>)>,
    is_apart: bool,
}

impl Settling {
    async fn wait(mut self) -> Result<Vec<BankAction>, EngineError> {
        let Some((_, durable)) = &mut self.rest else { return Ok(Vec::new()) };
        let durable = durable.await.unwrap_or(Err(EngineError::Deposed));
        let outcome = self.rest.take().map(|(outcome, _)| outcome);
        durable?;
        let actions = outcome.map(|outcome| outcome.actions).unwrap_or_default();
        self.lead.carry_out(&actions);
        Ok(actions)
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        // That task is dropped with the runtime only.
        let rest = self.rest.take().filter(|_| !self.is_apart);
        if let (Some(rest), Ok(runtime)) = (rest, tokio::runtime::Handle::try_current()) {
            let apart = Self { lead: Arc::clone(&self.lead), rest: Some(rest), is_apart: true };
            runtime.spawn(apart.wait());
        }
    }
}

pub(crate) fn op_of(message: &BankToClient) -> Option<Op> {
    match message {
        BankToClient::Granted { op, .. } | BankToClient::Denied { op, .. } | BankToClient::Returned { op, .. } => {
            Some(*op)
        }
        BankToClient::Revoke { .. } => None,
    }
}

fn user_of(message: &BankToClient) -> User {
    match message {
        BankToClient::Granted { user, .. }
        | BankToClient::Denied { user, .. }
        | BankToClient::Returned { user, .. }
        | BankToClient::Revoke { user } => *user,
    }
}

/// While it is there, a client is told all that is put into its box.
pub(crate) struct Listening<'a>(&'a Lead, User, Client);

impl<'a> Listening<'a> {
    pub(crate) fn new(lead: &'a Lead, user: User, client: Client) -> Self {
        lead.post.lock().mail.listen(user, client);
        Self(lead, user, client)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.post.lock().mail.unlisten(self.1, self.2);
    }
}
