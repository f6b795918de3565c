//! A wallet with a connection: turns the wallet's actions into requests to the banks and into payments.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use ullage_bank::capability::Rights;
use ullage_bank::client::BankClient;
use ullage_bank::identity;
use ullage_bank::wire::{CapabilityRequest, ClientBatch};
use ullage_net::client::CallError;
use ullage_net::{clock, keyfile};
use ullage_voucher::message::{ClientToBank, StoreToClient};
use ullage_voucher::wallet::{RequestPolicy, Unpaid, Wallet, WalletAction, WalletConfig, WalletEvent, WalletOutput};
use ullage_voucher::{Client, Micros, Node, Op, Piece, Pieces};

/// A capability is asked for again this long before it ends.
const RENEW_BEFORE_SECS: u64 = 60;

/// A store is told what is settled once per so many requests.
const TELL_AFTER: u64 = 64;

/// How a purse behaves.
#[derive(Debug, Clone)]
pub struct PurseSettings {
    /// The user; must be who the bank's client authenticates as.
    pub user: String,
    /// How much is asked for, and when.
    pub policy: RequestPolicy,
    /// How long a payment waits for vouchers before it is given up.
    pub patience: Duration,
    /// Whether to wait for what the bank says of its own accord from the beginning; where the bank revokes, that is done anyhow.
    pub listen: bool,
    /// Stores that take nothing but vouchers addressed to them.
    pub addressed: BTreeSet<Node>,
}

/// Why there are no vouchers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unpayable {
    /// The bank or the store refuses.
    #[error("{}", describe(.0))]
    Refused(Unpaid),
    /// The bank does not hear the request at all.
    #[error(transparent)]
    Unheard(CallError),
    /// No bank answered in time.
    #[error("no bank gave vouchers within {0:?}{why}", why = .1.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Silent(Duration, Option<Box<CallError>>),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as the error's text takes it")]
fn describe(unpaid: &Unpaid) -> String {
    use ullage_voucher::message::{Denial, Refusal};
    match unpaid {
        Unpaid::Denied(Denial::OverQuota) => "quota exceeded".into(),
        Unpaid::Denied(Denial::UnknownUser) => "the bank has no account of this user".into(),
        Unpaid::Denied(Denial::Blocked) => "the bank gives this user no more vouchers".into(),
        Unpaid::Denied(Denial::Recovering) => "the bank was rebuilt and does not know yet what is used".into(),
        Unpaid::Denied(Denial::TooMany) => {
            "the bank remembers no more requests of this user until epochs pass (its --user-max)".into()
        }
        Unpaid::Denied(Denial::Invalid) => "the bank finds the request senseless".into(),
        Unpaid::Refused(Refusal::ForeignAudience) => {
            "the store takes only vouchers addressed to it: `addressed = true` beside its address in the configuration asks \
             for such (and a bank of version 0.2 or earlier gives none)"
                .into()
        }
        Unpaid::Refused(reason) => format!("the store refuses the vouchers: {reason:?}"),
    }
}

type Paid = Result<Pieces, Unpayable>;

struct Inner {
    wallet: Wallet,
    /// What the wallet wants done: kept for its memory.
    out: WalletOutput,
    paying: FxHashMap<Op, oneshot::Sender<Paid>>,
    to_bank: Vec<ClientToBank>,
    to_cancel: Vec<(Op, Node, Vec<Piece>)>,
    next_op: u64,
    /// Requests to stores that the application waits for.
    open: BTreeSet<Op>,
    /// What each store was last told to be settled.
    told: HashMap<Node, Op>,
    capabilities: HashMap<String, (String, u64)>,
    /// When a capability was last asked for in vain, for which prefix, and why.
    unheard: Option<(Instant, String, CallError)>,
    bank_requests: u64,
    listens: bool,
}

/// One user's vouchers at this client.
#[derive(Clone)]
pub struct Purse {
    bank: BankClient,
    settings: Arc<PurseSettings>,
    client: Client,
    origin: Instant,
    inner: Arc<Mutex<Inner>>,
    /// Held by who asks for a capability: all others wait for that one answer, also if it is none.
    asking: Arc<tokio::sync::Mutex<()>>,
    work: Arc<Notify>,
    tasks: Arc<Tasks>,
}

/// Ends the background tasks with the last purse.
struct Tasks(Mutex<Vec<tokio::task::JoinHandle<()>>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in self.0.lock().drain(..) {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Purse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Purse").field("user", &self.settings.user).field("client", &self.client).finish_non_exhaustive()
    }
}

