//! What a seed means: the size of the cluster, the kinds of faults and how often they come.

use crate::Rng;
use ullage_voucher::bank::BankConfig;
use ullage_voucher::store::StoreConfig;

/// Changes to the configurations, for canaries, and who wants to know.
#[derive(Clone, Copy, Default)]
pub struct Setup {
    /// Applied to each bank.
    pub bank: Option<fn(BankConfig) -> BankConfig>,
    /// Applied to each store.
    pub store: Option<fn(StoreConfig) -> StoreConfig>,
    /// Told what happens, line by line.
    pub say: Option<fn(&str)>,
}

/// The faults of one run. Most seeds leave some kinds out: so bugs show that other faults would hide.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one kind of fault")]
pub struct Plan {
    /// The seed it came from.
    pub seed: u64,
    /// How many stores.
    pub stores: u32,
    /// How many users.
    pub users: u64,
    /// Clients of each user.
    pub clients_per_user: u64,
    /// X.
    pub expiry: u64,
    /// K.
    pub reconcile: u64,
    /// Seconds of an epoch.
    pub epoch_secs: u64,
    /// How many epochs until the network heals.
    pub epochs: u64,
    /// Each user's quota, in bytes.
    pub quota: u64,
    /// Probability that a message is lost.
    pub loss: f64,
    /// Probability that it arrives twice.
    pub duplicate: f64,
    /// Longest ordinary delay in milliseconds: messages overtake each other.
    pub delay_ms: u64,
    /// Probability that a message is delayed by up to two epochs.
    pub stuck: f64,
    /// Probability, per step of a server, that it crashes in the middle of it.
    pub crash: f64,
    /// Probability per second of a fault of the large kinds.
    pub calamity: f64,
    /// Which of the large kinds occur.
    pub partitions: bool,
    /// Stores lost for good, and given up.
    pub losses: bool,
    /// Stores set back to an old copy.
    pub restores: bool,
    /// Banks rebuilt from limits.
    pub rebuilds: bool,
    /// Clients that crash.
    pub client_crashes: bool,
    /// How many clients cheat.
    pub cheaters: u64,
    /// Clocks run fast or slow by up to this many thousandths.
    pub drift_permille: u64,
    /// Whether the bank revokes instead of limiting.
    pub revocation: bool,
    /// Whether stores report early.
    pub early: bool,
    /// Stores given up that are only cut off from the bank, and come back.
    pub give_ups: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut often = |most: f64| if rng.chance(0.4) { 0.0 } else { rng.unit() * most };
        let (loss, duplicate, stuck, crash) = (often(0.2), often(0.2), often(0.03), often(0.01));
        let expiry = rng.between(1, 3);
        Self {
            seed,
            stores: rng.between(2, 4) as u32,
            users: rng.between(1, 3),
            clients_per_user: rng.between(1, 3),
            expiry,
            reconcile: expiry + rng.between(1, 3),
            epoch_secs: rng.between(15, 30),
            epochs: rng.between(12, 20),
            quota: rng.between(10_000, 100_000),
            loss,
            duplicate,
            delay_ms: if rng.chance(0.3) { 5 } else { rng.between(5, 3000) },
            stuck,
            crash,
            calamity: 0.002 + rng.unit() * 0.02,
            partitions: rng.chance(0.5),
            losses: rng.chance(0.35),
            restores: rng.chance(0.35),
            rebuilds: rng.chance(0.25),
            client_crashes: rng.chance(0.5),
            cheaters: if rng.chance(0.35) { rng.between(1, 2) } else { 0 },
            drift_permille: if rng.chance(0.5) { 0 } else { 20 },
            revocation: rng.chance(0.4),
            early: rng.chance(0.3),
            give_ups: rng.chance(0.35),
        }
    }
}
