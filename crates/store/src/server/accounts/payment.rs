//! How requests are paid for.

use crate::chunk::CHARGED_MAX;
use std::sync::Arc;
use ullage_voucher::message::{Refusal, StoreToClient};
use ullage_voucher::{Client, Epoch, Pieces};

/// Operations of clients are numbered below this; one operation can free space of several users, each a step of its own.
pub const OP_MAX: u64 = 1 << 56;
/// Steps of one operation: their numbers have a byte.
pub(super) const STEPS_MAX: u64 = 256;
const _: () = assert!(CHARGED_MAX as u64 <= STEPS_MAX, "what is charged can be credited");

/// How a request is paid for.
#[derive(Debug, Clone)]
pub struct Payment {
    /// Which wallet pays, or gets the refund of what its user was charged.
    pub client: Client,
    /// The wallet's number of the request; the same number never has a second effect.
    pub op: u64,
    /// Who is charged for growth.
    pub payer: Arc<str>,
    /// The vouchers.
    pub pieces: Pieces,
    /// The wallet's first request that is not settled, where it says so.
    pub settled: Option<u64>,
}

/// Why a payment is refused.
#[derive(Debug, Clone)]
pub enum Unpaid {
    /// The request was carried out before; this is what was answered.
    Earlier(Vec<StoreToClient>),
    /// The vouchers are refused.
    Refused {
        /// Why.
        reason: Refusal,
        /// What the request would have allocated.
        needed_bytes: u64,
        /// The store's epoch.
        epoch: Epoch,
    },
}