impl Purse {
    /// An empty purse of a new client. Needs a running tokio.
    pub fn new(bank: BankClient, settings: PurseSettings) -> Self {
        let client = identity::client(&settings.user, keyfile::random_u64() as u32);
        let origin = Instant::now();
        let config = WalletConfig {
            client,
            user: identity::user(&settings.user),
            policy: settings.policy,
            addressed: settings.addressed.clone(),
            retry_after: Micros::from_secs(2),
        };
        // A random start, so that a client number met twice by chance does not repeat requests.
        let first_op = Op(keyfile::random_u64() >> 16);
        let inner = Inner {
            wallet: Wallet::new(config, first_op, Micros(0)),
            out: WalletOutput::default(),
            paying: FxHashMap::default(),
            to_bank: Vec::new(),
            to_cancel: Vec::new(),
            next_op: keyfile::random_u64() >> 16,
            open: BTreeSet::new(),
            told: HashMap::new(),
            capabilities: HashMap::new(),
            unheard: None,
            bank_requests: 0,
            listens: false,
        };
        let purse = Self {
            bank,
            settings: Arc::new(settings),
            client,
            origin,
            inner: Arc::new(Mutex::new(inner)),
            asking: Arc::default(),
            work: Arc::new(Notify::new()),
            tasks: Arc::new(Tasks(Mutex::new(Vec::new()))),
        };
        purse.start();
        purse
    }

