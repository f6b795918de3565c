//! A whole site in one process: real servers on loopback, with certificates.

pub mod raw;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ullage_bank::client::BankClient;
use ullage_bank::config::EngineChoice;
use ullage_bank::wire::{AccountChange, AccountView};
use ullage_bank::{Bank, BankSettings};
use ullage_journal::Durability;
use ullage_net::client::{Client, Settings};
use ullage_net::server::Gate;
use ullage_net::{Role, keyfile, pki, tls};
use ullage_store::client::{Chunks, Files, Purse, PurseSettings, StoreAddress};
use ullage_store::server::{Meter, StoreServer, StoreSettings};
use ullage_voucher::wallet::RequestPolicy;
use ullage_voucher::{EpochLength, KeyId, Keyring, Micros, Node};

/// How a test's site differs from the ordinary.
#[derive(Clone)]
pub struct Plan {
    pub stores: u32,
    pub shards: u32,
    pub epoch_ms: u64,
    pub checked: bool,
    pub bank: fn(&mut BankSettings),
    pub store: fn(&mut StoreSettings),
}

impl Default for Plan {
    fn default() -> Self {
        Self { stores: 2, shards: 1, epoch_ms: 600_000, checked: true, bank: |_| {}, store: |_| {} }
    }
}

/// A server that can be ended.
pub struct Running {
    pub address: String,
    end: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Running {
    pub async fn stop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

pub struct Cluster {
    pub directory: TempDir,
    pub plan: Plan,
    pub bank: Running,
    pub stores: Vec<Running>,
    pub meters: Vec<Meter>,
    pub root: [u8; 32],
    pub capability_key: [u8; 32],
    pub admin: BankClient,
}

pub fn keyring(root: [u8; 32]) -> Arc<Keyring> {
    Arc::new(Keyring::with_root(KeyId(1), root))
}

impl Cluster {
    pub async fn start(plan: Plan) -> Self {
        let directory = TempDir::new().unwrap();
        let certificates = directory.path().join("pki");
        std::fs::create_dir_all(&certificates).unwrap();
        pki::create_authority(&certificates, 10).unwrap();
        let local = ["127.0.0.1".to_owned()];
        pki::issue(&certificates, "bank", Role::Bank, &local, 10).unwrap();
        pki::issue(&certificates, "root", Role::Admin, &[], 10).unwrap();
        for node in 1..=plan.stores {
            pki::issue(&certificates, &format!("store-{node}"), Role::Store, &local, 10).unwrap();
        }
        let (root, capability_key) = (keyfile::random_key(), keyfile::random_key());
        let bank = start_bank(directory.path(), &plan, root, capability_key, "127.0.0.1:0").await;
        let admin = BankClient::new(http(&certificates, "root"), vec![bank.address.clone()], Duration::from_secs(5));
        let mut cluster =
            Self { directory, plan, bank, stores: Vec::new(), meters: Vec::new(), root, capability_key, admin };
        for node in 1..=cluster.plan.stores {
            let (running, meter) = cluster.start_store(node, "127.0.0.1:0").await;
            cluster.stores.push(running);
            cluster.meters.push(meter);
        }
        cluster.wait_open().await;
        cluster
    }

    pub fn certificates(&self) -> PathBuf {
        self.directory.path().join("pki")
    }

    pub async fn start_store(&self, node: u32, address: &str) -> (Running, Meter) {
        let certificates = self.certificates();
        let directory = self.directory.path().join(format!("store{node}"));
        let mut settings = StoreSettings::new(directory, Node(node), keyring(self.root), self.capability_key);
        let name = format!("store-{node}");
        settings.gate.tls = Some(tls::server(&tls::Files::in_directory(&certificates, &name)).unwrap());
        if self.plan.checked {
            let banks = vec![self.bank.address.clone()];
            settings.bank = Some(BankClient::new(http(&certificates, &name), banks, Duration::from_secs(2)));
        }
        settings.durability = Durability::Process;
        settings.shards = self.plan.shards;
        settings.renew_every = Micros::from_millis(200);
        settings.early_every = Some(Micros::from_millis(300));
        (self.plan.store)(&mut settings);
        let until = Instant::now() + Duration::from_secs(20);
        let server = loop {
            match StoreServer::bind(address, settings.clone()).await {
                // What the one before had begun may not be over: in a process of its own it would be.
                Err(error) if error.to_string().contains("in use") && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                server => break server.unwrap(),
            }
        };
        let meter = server.meter();
        let address = server.address().to_string();
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.serve(async {
            let _ = ended.await;
        }));
        (Running { address, end: Some(end), task: Some(task) }, meter)
    }

    pub async fn restart_bank(&mut self) {
        self.bank.stop().await;
        let address = self.bank.address.clone();
        self.bank = start_bank(self.directory.path(), &self.plan, self.root, self.capability_key, &address).await;
    }

    pub async fn wait_open(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.meters.iter().all(Meter::is_open) {
            assert!(Instant::now() < until, "the stores get no lease");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A user with a certificate and a quota.
    pub async fn user(&self, name: &str, quota_bytes: u64) {
        pki::issue(&self.certificates(), name, Role::User, &[], 10).unwrap();
        let change = AccountChange { quota_bytes: Some(quota_bytes), blocked: None };
        self.admin.change(name, &change).await.unwrap();
    }

    pub fn addresses(&self) -> Vec<StoreAddress> {
        let address = |(index, store): (usize, &Running)| StoreAddress {
            node: Node(index as u32 + 1),
            address: store.address.clone(),
            addressed: false,
        };
        self.stores.iter().enumerate().map(address).collect()
    }

    pub fn bank_client(&self, user: &str) -> BankClient {
        BankClient::new(http(&self.certificates(), user), vec![self.bank.address.clone()], Duration::from_secs(10))
    }

    /// A new client of a user.
    pub fn client(&self, user: &str, policy: RequestPolicy) -> Files {
        let settings = PurseSettings {
            user: user.to_owned(),
            policy,
            patience: Duration::from_secs(20),
            listen: false,
            addressed: BTreeSet::new(),
        };
        let purse = Purse::new(self.bank_client(user), settings);
        let http = http(&self.certificates(), user);
        Files::new(Chunks::new(http, purse, self.addresses(), Duration::from_secs(20)))
    }

    pub async fn account(&self, user: &str) -> AccountView {
        self.admin.account(user).await.unwrap()
    }

    /// Waits until all that has happened is reconciled and nothing issued is outstanding; returns the account.
    pub async fn reconciled(&self, user: &str) -> AccountView {
        let until = Instant::now() + Duration::from_secs(60);
        let now = self.account(user).await.epoch;
        loop {
            let account = self.account(user).await;
            if account.horizon >= now && account.issued_bytes == 0 {
                return account;
            }
            assert!(Instant::now() < until, "never reconciled: {account:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn used(&self, user: &str) -> u64 {
        self.meters.iter().map(|meter| meter.charged().get(user).copied().unwrap_or(0)).sum()
    }

    /// What the file system says all chunks at all stores occupy.
    pub fn on_disk(&self) -> u64 {
        (1..=self.plan.stores).map(|node| on_disk(&self.directory.path().join(format!("store{node}")))).sum()
    }

    pub async fn stop(&mut self) {
        for store in &mut self.stores {
            store.stop().await;
        }
        self.bank.stop().await;
    }
}

pub fn on_disk(store: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for shard in std::fs::read_dir(store.join("chunks")).unwrap() {
        for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            sum += file.unwrap().metadata().map_or(0, |meta| meta.blocks() * 512);
        }
    }
    sum
}

pub fn http(certificates: &Path, name: &str) -> Arc<Client> {
    let tls = tls::client(&tls::Files::in_directory(certificates, name)).unwrap();
    Arc::new(Client::new(Settings { tls: Some(tls), ..Settings::default() }))
}

async fn start_bank(directory: &Path, plan: &Plan, root: [u8; 32], capability_key: [u8; 32], address: &str) -> Running {
    let engine = EngineChoice::Embedded { directory: directory.join("bank"), durability: Durability::Process };
    let mut settings = BankSettings::new(engine, keyring(root), capability_key);
    settings.shards = plan.shards;
    settings.epoch_length = EpochLength::fixed(Micros::from_millis(plan.epoch_ms));
    settings.lease = Micros::from_secs(3);
    let files = tls::Files::in_directory(&directory.join("pki"), "bank");
    settings.gate = Gate { tls: Some(tls::server(&files).unwrap()), token_key: None };
    (plan.bank)(&mut settings);
    let bank = Bank::bind(address, settings).await.unwrap();
    let address = bank.address().to_string();
    let (end, ended) = oneshot::channel();
    let task = tokio::spawn(async {
        let end = async {
            let _ = ended.await;
        };
        bank.serve(end).await.unwrap();
    });
    Running { address, end: Some(end), task: Some(task) }
}

pub fn fixed(amount: u64) -> RequestPolicy {
    RequestPolicy::Fixed { amount }
}

pub fn quiet() -> ullage_store::client::Progress {
    Arc::new(|_, _| {})
}
