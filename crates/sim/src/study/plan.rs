//! The administrator's question: with my clients, quotas and failure times, which epoch length and policy?

use super::model::Model;
use super::run;
use serde::{Deserialize, Serialize};
use ullage_voucher::Params;

/// Epochs that are looked at, in seconds.
const LENGTHS: [f64; 10] = [5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];
/// The most banks that are simulated, and users at each: more of them all only take longer.
const BANKS: u32 = 10;
const USERS_AT_A_BANK: u32 = 100;
/// About as much is simulated of each epoch length.
const USER_SECONDS: f64 = 600_000.0;
/// As many as the simulation can number. Nothing depends on how many there are, only on how many each user has.
const CLIENTS: u32 = 1 << 16;
/// Ten thousand take minutes.
const STORES: u32 = 10_000;

/// What the administrator says, as TOML. Sizes are in bytes, times in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvicePlan {
    /// Clients.
    pub clients: u32,
    /// Storage servers.
    pub stores: u32,
    /// Users.
    pub users: u32,
    /// Clients that each user works on, and a cheater may have taken over.
    #[serde(default = "ten")]
    pub clients_per_user: u32,
    /// Each user's quota, in bytes.
    pub quota: u64,
    /// What each user writes while working, in bytes a second.
    pub write_rate: f64,
    /// The most that one client could write if it cheated, in bytes a second (its network).
    pub client_bandwidth: f64,
    /// How long a store may be away (reboot, network) before it is given up, in seconds.
    pub store_outage: f64,
    /// How long freed or lost quota may take to be of use again, in seconds.
    #[serde(default = "hour")]
    pub quota_return: f64,
    /// The most that a cheater may overspend, in bytes.
    pub cheat_limit: u64,
}

const fn ten() -> u32 {
    10
}

const fn hour() -> f64 {
    3600.0
}

/// Why a plan cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, or not these fields.
    #[error("the plan is not readable: {0}")]
    Toml(String),
    /// Numbers that make no sense.
    #[error("{0} must be above zero")]
    NotPositive(&'static str),
    /// A time that is none.
    #[error("store_outage must be a number of seconds, zero or more")]
    Outage,
    /// All stores are simulated, each with what it tells all banks.
    #[error("stores must be at most {most}: each is simulated, with all that it tells the banks", most = STORES)]
    Stores,
}

/// One epoch length that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Seconds.
    pub epoch: f64,
    /// Until a cheater is named and freed quota is back at the latest: K epochs, and what a store that is away as long as the plan says
    /// holds that up, in seconds.
    pub named_within: f64,
    /// The most a cheater can take until then: the smaller of the paper's bounds, `(Q − A)·n` and `K·μ`, in bytes; μ is what all
    /// clients of one user write at most.
    pub cheat_bound: f64,
    /// How many of the users were simulated, at as few banks as have as many users each as with all.
    pub simulated_users: u32,
    /// Messages a second to the banks for quota that rode on no other, of all users: those of the simulated ones times as many.
    pub messages: f64,
    /// Mean latency, simulated, in milliseconds.
    pub latency_ms: f64,
    /// Whether a store can be away as long as the plan says without holding the horizon up beyond K epochs.
    pub bridges_outage: bool,
    /// What is against it; empty if nothing is.
    pub against: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Every epoch length that was looked at.
    pub candidates: Vec<Candidate>,
    /// The one to take: the longest that nothing is against.
    pub epoch: Option<f64>,
    /// X and K.
    pub expiry: u64,
    /// K.
    pub reconcile: u64,
    /// `limiting` or `revocation`.
    pub policy: &'static str,
    /// Why that policy.
    pub because: String,
}