    /// Which client it is, to banks and stores.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.settings.user
    }

    /// How many requests were sent to the banks.
    pub fn bank_requests(&self) -> u64 {
        self.inner.lock().bank_requests
    }

    /// Bytes of vouchers on hand.
    pub fn on_hand(&self) -> u64 {
        self.inner.lock().wallet.on_hand()
    }

    /// A new request to a store.
    pub(super) fn begin(&self) -> Request<'_> {
        let mut inner = self.inner.lock();
        inner.next_op += 1;
        let op = Op(inner.next_op);
        inner.open.insert(op);
        Request { purse: self, op }
    }

    /// Does what the wallet wants. What comes of a request to pay that the wallet decides at once is given back.
    fn step(&self, inner: &mut Inner, event: WalletEvent) -> Option<Paid> {
        let own = if let WalletEvent::Spend { op, .. } = event { Some(op) } else { None };
        let now = Micros(self.origin.elapsed().as_micros() as u64);
        let mut out = std::mem::take(&mut inner.out);
        inner.wallet.step(event, now, &mut out);
        let mut at_once = None;
        let mut decided = |inner: &mut Inner, op: Op, paid: Paid| {
            if own == Some(op) {
                at_once = Some(paid);
            } else if let Some(waiting) = inner.paying.remove(&op) {
                // A payer that stopped waiting has given the payment up.
                let _ = waiting.send(paid);
            }
        };
        for action in out.actions.drain(..) {
            match action {
                WalletAction::Pay { op, pieces, .. } => decided(inner, op, Ok(pieces)),
                WalletAction::CannotPay { op, reason } => decided(inner, op, Err(Unpayable::Refused(reason))),
                WalletAction::ToBank(message) => {
                    inner.to_bank.push(message);
                    self.work.notify_one();
                }
                WalletAction::Cancel { op, store, pieces } => inner.to_cancel.push((op, store, pieces)),
            }
        }
        inner.out = out;
        at_once
    }

    /// Vouchers for a request to `store` that allocates at most `need` bytes.
    ///
    /// # Errors
    /// When the bank gives none, or does not answer in time.
    pub async fn pay(&self, op: Op, store: Node, need: u64) -> Result<Pieces, Unpayable> {
        if need == 0 {
            return Ok(Pieces::new());
        }
        let receiver = {
            let mut inner = self.inner.lock();
            // Mostly there is enough on hand, and nothing to wait for.
            if let Some(paid) = self.step(&mut inner, WalletEvent::Spend { op, store, need }) {
                return paid;
            }
            let (sender, receiver) = oneshot::channel();
            inner.paying.insert(op, sender);
            receiver
        };
        match tokio::time::timeout(self.settings.patience, receiver).await {
            Ok(Ok(paid)) => paid,
            Ok(Err(_)) | Err(_) => {
                self.give_up(&mut self.inner.lock(), op);
                Err(Unpayable::Silent(self.settings.patience, self.bank.trouble().map(Box::new)))
            }
        }
    }

    /// A store's answers to a request.
    pub fn answered(&self, outcomes: Vec<StoreToClient>) {
        let mut inner = self.inner.lock();
        for outcome in outcomes {
            self.step(&mut inner, WalletEvent::FromStore(outcome));
        }
    }

    /// Requests whose stores are to be asked what became of them, each with its store and vouchers; the answer goes to [`Self::answered`].
    pub fn take_cancels(&self) -> Vec<(Op, Node, Vec<Piece>)> {
        std::mem::take(&mut self.inner.lock().to_cancel)
    }

    /// A request will not be repeated, even if its fate is unknown; nothing if the wallet knows what became of it.
    fn give_up(&self, inner: &mut Inner, op: Op) {
        inner.paying.remove(&op);
        self.step(inner, WalletEvent::GiveUp { op });
    }

    /// Ends all waiting for vouchers that will never come.
    fn end_waiting(&self, error: &CallError) {
        let mut inner = self.inner.lock();
        for (op, waiting) in std::mem::take(&mut inner.paying) {
            self.give_up(&mut inner, op);
            // Who stopped waiting has given the payment up.
            let _ = waiting.send(Err(Unpayable::Unheard(error.clone())));
        }
    }

    /// Gives back to the bank what is left, so that other clients of the user can have it at once: for the end of an
    /// application. What cannot be delivered within `patience` is of use again when it has expired and is reconciled.
    pub async fn give_back(&self, patience: Duration) {
        self.step(&mut self.inner.lock(), WalletEvent::GiveBack);
        let until = Instant::now() + patience;
        while self.inner.lock().wallet.is_returning() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The capability for a prefix of the own chunks, all rights. Asked for together with whatever else goes to the bank.
    ///
    /// # Errors
    /// When no bank answers or it refuses.
    pub async fn capability(&self, prefix: &str) -> Result<String, CallError> {
        if let Some(capability) = self.capability_at_hand(prefix) {
            return Ok(capability);
        }
        let began = Instant::now();
        let _one = self.asking.lock().await;
        // Whoever held it before has asked, maybe for this one.
        if let Some(capability) = self.capability_at_hand(prefix) {
            return Ok(capability);
        }
        // Each of those who wait would else be as patient again, one after the other.
        if let Some((at, of, error)) = &self.inner.lock().unheard
            && *at > began
            && of == prefix
        {
            return Err(error.clone());
        }
        let messages = std::mem::take(&mut self.inner.lock().to_bank);
        self.exchange(messages, Some(prefix)).await
    }

    /// The stores that count at the bank of this user.
    ///
    /// # Errors
    /// When none says that it leads.
    pub(super) async fn stores(&self) -> Result<BTreeSet<Node>, CallError> {
        let stores = self.bank.stores(identity::user(&self.settings.user)).await?;
        Ok(stores.into_iter().filter(|store| !store.given_up).map(|store| Node(store.node)).collect())
    }

    /// Whether a bank ever gave one: without, stores were asked for nothing.
    pub(super) fn had_capability(&self) -> bool {
        !self.inner.lock().capabilities.is_empty()
    }

    fn capability_at_hand(&self, prefix: &str) -> Option<String> {
        let inner = self.inner.lock();
        let (capability, expires) = inner.capabilities.get(prefix)?;
        (clock::now_secs() + RENEW_BEFORE_SECS < *expires).then(|| capability.clone())
    }

    /// One request to the banks: messages, and a capability for a prefix, which is given back (else nothing is).
    async fn exchange(&self, messages: Vec<ClientToBank>, prefix: Option<&str>) -> Result<String, CallError> {
        let wanted = |prefix: &str| CapabilityRequest { user: None, prefix: prefix.to_owned(), rights: Rights::ALL };
        let capabilities = prefix.map(wanted).into_iter().collect();
        let batch = ClientBatch { client: self.client, messages, capabilities, account: false };
        self.inner.lock().bank_requests += 1;
        let answers = self.bank.messages(&batch).await.inspect_err(|error| {
            if let Some(prefix) = prefix {
                self.inner.lock().unheard = Some((Instant::now(), prefix.to_owned(), error.clone()));
            }
        })?;
        if answers.revokes {
            self.listen();
        }
        let mut inner = self.inner.lock();
        let capability = answers.capabilities.into_iter().next().unwrap_or_default();
        if let Some(prefix) = prefix {
            // Life is the bank's to choose; what it is can be read without the key.
            let expires = expiry_of(&capability).unwrap_or_default();
            inner.capabilities.insert(prefix.to_owned(), (capability.clone(), expires));
        }
        for message in answers.messages {
            self.step(&mut inner, WalletEvent::FromBank(message));
        }
        Ok(capability)
    }

    fn start(&self) {
        let sender = self.clone_without_tasks();
        self.tasks.0.lock().push(tokio::spawn(async move { sender.send_loop().await }));
        if self.settings.listen {
            self.listen();
        }
    }

    /// Hears what the bank says of its own accord, from now on.
    fn listen(&self) {
        if !std::mem::replace(&mut self.inner.lock().listens, true) {
            let listener = self.clone_without_tasks();
            self.tasks.0.lock().push(tokio::spawn(async move { listener.listen_loop().await }));
        }
    }

    /// For the tasks themselves: they must not keep themselves alive.
    fn clone_without_tasks(&self) -> Self {
        Self { tasks: Arc::new(Tasks(Mutex::new(Vec::new()))), ..self.clone() }
    }

    /// Sends what the wallet wants sent, as soon as it does; everything that gathers meanwhile goes together. Whoever pays needs a
    /// capability next: where there is none, it is asked for in the same request.
    async fn send_loop(&self) {
        let own = format!("{}/", self.settings.user);
        loop {
            // A request that is not answered is asked for again by the wallet's tick.
            let _ = tokio::time::timeout(Duration::from_millis(100), self.work.notified()).await;
            let asking = self.asking.lock().await;
            let messages = {
                let mut inner = self.inner.lock();
                self.step(&mut inner, WalletEvent::Tick);
                std::mem::take(&mut inner.to_bank)
            };
            if messages.is_empty() {
                continue;
            }
            let prefix = self.capability_at_hand(&own).is_none().then_some(own.as_str());
            let asking = prefix.is_some().then_some(asking);
            let answered = self.exchange(messages, prefix).await;
            drop(asking);
            if let Err(error) = answered {
                if error.is_final() {
                    self.end_waiting(&error);
                } else {
                    tracing::warn!(%error, "the bank gives no vouchers now");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Sends what comes back to the bank, for which others wait: the loop that sends all else may itself be waiting, for an answer that
    /// those others keep back. What is not heard is sent again with the wallet's tick.
    async fn send_returns(&self) {
        loop {
            let is_return = |message: &mut ClientToBank| matches!(message, ClientToBank::Return { .. });
            let returns: Vec<_> = self.inner.lock().to_bank.extract_if(.., is_return).collect();
            if returns.is_empty() {
                return;
            }
            if let Err(error) = self.exchange(returns, None).await {
                tracing::warn!(%error, "the bank does not take vouchers back now");
                return;
            }
        }
    }

    async fn listen_loop(&self) {
        loop {
            let batch = ClientBatch { client: self.client, ..ClientBatch::default() };
            match self.bank.listen(&batch, 10_000).await {
                Ok(answers) => {
                    {
                        let mut inner = self.inner.lock();
                        for message in answers.messages {
                            self.step(&mut inner, WalletEvent::FromBank(message));
                        }
                    }
                    self.send_returns().await;
                }
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// The `expires` in a capability; its signature is for stores to check.
fn expiry_of(capability: &str) -> Option<u64> {
    let (statement, _) = capability.split_once('.')?;
    let statement: ullage_bank::capability::Capability = serde_json::from_slice(&keyfile::bytes_of(statement)?).ok()?;
    Some(statement.expires)
}

/// A request to a store, from its number on until nobody waits for it any more; dropped without an answer it is given up.
#[derive(Debug)]
pub(super) struct Request<'a> {
    purse: &'a Purse,
    op: Op,
}

impl Request<'_> {
    /// Its number, the same for repetitions.
    pub(super) fn op(&self) -> Op {
        self.op
    }

    /// Which requests are settled, when it is time to tell `store` so that it need not remember them: all below this number.
    pub(super) fn settled(&self, store: Node) -> Option<Op> {
        let mut inner = self.purse.inner.lock();
        let told = inner.told.get(&store).copied();
        if told.is_some_and(|told| self.op.0 < told.0 + TELL_AFTER) {
            return None;
        }
        let waited_for = inner.open.first().copied().unwrap_or(self.op);
        let settled = inner.wallet.oldest_open().map_or(waited_for, |open| open.min(waited_for));
        inner.told.insert(store, settled);
        told.is_none_or(|told| settled > told).then_some(settled)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut inner = self.purse.inner.lock();
        inner.open.remove(&self.op);
        self.purse.give_up(&mut inner, self.op);
    }
}
