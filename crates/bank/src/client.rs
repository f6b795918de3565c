//! A client of the banks: finds the leader, and asks again elsewhere while there is none.

use crate::identity::shard_of;
use crate::wire::{
    AccountChange, AccountView, BankStatus, ClientAnswers, ClientBatch, FindingView, History, StoreAnswers, StoreBatch,
    StoreView,
};
use bytes::Bytes;
use hyper::header::CONNECTION;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use ullage_net::client::{CallError, Client};
use ullage_net::{Problem, Role, pki};
use ullage_voucher::User;

/// A bank that has not answered for so long, and then not said how it is for as long again, is left for another.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// Where a user's account is. What is no name would name something else, or nothing that can be asked for.
fn path_of(user: &str) -> Result<String, Problem> {
    match pki::refused_user(user) {
        None => Ok(format!("/v1/users/{user}")),
        Some(why) => Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", why)),
    }
}

/// The longest list of one shard: four million accounts.
const LIST_MAX_BYTES: usize = 1 << 30;

/// A bank that takes no more now is asked again after so long.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Talks to the banks of a site. Requests are made so that repeating them has no second effect.
#[derive(Debug, Clone)]
pub struct BankClient {
    client: Arc<Client>,
    banks: Vec<String>,
    preferred: Arc<Mutex<String>>,
    /// Over how many users are spread, once a bank said so: that never changes.
    shards: Arc<OnceLock<usize>>,
    patience: Duration,
    /// What the last attempt in vain met.
    trouble: Arc<Mutex<Option<CallError>>>,
}

impl BankClient {
    /// Of the banks at these `host:port`; a request is repeated for up to `patience` while no bank leads.
    pub fn new(client: Arc<Client>, banks: Vec<String>, patience: Duration) -> Self {
        let client = Arc::new(client.only_to(Role::Bank));
        let preferred = Arc::new(Mutex::new(banks.first().cloned().unwrap_or_default()));
        Self { client, banks, preferred, shards: Arc::default(), patience, trouble: Arc::default() }
    }