impl AdvicePlan {
    /// Reads a plan.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError::Toml(error.to_string()))?;
        let positive = [
            ("clients", plan.clients > 0),
            ("stores", plan.stores > 0),
            ("users", plan.users > 0),
            ("clients_per_user", plan.clients_per_user > 0),
            ("quota", plan.quota > 0),
            ("write_rate", plan.write_rate > 0.0),
            ("client_bandwidth", plan.client_bandwidth > 0.0),
            ("quota_return", plan.quota_return > 0.0),
        ];
        match positive.iter().find(|(_, positive)| !positive) {
            Some((name, _)) => Err(PlanError::NotPositive(name)),
            None if !plan.store_outage.is_finite() || plan.store_outage < 0.0 => Err(PlanError::Outage),
            None if plan.stores > STORES => Err(PlanError::Stores),
            None => Ok(plan),
        }
    }

    /// Looks at epoch lengths from 5 s to an hour; simulates each.
    pub fn advise(&self, seed: u64) -> Advice {
        let params = Params::default();
        let candidates: Vec<Candidate> = LENGTHS.iter().map(|epoch| self.candidate(*epoch, params, seed)).collect();
        let epoch = candidates
            .iter()
            .filter(|candidate| candidate.against.is_empty())
            .map(|c| c.epoch)
            .fold(None, |best: Option<f64>, epoch| Some(best.map_or(epoch, |best| best.max(epoch))));
        // What all clients of a user hold at once, against its quota.
        let held = self.write_rate * epoch.unwrap_or(60.0) * params.reconcile() as f64;
        let tight = held > self.quota as f64 / 4.0;
        let (policy, because) = if tight && self.clients_per_user > 1 && self.clients_per_user <= 3 {
            (
                "revocation",
                format!(
                    "vouchers that are out ({held:.0} bytes) are a large part of a quota and few clients share it: asking \
                     them back lets one finish its work"
                ),
            )
        } else {
            (
                "limiting",
                format!(
                    "vouchers that are out ({held:.0} bytes of a quota of {}) are shared without waiting, and nobody \
                     sees a bump when quota runs out",
                    self.quota
                ),
            )
        };
        Advice { candidates, epoch, expiry: params.expiry(), reconcile: params.reconcile(), policy, because }
    }

    /// A model of this site, or of a part of it: users share banks and nothing else that quota depends on. So as many are simulated as
    /// leave time for three epochs, the last of which is measured whole.
    fn model(&self, epoch: f64, seed: u64) -> Model {
        let seconds = (epoch * 5.0).clamp(60.0, 600.0).max(epoch * 3.0);
        let at_a_bank = self.users.div_ceil(BANKS).min(USERS_AT_A_BANK);
        let banks = ((USER_SECONDS / seconds) as u32 / at_a_bank).clamp(1, BANKS);
        let clients = self.clients.min(CLIENTS);
        Model {
            users: self.users.min(banks * at_a_bank),
            banks,
            clients,
            stores: self.stores,
            clients_per_user: self.clients_per_user.min(clients),
            rate: 10.0,
            request: ((self.write_rate / 10.0 / 0.02) as u64).clamp(1, 1 << 40),
            epoch,
            window: epoch,
            seconds,
            measure: (epoch * 2.0).clamp(30.0, 240.0).max(epoch),
            // The question is the quota traffic: disks are taken to be fast enough for what is asked of them.
            store_hit: 1.0,
            seed,
            ..Model::default()
        }
    }

    fn candidate(&self, epoch: f64, params: Params, seed: u64) -> Candidate {
        let model = self.model(epoch, seed);
        let measured = run(&model);
        let k = params.reconcile() as f64;
        let slack = (k - params.expiry() as f64) * epoch;
        let named_within = k * epoch + (self.store_outage - slack).max(0.0);
        let by_quota = self.quota as f64 * f64::from(self.stores);
        // Whoever owns one of a user's clients may own all that the user works on.
        let corrupt = self.clients_per_user.min(self.clients);
        let by_time = named_within * self.client_bandwidth * f64::from(corrupt);
        let cheat_bound = by_quota.min(by_time);
        let bridges_outage = slack >= self.store_outage;
        let mut against = Vec::new();
        if cheat_bound > self.cheat_limit as f64 {
            against.push(format!("a cheater could take {cheat_bound:.0} bytes"));
        }
        if named_within > self.quota_return {
            against.push(format!("quota may be back only after {named_within:.0} s"));
        }
        if self.write_rate * named_within > self.quota as f64 {
            against.push(format!("vouchers of {named_within:.0} s alone exceed a quota"));
        }
        Candidate {
            epoch,
            named_within,
            cheat_bound,
            simulated_users: model.users,
            messages: measured.messages * f64::from(self.users) / f64::from(model.users),
            latency_ms: measured.latency_ms,
            bridges_outage,
            against,
        }
    }
}

#[cfg(test)]
mod tests;
