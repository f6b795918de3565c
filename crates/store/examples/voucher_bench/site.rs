//! A bank and stores in this process, on loopback, with tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ullage_bank::client::BankClient;
use ullage_bank::config::EngineChoice;
use ullage_bank::wire::AccountChange;
use ullage_bank::{Bank, BankSettings};
use ullage_journal::Durability;
use ullage_net::client::{Client, Settings};
use ullage_net::server::Gate;
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_store::client::{Chunks, Purse, PurseSettings, StoreAddress};
use ullage_store::server::{StoreServer, StoreSettings};
use ullage_voucher::wallet::RequestPolicy;
use ullage_voucher::{KeyId, Keyring, Node};

const TOKEN_KEY: [u8; 32] = [1; 32];
const CAPABILITY_KEY: [u8; 32] = [2; 32];

pub struct Site {
    pub bank: String,
    pub stores: Vec<StoreAddress>,
    _directory: tempfile::TempDir,
}

fn gate() -> Gate {
    Gate { tls: None, token_key: Some(TOKEN_KEY) }
}

pub fn http(name: &str, role: Role) -> Arc<Client> {
    let token = Bearer { name: name.into(), role, expires: clock::now_secs() + 86_400 }.sign(&TOKEN_KEY);
    Arc::new(Client::new(Settings { token: Some(token), ..Settings::default() }))
}

fn keys() -> Arc<Keyring> {
    Arc::new(Keyring::with_root(KeyId(1), [3; 32]))
}

impl Site {
    /// A bank, a store that takes vouchers (node 1) and one with checks off (node 2).
    pub async fn start(directory: &Path, durability: Durability) -> Self {
        let directory = tempfile::TempDir::new_in(directory).unwrap();
        let engine = EngineChoice::Embedded { directory: directory.path().join("bank"), durability };
        let mut settings = BankSettings::new(engine, keys(), CAPABILITY_KEY);
        settings.gate = gate();
        settings.user_max = usize::MAX;
        let bank = Bank::bind("127.0.0.1:0", settings).await.unwrap();
        let address = bank.address().to_string();
        tokio::spawn(bank.serve(std::future::pending()));
        let mut stores = Vec::new();
        for node in 1..=2 {
            stores.push(start_store(directory.path(), node, &address, durability).await);
        }
        let site = Self { bank: address, stores, _directory: directory };
        let admin = site.bank_client("root", Role::Admin);
        for user in 0..64 {
            let change = AccountChange { quota_bytes: Some(1 << 50), blocked: None };
            admin.change(&format!("user{user}"), &change).await.unwrap();
        }
        site
    }

    pub fn bank_client(&self, name: &str, role: Role) -> BankClient {
        BankClient::new(http(name, role), vec![self.bank.clone()], Duration::from_secs(10))
    }

    /// A client of `user`, whose bank is at `bank`.
    pub fn chunks(&self, user: &str, bank: &str, policy: RequestPolicy) -> Chunks {
        let http = http(user, Role::User);
        let bank = BankClient::new(Arc::clone(&http), vec![bank.to_owned()], Duration::from_secs(10));
        let settings = PurseSettings {
            user: user.into(),
            policy,
            patience: Duration::from_secs(20),
            listen: false,
            addressed: std::collections::BTreeSet::new(),
        };
        Chunks::new(http, Purse::new(bank, settings), self.stores.clone(), Duration::from_secs(20))
    }
}

async fn start_store(directory: &Path, node: u32, bank: &str, durability: Durability) -> StoreAddress {
    let place = directory.join(format!("store{node}"));
    let mut settings = StoreSettings::new(place, Node(node), keys(), CAPABILITY_KEY);
    settings.gate = gate();
    settings.durability = durability;
    if node == 1 {
        let name = format!("store-{node}");
        settings.bank = Some(BankClient::new(http(&name, Role::Store), vec![bank.to_owned()], Duration::from_secs(5)));
    }
    let server = StoreServer::bind("127.0.0.1:0", settings).await.unwrap();
    let address = server.address().to_string();
    let meter = server.meter();
    tokio::spawn(server.serve(std::future::pending()));
    while !meter.is_open() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    StoreAddress { node: Node(node), address, addressed: false }
}

/// A way to the bank that takes `round_trip` longer: half of it each way.
pub async fn slow_way(to: String, round_trip: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let Ok(far) = TcpStream::connect(to).await else { return };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::join!(carry(near_in, far_out, round_trip / 2), carry(far_in, near_out, round_trip / 2));
            });
        }
    });
    address
}

/// Every part leaves `delay` after it came, also while the one before it is still on its way.
async fn carry(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, delay: Duration) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0 || sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            wait(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// tokio's timer has 1 ms steps; the last of them by yielding.
async fn wait(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if let Some(long) = left.checked_sub(Duration::from_millis(2)) {
        tokio::time::sleep(long).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}
