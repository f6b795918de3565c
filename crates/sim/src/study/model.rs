//! What is simulated: the cluster, its costs, the load.

use serde::{Deserialize, Serialize};
use ullage_voucher::bank::Waits;

/// How quota is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Not at all.
    None,
    /// A transaction at the management server for every write.
    Centralized,
    /// Vouchers.
    Voucher,
}

/// What users do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Many users, mostly metadata and reads, 2 % writes.
    User,
    /// One user on all clients, in bursts of checkpoint writes.
    Scientific,
}

/// How wallets ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asking {
    /// A fixed amount.
    Fixed,
    /// A moving average.
    Adaptive,
    /// The true average, known beforehand.
    Expected,
}

/// Everything about one run. Times in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Model {
    /// How quota is enforced.
    pub scheme: Scheme,
    /// What users do.
    pub workload: Workload,
    /// Users (user workload).
    pub users: u32,
    /// I/Os a second: of each user, or of the one user in all.
    pub rate: f64,
    /// Management servers.
    pub banks: u32,
    /// Clients.
    pub clients: u32,
    /// Stores.
    pub stores: u32,
    /// Clients that each user works on.
    pub clients_per_user: u32,
    /// Share of writes.
    pub writes: f64,
    /// Share of reads; the rest needs the management server only.
    pub reads: f64,
    /// Share of deletes, each of as much as a write.
    pub deletes: f64,
    /// Bytes of a write.
    pub request: u64,
    /// Share of the time in which the scientific load is in its burst.
    pub duty: f64,
    /// Simulated time.
    pub seconds: f64,
    /// Measured at the end of it.
    pub measure: f64,
    /// Length of an epoch.
    pub epoch: f64,
    /// X.
    pub expiry: u64,
    /// K.
    pub reconcile: u64,
    /// How wallets ask.
    pub asking: Asking,
    /// Bytes of a fixed request.
    pub fixed: u64,
    /// Prediction window of adaptive and expected requests.
    pub window: f64,
    /// Whether the bank revokes instead of limiting, and what requests wait for then.
    pub revocation: Option<Waits>,
    /// Quota of user 0, in bytes; the others have plenty.
    pub quota: Option<u64>,
    /// One way through the network.
    pub network: f64,
    /// What a client's link carries, in bytes a second: the data of a read or write take this much longer.
    pub link_rate: f64,
    /// A metadata request at the management server.
    pub metadata_service: f64,
    /// A voucher request there.
    pub voucher_service: f64,
    /// A quota transaction there.
    pub transaction_service: f64,
    /// Probability that a quota request can ride on a metadata request.
    pub grouped: f64,
    /// Hit rate of the client's cache (reads).
    pub client_hit: f64,
    /// Hit rate of a store's cache.
    pub store_hit: f64,
    /// A disk access: seek.
    pub seek: f64,
    /// A disk's rate, in bytes a second.
    pub disk_rate: f64,
    /// The random seed.
    pub seed: u64,
}

impl Default for Model {
    /// The paper's parameters where it gives them (sections 4.1 to 4.3). It gives no service times: those of the
    /// management server are chosen so that 10 of them carry 16,000 metadata requests a second, and a database
    /// transaction so that the centralised scheme carries 15,000 with 2 % writes.
    fn default() -> Self {
        Self {
            scheme: Scheme::Voucher,
            workload: Workload::User,
            users: 1000,
            rate: 10.0,
            banks: 10,
            clients: 100,
            stores: 100,
            clients_per_user: 10,
            writes: 0.02,
            reads: 0.28,
            deletes: 0.0,
            request: 4096,
            duty: 1.0,
            seconds: 3600.0,
            measure: 600.0,
            epoch: 600.0,
            expiry: 2,
            reconcile: 3,
            asking: Asking::Adaptive,
            fixed: 64 << 10,
            window: 600.0,
            revocation: None,
            quota: None,
            network: 0.000_1,
            link_rate: 125e6,
            metadata_service: 0.000_6,
            voucher_service: 0.000_05,
            transaction_service: 0.002,
            grouped: 0.8,
            client_hit: 0.3,
            store_hit: 0.8,
            seek: 0.008,
            disk_rate: 50e6,
            seed: 1,
        }
    }
}

impl Model {
    /// The user workload with this many users; clients and stores grow with the load, as in the paper.
    #[must_use]
    pub fn users(self, users: u32) -> Self {
        let size = (users / 10).max(20);
        Self { users, stores: size, clients: size, clients_per_user: (size / 10).max(1), ..self }
    }

    /// The scientific workload at this many I/Os a second on average, in requests of 1 MiB. The paper says that it
    /// "involves large files" and gives no size; the size decides what a quota transaction of 2 ms is compared with.
    #[must_use]
    pub fn scientific(self, rate: f64) -> Self {
        let size = ((rate / 25.0) as u32).max(20);
        Self {
            workload: Workload::Scientific,
            users: 1,
            rate,
            stores: size,
            clients: size,
            clients_per_user: size,
            writes: 0.6,
            reads: 0.2,
            duty: 0.31,
            grouped: 0.1,
            request: 1 << 20,
            ..self
        }
    }

    /// I/Os a second while the load is on.
    pub fn peak(&self) -> f64 {
        match self.workload {
            Workload::User => f64::from(self.users) * self.rate,
            Workload::Scientific => self.rate / self.duty,
        }
    }

    /// Bytes a second that one user writes through one client.
    pub fn consumption(&self) -> f64 {
        let rate = self.rate;
        rate * self.writes * self.request as f64 / f64::from(self.clients_per_user)
    }
}

/// What one run measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Mean latency of a request in the measured time, in milliseconds.
    pub latency_ms: f64,
    /// Mean time that a request waits in a management server's queue, in milliseconds.
    pub queue_ms: f64,
    /// Load of the management servers: time busy, as a share.
    pub busy: f64,
    /// Messages a second for quota that could not ride on others.
    pub messages: f64,
    /// All requests for vouchers a second (of the centralised scheme: transactions), those that rode on others too.
    pub withdrawals: f64,
    /// Returns of surplus a second.
    pub returns: f64,
    /// Mean latency in each 30 s, all users but user 0, in milliseconds.
    pub series_ms: Vec<f64>,
    /// The same of user 0.
    pub special_ms: Vec<f64>,
    /// Requests completed.
    pub requests: u64,
    /// Writes that the bank refused.
    pub refused: u64,
}
