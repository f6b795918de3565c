//! The bank as a server.

use crate::answers::Answers;
use crate::config::{BankSettings, EngineChoice};
use crate::engine::EngineError;
use crate::member::Member;
use crate::routes::{Bodies, route};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use ullage_net::limit::RateLimit;
use ullage_net::server::serve;

pub use crate::routes::OPENAPI;

/// Why a bank does not start.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// The accounts.
    #[error("open the accounts: {0}")]
    Engine(#[from] EngineError),
    /// The accounts, while it ran.
    #[error("the bank ends: {0}")]
    Ended(EngineError),
    /// The address.
    #[error("listen on {0}: {1}")]
    Listen(String, std::io::Error),
}

pub(crate) struct Shared {
    pub(crate) settings: Arc<BankSettings>,
    pub(crate) members: Vec<Arc<Member>>,
    /// Messages in requests, of which one may hold a thousand.
    pub(crate) rate: RateLimit,
    pub(crate) memory: Bodies,
}

/// A bank that listens.
pub struct Bank {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    failed: mpsc::UnboundedReceiver<EngineError>,
}

impl std::fmt::Debug for Bank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bank").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Bank {
    /// Opens the accounts and listens on `address`; with port 0 the kernel chooses one. On etcd the address found is the one
    /// that other banks send clients to, unless the settings name another.
    ///
    /// # Errors
    /// When the accounts cannot be opened or the address is taken.
    pub async fn bind(address: &str, mut settings: BankSettings) -> Result<Self, BankError> {
        let failed = |error| BankError::Listen(address.to_owned(), error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if let EngineChoice::Etcd(etcd) = &mut settings.engine
            && etcd.address.is_empty()
        {
            etcd.address = address.to_string();
        }
        let settings = Arc::new(settings);
        let mut members = Vec::new();
        let answers = Answers::new(settings.notify_command.clone(), settings.hook_command.clone());
        let (failing, failed) = mpsc::unbounded_channel();
        for shard in 0..settings.shards.max(1) {
            let member = Arc::new(Member::new(shard, Arc::clone(&settings), Arc::clone(&answers), failing.clone()));
            member.start().await?;
            members.push(member);
        }
        #[cfg(feature = "etcd")]
        if let EngineChoice::Etcd(etcd) = &settings.engine {
            tokio::spawn(crate::balance::run(etcd.clone(), members.clone()));
        }
        let rate = settings.limits.requests_per_second;
        let rate = RateLimit::new(rate, rate.max(1));
        let memory = Bodies::new();
        Ok(Self { listener, address, shared: Arc::new(Shared { settings, members, rate, memory }), failed })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `end` completes.
    ///
    /// # Errors
    /// When the accounts cannot be used, or written, any more.
    pub async fn serve(mut self, end: impl Future<Output = ()>) -> Result<(), BankError> {
        let shared = self.shared;
        let mut failure = None;
        let end = async {
            tokio::select! {
                () = end => {}
                error = self.failed.recv() => failure = error,
            }
        };
        let (gate, limits) = (shared.settings.gate.clone(), shared.settings.limits);
        let members = shared.members.clone();
        serve(self.listener, gate, limits, move |request, peer| route(Arc::clone(&shared), request, peer), end).await;
        let ends: Vec<_> = members.into_iter().map(|member| tokio::spawn(async move { member.stop().await })).collect();
        for end in ends {
            // One that panicked has ended as well.
            let _ = end.await;
        }
        failure.map_or(Ok(()), |error| Err(BankError::Ended(error)))
    }
}
