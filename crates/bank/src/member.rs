//! One shard in one process: leads it or waits to. Every answer leaves only after what it rests on is durable.

use crate::answers::Answers;
use crate::awaited::Awaited;
use crate::config::{BankSettings, EngineChoice};
use crate::engine::{Embedded, Engine, EngineError};
use crate::lead::{Lead, Listening, op_of};
use crate::live::{Live, Outcome};
use crate::rows::Rows;
use crate::wire::{ShardStatus, StoreView};
use hyper::StatusCode;
use parking_lot::Mutex;
#[cfg(feature = "etcd")]
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use ullage_net::{Problem, clock};
use ullage_voucher::bank::{BankAction, BankEvent, Policy};
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToBank};
use ullage_voucher::{Client, Epoch, Incarnation, Micros, Node, Op, User};

/// How often time is told to the core, at most.
const TICK: Duration = Duration::from_millis(20);

/// How long a bank that ends waits until etcd has heard of it.
const LEAVES_MAX: Duration = Duration::from_secs(2);

/// How long who handed the lead over waits before he would have it again: others look four times a second.
#[cfg(feature = "etcd")]
const YIELDS: Duration = Duration::from_secs(3);

/// Reasons for failed campaigns that are not said again.
#[cfg(feature = "etcd")]
const REASONS_MAX: usize = 32;

/// One shard in this process.
pub(crate) struct Member {
    pub(crate) shard: u32,
    settings: Arc<BankSettings>,
    origin: Instant,
    lead: Mutex<Option<Arc<Lead>>>,
    leader: Mutex<Option<String>>,
    /// Why campaigns failed since this process last led: each reason is said once, and members of etcd may differ in theirs.
    #[cfg(feature = "etcd")]
    in_vain: Mutex<BTreeSet<String>>,
    /// The accounts were looked at, and can be led with these settings.
    #[cfg(feature = "etcd")]
    looked: AtomicBool,
    /// The lead was left to another, who is let take it first.
    #[cfg(feature = "etcd")]
    yields: AtomicBool,
    stopped: AtomicBool,
    /// Held by a campaign.
    campaigning: tokio::sync::Mutex<()>,
    failed: mpsc::UnboundedSender<EngineError>,
    answers: Arc<Answers>,
}

/// Gives the lead up, and waits until another bank can have it, for a moment.
async fn leave(engine: &dyn Engine) {
    engine.give_up();
    let until = Instant::now() + LEAVES_MAX;
    while !engine.has_left() && Instant::now() < until {
        tokio::time::sleep(TICK).await;
    }
}

impl Member {
    /// Why the bank must end is sent to `failed`.
    pub(crate) fn new(
        shard: u32,
        settings: Arc<BankSettings>,
        answers: Arc<Answers>,
        failed: mpsc::UnboundedSender<EngineError>,
    ) -> Self {
        Self {
            shard,
            settings,
            origin: Instant::now(),
            lead: Mutex::new(None),
            leader: Mutex::new(None),
            #[cfg(feature = "etcd")]
            in_vain: Mutex::default(),
            #[cfg(feature = "etcd")]
            looked: AtomicBool::new(false),
            #[cfg(feature = "etcd")]
            yields: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            campaigning: tokio::sync::Mutex::default(),
            failed,
            answers,
        }
    }

