//! The two numbers of the protocol, X and K, and who is charged.

use crate::User;
use serde::{Deserialize, Serialize};

/// How long vouchers live and how long they count, in epochs (voucher-quotas, section 3).
///
/// `K ≥ X + 1` is enforced. The paper demands it in section 3 and breaks it in section 4.1 (both are 2 there):
/// with K = X, a voucher of epoch c − K is still valid in epoch c but no longer in the sum of what was issued, so a
/// user can be granted its value a second time. The default is the paper's X = 2 with the smallest K that is
/// sound, 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Params {
    expiry: u64,
    reconcile: u64,
    skew: u64,
}

#[derive(Serialize, Deserialize)]
struct Raw {
    expiry: u64,
    reconcile: u64,
    #[serde(default = "one")]
    skew: u64,
}

const fn one() -> u64 {
    1
}

/// Why X and K cannot be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// K is too small: a voucher would leave the sum while it can still be spent.
    #[error("K = {reconcile} must be at least X + 1 = {} : vouchers that are still valid would not be counted", expiry + 1)]
    ReconcileTooSoon {
        /// X.
        expiry: u64,
        /// K.
        reconcile: u64,
    },
    /// Numbers that make no sense.
    #[error("X must be 1 to 1000, K at most 4000 and the skew at most X")]
    OutOfRange,
}

impl Params {
    /// Vouchers of epoch e are valid up to and including e + `expiry` (X), and count as issued for
    /// `reconcile` (K) epochs. Stores accept vouchers one epoch ahead of their own.
    pub fn new(expiry: u64, reconcile: u64) -> Result<Self, ParamsError> {
        Self::with_skew(expiry, reconcile, 1)
    }

    /// As [`Params::new`], with the number of epochs that a voucher may be ahead of the store's epoch.
    pub fn with_skew(expiry: u64, reconcile: u64, skew: u64) -> Result<Self, ParamsError> {
        if expiry == 0 || expiry > 1000 || reconcile > 4000 || skew > expiry {
            return Err(ParamsError::OutOfRange);
        }
        if reconcile <= expiry {
            return Err(ParamsError::ReconcileTooSoon { expiry, reconcile });
        }
        Ok(Self { expiry, reconcile, skew })
    }

    /// X: a voucher of epoch e is valid through epoch e + X.
    pub const fn expiry(&self) -> u64 {
        self.expiry
    }

    /// K: what was issued counts in full for this many epochs.
    pub const fn reconcile(&self) -> u64 {
        self.reconcile
    }

    /// How many epochs a voucher may be ahead of the store's own epoch.
    pub const fn skew(&self) -> u64 {
        self.skew
    }
}

impl Default for Params {
    fn default() -> Self {
        Self { expiry: 2, reconcile: 3, skew: 1 }
    }
}

impl TryFrom<Raw> for Params {
    type Error = ParamsError;
    fn try_from(raw: Raw) -> Result<Self, ParamsError> {
        Self::with_skew(raw.expiry, raw.reconcile, raw.skew)
    }
}

impl From<Params> for Raw {
    fn from(params: Params) -> Self {
        Self { expiry: params.expiry, reconcile: params.reconcile, skew: params.skew }
    }
}

/// Who pays for what is written into a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChargeBy {
    /// The owner of the file, as file systems traditionally do.
    #[default]
    Owner,
    /// Whoever writes. A chunk keeps the user who was charged, and a refund goes to that user.
    Writer,
}

impl ChargeBy {
    /// The user whose vouchers must pay.
    pub const fn charged(self, owner: User, writer: User) -> User {
        match self {
            Self::Owner => owner,
            Self::Writer => writer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_experiment_is_refused() {
        assert_eq!(Params::new(2, 2), Err(ParamsError::ReconcileTooSoon { expiry: 2, reconcile: 2 }));
        assert!(Params::new(2, 3).is_ok());
        assert!(Params::new(0, 3).is_err());
    }

    #[test]
    fn the_charged_user_follows_the_choice() {
        assert_eq!(ChargeBy::Owner.charged(User(1), User(2)), User(1));
        assert_eq!(ChargeBy::Writer.charged(User(1), User(2)), User(2));
    }
}
