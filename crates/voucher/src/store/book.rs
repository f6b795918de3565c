//! One epoch's account at one store.

use crate::message::{RefundLine, SpentLine};
use crate::{Client, Epoch, User, Voucher, VoucherId, keys};
use std::collections::BTreeMap;

/// What has been seen of one voucher.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) user: User,
    pub(super) value: u64,
    /// Held by requests that are being carried out.
    pub(super) held: u64,
    pub(super) by_client: BTreeMap<Client, u64>,
    /// The voucher, once this process has found its signature right.
    pub(super) genuine: Option<Voucher>,
}

impl Seen {
    pub(super) fn new(user: User, value: u64) -> Self {
        Self { user, value, held: 0, by_client: BTreeMap::new(), genuine: None }
    }

    /// Whether this is the voucher whose signature was found right before: most are spent a part at a time.
    pub(super) fn is_genuine(&self, voucher: &Voucher) -> bool {
        self.genuine.is_some_and(|known| {
            known.key == voucher.key && known.terms == voucher.terms && keys::equal(&known.mac, &voucher.mac)
        })
    }

    pub(super) fn spent(&self) -> u64 {
        self.by_client.values().sum()
    }

    /// What may still be spent of it here.
    pub(super) fn left(&self) -> u64 {
        self.value.saturating_sub(self.spent()).saturating_sub(self.held)
    }
}

/// Everything that was done with vouchers of one epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) seen: BTreeMap<VoucherId, Seen>,
    pub(super) refunds: BTreeMap<u64, RefundLine>,
    /// Spent less refunded, by user: `S_e − S_(e−1)`.
    pub(super) delta: BTreeMap<User, i64>,
}

impl Book {
    pub(super) fn is_held(&self) -> bool {
        self.seen.values().any(|seen| seen.held > 0)
    }

    pub(super) fn lines(&self, epoch: Epoch) -> impl Iterator<Item = SpentLine> + '_ {
        self.seen.iter().flat_map(move |(voucher, seen)| {
            seen.by_client.iter().map(move |(client, amount)| SpentLine {
                voucher: *voucher,
                epoch,
                user: seen.user,
                value: seen.value,
                client: *client,
                amount: *amount,
            })
        })
    }
}