    /// Opens the embedded engine, or starts campaigning; then keeps time until the process ends.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        if let EngineChoice::Embedded { directory, durability } = &self.settings.engine {
            let (engine, rows) = Embedded::open(&directory.join(self.shard.to_string()), *durability)?;
            self.take_lead(Arc::new(engine), rows).await?;
        } else if cfg!(not(feature = "etcd")) {
            let why =
                "this ullage is built without it; build with protoc installed, or keep the accounts in a directory";
            return Err(EngineError::Etcd(why.to_owned()));
        }
        tokio::spawn(Arc::clone(self).keep());
        Ok(())
    }

    /// Gives the lead up for good. Done when another bank can have it, or after a moment: else it could only when the lease runs out.
    pub(crate) async fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let lead = self.lead.lock().take();
        match lead {
            Some(lead) => leave(&*lead.engine).await,
            // A campaign sees that it is over, and leaves what it has won.
            None => drop(tokio::time::timeout(LEAVES_MAX, self.campaigning.lock()).await),
        }
    }

    /// Whether it acts as the leader: one that has just won the lead reads the accounts first.
    #[cfg(feature = "etcd")]
    pub(crate) fn acts(&self) -> bool {
        self.current().is_some()
    }

    /// Leaves the lead to a bank that waits for it. What is under way ends first. Done when that one had time to take it; whether there was a
    /// lead to leave.
    #[cfg(feature = "etcd")]
    pub(crate) async fn hand_over(&self) -> bool {
        let lead = {
            let mut lead = self.lead.lock();
            self.yields.store(lead.is_some(), Ordering::SeqCst);
            lead.take()
        };
        let Some(lead) = lead else { return false };
        tracing::info!(shard = self.shard, "hands the lead over");
        *self.leader.lock() = None;
        let (sender, receiver) = oneshot::channel();
        lead.engine.append(&[], Box::new(move |result| drop(sender.send(result))));
        // One that fails has lost the lead.
        let _ = receiver.await;
        lead.engine.give_up();
        lead.end();
        tokio::time::sleep(YIELDS).await;
        self.yields.store(false, Ordering::SeqCst);
        true
    }

    /// Ends the bank, which can go on no more.
    fn fail(&self, error: EngineError) {
        if !self.stopped.swap(true, Ordering::SeqCst) {
            // A server that has ended listens no more.
            let _ = self.failed.send(error);
        }
    }

    async fn keep(self: Arc<Self>) {
        while !self.stopped.load(Ordering::SeqCst) {
            match (self.current(), &self.settings.engine) {
                (Some(_), _) => {
                    // A failure shows at the next request; there is nobody to tell here.
                    let _ = self.step(|_, _, _| {}, vec![BankEvent::Tick]).await;
                    tokio::time::sleep(TICK).await;
                }
                (None, EngineChoice::Embedded { .. }) => return self.fail(EngineError::Failed),
                #[cfg(feature = "etcd")]
                (None, EngineChoice::Etcd(etcd)) => {
                    if !self.yields.load(Ordering::SeqCst) {
                        self.campaign(etcd).await;
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                #[cfg(not(feature = "etcd"))]
                (None, EngineChoice::Etcd(_)) => return,
            }
        }
    }

    #[cfg(feature = "etcd")]
    async fn campaign(&self, etcd: &crate::engine::EtcdSettings) {
        let _running = self.campaigning.lock().await;
        if self.stopped.load(Ordering::SeqCst) {
            return;
        }
        // Who could not lead is not to wait for it: he would be handed what he cannot use. Neither changes while the process runs.
        if !self.looked.load(Ordering::SeqCst)
            && let Ok(rows) = crate::engine::look(etcd, self.shard).await
        {
            self.looked.store(true, Ordering::SeqCst);
            if let Err(error @ (EngineError::Load(_) | EngineError::Shards { .. })) =
                Live::load(&self.settings, self.shard, rows)
            {
                return self.fail(error);
            }
        }
        let heard = |leader: Option<String>| {
            *self.leader.lock() = leader;
            !self.stopped.load(Ordering::SeqCst)
        };
        match crate::engine::campaign(etcd, self.shard, &heard).await {
            Ok((engine, rows)) => {
                tracing::info!(shard = self.shard, "leads");
                self.in_vain.lock().clear();
                let engine: Arc<dyn Engine> = Arc::new(engine);
                match self.take_lead(Arc::clone(&engine), rows).await {
                    Ok(()) => {}
                    // No other attempt would fare better, and it keeps the lead from those that can.
                    Err(error @ (EngineError::Load(_) | EngineError::Shards { .. })) => self.fail(error),
                    Err(error) => tracing::error!(shard = self.shard, %error, "cannot take the lead"),
                }
                if self.stopped.load(Ordering::SeqCst) {
                    leave(&*engine).await;
                }
            }
            Err(_) if self.stopped.load(Ordering::SeqCst) => {}
            Err(error) => {
                let error = error.to_string();
                let mut said = self.in_vain.lock();
                if said.len() >= REASONS_MAX {
                    said.clear();
                }
                if said.insert(error.clone()) {
                    tracing::warn!(shard = self.shard, error, "campaigns in vain, and goes on in silence");
                }
            }
        }
    }

    async fn take_lead(&self, engine: Arc<dyn Engine>, rows: Rows) -> Result<(), EngineError> {
        let (live, outcome) = Live::load(&self.settings, self.shard, rows)?;
        let (sender, receiver) = oneshot::channel();
        engine.append(&outcome.writes, Box::new(move |result| drop(sender.send(result))));
        receiver.await.unwrap_or(Err(EngineError::Deposed))?;
        let (expiry, answers) = (self.settings.params.expiry(), Arc::clone(&self.answers));
        let lead = Arc::new(Lead::new(live, engine, self.shard, expiry, answers));
        {
            let mut place = self.lead.lock();
            // Who stops takes the lead away that is there by then.
            if self.stopped.load(Ordering::SeqCst) {
                lead.engine.give_up();
                return Ok(());
            }
            *place = Some(Arc::clone(&lead));
        }
        // What was found before is told once more: whoever led then may have ended before it was.
        lead.carry_out(&outcome.actions);
        if let EngineChoice::Etcd(etcd) = &self.settings.engine {
            *self.leader.lock() = Some(etcd.address.clone());
        }
        Ok(())
    }

    /// The lead, unless it was lost.
    fn current(&self) -> Option<Arc<Lead>> {
        let mut lead = self.lead.lock();
        if lead.as_ref().is_some_and(|lead| !lead.engine.is_leading()) {
            tracing::warn!(shard = self.shard, "no longer leads");
            lead.take().inspect(|lead| lead.end());
        }
        lead.clone()
    }

    fn lead(&self) -> Result<Arc<Lead>, Problem> {
        self.current().ok_or_else(|| self.not_leading())
    }

    fn not_leading(&self) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_leading", "another bank leads this shard, or none yet")
            .with_detail(self.leader.lock().clone())
    }

    pub(crate) fn now(&self) -> Micros {
        Micros(self.origin.elapsed().as_micros() as u64)
    }

    /// Steps, makes durable, carries out what does not concern the caller; returns all actions.
    pub(crate) async fn step(
        &self,
        prepare: impl FnOnce(&mut Live, Micros, &mut Outcome),
        events: Vec<BankEvent>,
    ) -> Result<Vec<BankAction>, Problem> {
        let lead = self.lead()?;
        let (sender, receiver) = oneshot::channel();
        let quiet = events.iter().all(|event| matches!(event, BankEvent::Tick));
        let outcome = {
            let mut live = lead.live.lock();
            let now = self.now();
            let mut outcome = Outcome::default();
            prepare(&mut live, now, &mut outcome);
            for event in events {
                live.step(event, now, &mut outcome);
            }
            if quiet && outcome.writes.is_empty() && outcome.actions.is_empty() {
                return Ok(Vec::new());
            }
            lead.engine.append(&outcome.writes, Box::new(move |result| drop(sender.send(result))));
            if lead.engine.snapshot_due() {
                lead.engine.snapshot(&live.rows);
            }
            outcome
        };
        lead.settle(outcome, receiver).await.map_err(|error| {
            tracing::warn!(shard = self.shard, %error, "a commit fails; nothing leaves");
            self.not_leading()
        })
    }

    /// A client's messages; waits for answers that the core queues, as long as its policy says.
    pub(crate) async fn client(
        &self,
        client: Client,
        messages: Vec<ClientToBank>,
    ) -> Result<Vec<BankToClient>, Problem> {
        let ops: Vec<Op> = messages
            .iter()
            .map(|message| match message {
                ClientToBank::Request { op, .. } | ClientToBank::Return { op, .. } => *op,
            })
            .collect();
        let lead = self.lead()?;
        let queues = matches!(self.settings.policy, Policy::Revocation { .. });
        let asked = if queues { &ops[..] } else { &[] };
        let awaited: HashMap<Op, Awaited<'_>> =
            asked.iter().map(|op| (*op, Awaited::new(&lead, (client, *op)))).collect();
        let events = messages.into_iter().map(|message| BankEvent::FromClient(client, message)).collect();
        let actions = self.step(|_, _, _| {}, events).await?;
        let mut answers: HashMap<Op, BankToClient> = HashMap::new();
        for action in actions {
            if let BankAction::ToClient(to, message) = action
                && let Some(op) = op_of(&message).filter(|_| to == client)
            {
                answers.insert(op, message);
            }
        }
        let patience = match self.settings.policy {
            Policy::Revocation { timeout, .. } => Duration::from_micros(timeout.0) + Duration::from_secs(1),
            Policy::Limiting { .. } => Duration::ZERO,
        };
        for (op, mut awaited) in awaited {
            if let std::collections::hash_map::Entry::Vacant(e) = answers.entry(op)
                && let Some(message) = awaited.answer(patience).await
            {
                e.insert(message);
            }
        }
        Ok(ops.iter().filter_map(|op| answers.remove(op)).collect())
    }

    /// What else this client is to be told; waits up to `patience` for something.
    pub(crate) async fn mail(
        &self,
        user: User,
        client: Client,
        patience: Duration,
    ) -> Result<Vec<BankToClient>, Problem> {
        let lead = self.lead()?;
        let _listening = Listening::new(&lead, user, client);
        let until = tokio::time::Instant::now() + patience;
        loop {
            let posted = lead.posted.notified();
            tokio::pin!(posted);
            posted.as_mut().enable();
            let mail = lead.post.lock().mail.take(user, client);
            if let Some(mail) = mail {
                return Ok(mail);
            }
            if !lead.engine.is_leading() {
                return Err(self.not_leading());
            }
            if tokio::time::timeout_at(until, posted).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    /// A store's messages.
    pub(crate) async fn store(&self, messages: Vec<StoreToBank>) -> Result<Vec<BankToStore>, Problem> {
        let events = messages.into_iter().map(BankEvent::FromStore).collect();
        let actions = self.step(|_, _, _| {}, events).await?;
        Ok(actions
            .into_iter()
            .filter_map(|action| match action {
                BankAction::ToStore(_, message) => Some(message),
                _ => None,
            })
            .collect())
    }

    /// Reads the leader's state, confirmed as current.
    pub(crate) async fn read<R>(&self, look: impl FnOnce(&Live) -> R) -> Result<R, Problem> {
        let mut found = None;
        self.step(|live, _, _| found = Some(look(live)), Vec::new()).await?;
        found.ok_or_else(|| self.not_leading())
    }

    pub(crate) fn status(&self) -> ShardStatus {
        let lead = self.current();
        let mut status = ShardStatus {
            shard: self.shard,
            leading: lead.is_some(),
            leader: self.leader.lock().clone(),
            epoch: None,
            horizon: None,
            stores: Vec::new(),
            recovering: false,
            awaited: Vec::new(),
        };
        if let Some(lead) = lead {
            let live = lead.live.lock();
            status.epoch = Some(live.core.epoch());
            status.horizon = Some(live.core.horizon());
            let now = self.now();
            let view = |(node, life, reported, given_up): (Node, Incarnation, Epoch, bool)| StoreView {
                node: node.0,
                incarnation: life.0,
                reported,
                given_up,
                leased: live.core.holds_lease(node, life, now),
                heard_at_ms: live.core.heard(node, life).map(|heard| clock::now_ms() - now.since(heard).0 / 1000),
            };
            status.stores = live.core.stores().map(view).collect();
            status.recovering = live.core.is_recovering();
            status.awaited = live.core.awaited().map(|node| node.0).collect();
        }
        status
    }
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