    /// For requests to other shards, which may have another leader: what it finds out of that concerns it alone.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { preferred: Arc::new(Mutex::new(self.preferred.lock().clone())), ..self.clone() }
    }

    /// Asks the leader of each shard, one after the other.
    async fn ask_each<B: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<Vec<Result<B, CallError>>, CallError> {
        let shards = match self.shards.get() {
            Some(shards) => *shards,
            None => {
                let status: BankStatus = self.ask(Method::GET, "/v1/status", None::<&()>).await?;
                *self.shards.get_or_init(|| status.shards.len())
            }
        };
        let mut answers = Vec::new();
        for shard in 0..shards {
            answers.push(self.ask(method.clone(), &format!("{path}?shard={shard}"), None::<&()>).await);
        }
        Ok(answers)
    }

    /// What all shards have of something, one after the other. It is told at once, however much it is.
    async fn list<B: DeserializeOwned>(&self, path: &str) -> Result<Vec<B>, CallError> {
        let large = Self { client: Arc::new(self.client.for_answers(LIST_MAX_BYTES)), ..self.clone() };
        let mut all = Vec::new();
        for of_shard in large.ask_each::<Vec<B>>(Method::GET, path).await? {
            all.extend(of_shard?);
        }
        Ok(all)
    }

    async fn ask<A: Serialize + Sync, B: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&A>,
    ) -> Result<B, CallError> {
        self.ask_for(method, path, body, Duration::ZERO).await
    }

    /// The same for what a bank may answer after `waits` only.
    async fn ask_for<A: Serialize + Sync, B: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&A>,
        waits: Duration,
    ) -> Result<B, CallError> {
        let until = Instant::now() + self.patience;
        let mut turn = 0;
        loop {
            let bank = self.preferred.lock().clone();
            let error = match self.attempt(&bank, method.clone(), path, body, waits).await {
                Ok(answer) => {
                    *self.trouble.lock() = None;
                    return Ok(answer);
                }
                Err(error) => error,
            };
            *self.trouble.lock() = Some(error.clone());
            let (is_full, is_hasty) = (error.code() == Some("full"), error.code() == Some("too_many"));
            let is_busy = is_full || is_hasty;
            let leader = match &error {
                CallError::Transport { .. } => None,
                CallError::Refused(problem) if problem.code == "not_leading" => {
                    // Believed only if it is one of the banks that we were told of.
                    problem.detail.as_str().filter(|leader| self.banks.iter().any(|b| b == leader)).map(str::to_owned)
                }
                CallError::Refused(problem) if is_busy || problem.code == "timeout" => None,
                CallError::Refused(_) => return Err(error),
            };
            // One that is full has not looked at the request: another may lead.
            if !is_hasty {
                // Also for those who ask after this: they may have no more patience than for one bank.
                self.leave(&bank, leader.filter(|leader| *leader != bank));
            }
            if Instant::now() >= until {
                return Err(error);
            }
            if is_busy {
                tokio::time::sleep(BUSY_PAUSE).await;
                continue;
            }
            turn += 1;
            if turn >= self.banks.len() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Prefers `next`, or the one after `bank`, unless somebody else has left that one meanwhile.
    fn leave(&self, bank: &str, next: Option<String>) {
        let after = self.banks.iter().position(|known| known == bank).map_or(0, |position| position + 1);
        let next = next.or_else(|| self.banks.get(after).or(self.banks.first()).cloned());
        let mut preferred = self.preferred.lock();
        if let Some(next) = next.filter(|_| *preferred == bank) {
            *preferred = next;
        }
    }

    /// One request to one bank, which may answer it after `waits` only. Where there are other banks, it is asked whether it is there at all
    /// while the answer is long in coming, as that to a request that waits for other clients may be.
    async fn attempt<A: Serialize + Sync, B: DeserializeOwned>(
        &self,
        bank: &str,
        method: Method,
        path: &str,
        body: Option<&A>,
        waits: Duration,
    ) -> Result<B, CallError> {
        // Both are large, and so would be every future of who asks.
        let mut answer = Box::pin(self.client.json(bank, method, path, body));
        if self.banks.len() < 2 {
            return answer.await;
        }
        if let Ok(answer) = timeout(waits, &mut answer).await {
            return answer;
        }
        loop {
            if let Ok(answer) = timeout(SILENT_MAX, &mut answer).await {
                return answer;
            }
            tokio::select! {
                answer = &mut answer => return answer,
                is_there = Box::pin(self.is_there(bank)) => if !is_there {
                    return Err(CallError::Transport { server: bank.to_owned(), reason: "it is silent".to_owned() });
                }
            }
        }
    }

    /// Whether a bank says anything at all. It has no place to spare for a connection that is kept for the next time.
    async fn is_there(&self, bank: &str) -> bool {
        let close = [(&CONNECTION, "close".to_owned())];
        let status = self.client.call(bank, Method::GET, "/v1/status", &close, Bytes::new());
        matches!(timeout(SILENT_MAX, status).await, Ok(Ok(_) | Err(CallError::Refused(_))))
    }

    /// A client's messages, and whatever rides along.
    ///
    /// # Errors
    /// When no bank answers in time, or it refuses.
    pub async fn messages(&self, batch: &ClientBatch) -> Result<ClientAnswers, CallError> {
        self.ask(Method::POST, "/v1/messages", Some(batch)).await
    }

    /// Waits up to `wait_ms` for what the bank has to say of its own accord.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn listen(&self, batch: &ClientBatch, wait_ms: u64) -> Result<ClientAnswers, CallError> {
        let path = format!("/v1/messages?listen_ms={wait_ms}");
        self.ask_for(Method::POST, &path, Some(batch), Duration::from_millis(wait_ms)).await
    }

    /// A store's messages.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn store_messages(&self, batch: &StoreBatch) -> Result<StoreAnswers, CallError> {
        self.ask(Method::POST, "/v1/stores/messages", Some(batch)).await
    }

    /// Sets a quota, blocks or unblocks.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn change(&self, user: &str, change: &AccountChange) -> Result<AccountView, CallError> {
        self.ask(Method::PUT, &path_of(user)?, Some(change)).await
    }

    /// Removes a quota; gives the account as it was. What the user has stays accounted, and the account is gone with that.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn remove(&self, user: &str) -> Result<AccountView, CallError> {
        self.ask(Method::DELETE, &path_of(user)?, None::<&()>).await
    }

    /// One account.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn account(&self, user: &str) -> Result<AccountView, CallError> {
        self.ask(Method::GET, &path_of(user)?, None::<&()>).await
    }

    /// All accounts.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn accounts(&self) -> Result<Vec<AccountView>, CallError> {
        let mut all: Vec<AccountView> = self.list("/v1/users").await?;
        all.sort_by(|a, b| a.user.cmp(&b.user));
        // An older bank that leads all tells all each time.
        all.dedup_by(|a, b| a.user == b.user);
        Ok(all)
    }

    /// A user's past.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn history(&self, user: &str) -> Result<History, CallError> {
        self.ask(Method::GET, &format!("{}/history", path_of(user)?), None::<&()>).await
    }

    /// What was found of cheaters.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub async fn findings(&self) -> Result<Vec<FindingView>, CallError> {
        let mut all: Vec<FindingView> = self.list("/v1/findings").await?;
        all.sort_by_key(|finding| finding.at_ms);
        Ok(all)
    }

    /// Gives a store up, in every shard that knows it. Gives back how their leaders see them then.
    ///
    /// # Errors
    /// As [`Self::messages`]; when no shard knows it.
    pub async fn exclude(&self, node: u32) -> Result<BankStatus, CallError> {
        let (mut shards, mut unknown) = (Vec::new(), None);
        for answer in self.ask_each::<BankStatus>(Method::POST, &format!("/v1/stores/{node}/exclude")).await? {
            match answer {
                Ok(status) => shards.extend(status.shards),
                Err(error) if error.code() == Some("not_found") => unknown = Some(error),
                Err(error) => return Err(error),
            }
        }
        match unknown {
            Some(error) if shards.is_empty() => Err(error),
            _ => Ok(BankStatus { shards }),
        }
    }

    /// The stores that count, as the bank sees them that leads the shard of this user.
    ///
    /// # Errors
    /// When none says that it leads, for as long as a request is repeated.
    pub async fn stores(&self, user: User) -> Result<Vec<StoreView>, CallError> {
        let until = Instant::now() + self.patience;
        loop {
            let mut last = None;
            for bank in &self.banks {
                match self.status(bank).await {
                    Ok(mut status) => {
                        let shard = shard_of(user, status.shards.len() as u32) as usize;
                        if status.shards.get(shard).is_some_and(|shard| shard.leading) {
                            return Ok(status.shards.swap_remove(shard).stores);
                        }
                    }
                    Err(error) => last = Some(error),
                }
            }
            if Instant::now() >= until {
                let nobody = || CallError::Transport {
                    server: self.banks.join(", "),
                    reason: "none of these banks leads the shard of this user now".to_owned(),
                };
                return Err(last.unwrap_or_else(nobody));
            }
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// How one given bank is.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self, bank: &str) -> Result<BankStatus, CallError> {
        self.attempt(bank, Method::GET, "/v1/status", None::<&()>, Duration::ZERO).await
    }

    /// Why the last attempt was in vain, if it was: for those who have no more patience than a request that still goes on.
    pub fn trouble(&self) -> Option<CallError> {
        self.trouble.lock().clone()
    }

    /// The banks.
    pub fn banks(&self) -> &[String] {
        &self.banks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ShardStatus;
    use hyper::Request;
    use hyper::body::Incoming;
    use ullage_net::client::Settings;
    use ullage_net::server::{Gate, Limits, serve};
    use ullage_net::token::Bearer;
    use ullage_net::{clock, json};
    use ullage_voucher::Epoch;

    /// Regression: `alice?x` was alice, whose quota was set, and of `a b` a bank was asked for ten seconds.
    #[tokio::test]
    async fn what_is_no_name_is_refused_at_once() {
        let bank = BankClient::new(Arc::default(), vec!["127.0.0.1:1".into()], Duration::from_secs(60));
        for user in ["alice?x", "a b", "a/b", "", "..", "\u{e9}"] {
            let changed = bank.change(user, &AccountChange::default()).await.map(drop);
            let asked = [bank.account(user).await.map(drop), bank.history(user).await.map(drop), changed];
            for error in asked.map(Result::unwrap_err) {
                assert!(error.is_final() && error.to_string().contains("no user's name"), "{error}");
            }
        }
    }

    /// Regression: of a few hundred thousand users at a shard no list was to be had.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_list_is_taken() {
        let view = AccountView {
            user: "u".repeat(65 << 20),
            quota_bytes: 1,
            settled_bytes: 0,
            issued_bytes: 0,
            authorized_bytes: 0,
            blocked: false,
            removed: false,
            epoch: Epoch(1),
            horizon: Epoch(0),
        };
        let shard = ShardStatus {
            shard: 0,
            leading: true,
            leader: None,
            epoch: None,
            horizon: None,
            stores: Vec::new(),
            recovering: false,
            awaited: Vec::new(),
        };
        let (status, views) = (json(&BankStatus { shards: vec![shard] }), json(&[view]));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate { tls: None, token_key: Some([7; 32]) };
        let handler = move |request: Request<Incoming>, _| {
            let answer = if request.uri().path() == "/v1/status" { status.clone() } else { views.clone() };
            async move { Ok(answer) }
        };
        let server = tokio::spawn(serve(listener, gate, Limits::default(), handler, std::future::pending()));
        let token = Bearer { name: "root".into(), role: Role::Admin, expires: clock::now_secs() + 60 }.sign(&[7; 32]);
        let http = Arc::new(Client::new(Settings { token: Some(token), ..Settings::default() }));
        let all = BankClient::new(http, vec![address], Duration::from_secs(5)).accounts().await.unwrap();
        assert_eq!(all[0].user.len(), 65 << 20);
        server.abort();
    }
}
