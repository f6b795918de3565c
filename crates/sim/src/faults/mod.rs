//! Whole clusters with faults, from one seed.
//!
//! Bank, stores and wallets are the shipping state machines; network, disks, clocks and crashes are simulated.
//! After every step the two invariants are checked for every user:
//!
//! 1. `A ≤ Q`, for the bank's own A;
//! 2. real bytes + vouchers still spendable `≤ A`, from an account that sees everything. Where clients
//!    cheat, what they overspent in epochs that are not reconciled is the only excess allowed.
//!
//! At the end the network heals, K epochs pass, and A must equal the real bytes exactly.

mod check;
mod client;
mod mischief;
mod network;
mod plan;
mod server;
mod world;

pub use check::Breach;
pub use plan::{Plan, Setup};

use crate::threads::on_threads;
use ullage_voucher::Epoch;

/// What a run did, for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Steps of any machine, each followed by the checks.
    pub steps: u64,
    /// Bytes paid for and stored.
    pub written: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Crashes of banks, stores and clients.
    pub crashes: u64,
    /// Stores set back to an old copy.
    pub restored: u64,
    /// Stores that were lost for good.
    pub lost: u64,
    /// Stores given up that were only cut off.
    pub given_up: u64,
    /// Banks rebuilt from nothing but limits.
    pub rebuilt: u64,
    /// Vouchers overspent by cheaters.
    pub overspent: u64,
    /// Cheaters and forgeries found.
    pub found: u64,
    /// The last epoch.
    pub epoch: Epoch,
}

/// How a seed ended.
pub type Ran = Result<Outcome, Box<Breach>>;

/// Runs one seed; the first breach of an invariant ends it.
pub fn run(seed: u64, setup: &Setup) -> Ran {
    let plan = Plan::from_seed(seed);
    world::World::new(plan, setup).run()
}

/// Runs `count` seeds from `first` on as many threads as asked for; calls `each` for every finished seed, in no
/// order. Gives the breaches, by seed.
pub fn campaign(
    first: u64,
    count: u64,
    threads: usize,
    setup: &Setup,
    each: &(dyn Fn(u64, &Ran) + Sync),
) -> Vec<Breach> {
    let next = std::sync::atomic::AtomicU64::new(0);
    let breaches = std::sync::Mutex::new(Vec::new());
    on_threads(threads, usize::try_from(count).unwrap_or(usize::MAX), &|| {
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if at >= count {
                break;
            }
            let seed = first.wrapping_add(at);
            let result = run(seed, setup);
            each(seed, &result);
            if let (Err(breach), Ok(mut breaches)) = (result, breaches.lock()) {
                breaches.push(*breach);
            }
        }
    });
    let mut breaches = breaches.into_inner().unwrap_or_default();
    breaches.sort_by_key(|breach| breach.seed);
    breaches
}
