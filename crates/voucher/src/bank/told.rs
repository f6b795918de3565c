//! What was told of a voucher with which somebody cheated: from then on only what is more than that is.

use super::Finding;
use crate::{Client, Epoch, Node, VoucherId};
use std::collections::BTreeSet;

/// So many times at most a voucher's findings are told before all is known: each has all names, and a user can make up many.
const TELLINGS_MAX: usize = 16;

/// All findings of one voucher.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    excess: u64,
    clients: BTreeSet<Client>,
    stores: BTreeSet<Node>,
    tellings: usize,
}

impl Told {
    /// Whether a finding is news: of another client or store at once, of a larger sum when there will be no larger one.
    pub(super) fn lacks(&self, finding: &Finding, last: bool) -> bool {
        let Some(Overspending { excess, clients, stores, .. }) = finding.overspending() else { return true };
        let names = !clients.iter().all(|client| self.clients.contains(client));
        let places = !stores.iter().all(|store| self.stores.contains(store));
        excess > self.excess && (last || (self.tellings < TELLINGS_MAX && (names || places)))
    }

    /// Adds a finding; by how many bytes it is more.
    pub(super) fn add(&mut self, finding: &Finding) -> u64 {
        let Some(Overspending { excess, clients, stores, .. }) = finding.overspending() else { return 0 };
        let more = excess.saturating_sub(self.excess);
        self.excess += more;
        self.tellings += 1;
        self.clients.extend(clients);
        self.stores.extend(stores);
        more
    }
}

/// What a finding says of a voucher.
pub(super) struct Overspending<'a> {
    pub(super) epoch: Epoch,
    pub(super) voucher: VoucherId,
    /// Bytes above what there was to spend.
    excess: u64,
    clients: &'a [Client],
    stores: &'a [Node],
}

impl Finding {
    pub(super) fn overspending(&self) -> Option<Overspending<'_>> {
        let (epoch, voucher, spent, had, clients, stores) = match self {
            Self::Overspent { epoch, voucher, spent, value, clients, stores, .. } => {
                (*epoch, *voucher, spent, value, clients, stores)
            }
            Self::Forged { epoch, voucher, spent, freed, clients, stores, .. } => {
                (*epoch, *voucher, spent, freed, clients, stores)
            }
            Self::StoreLied { .. } => return None,
        };
        Some(Overspending { epoch, voucher, excess: spent.saturating_sub(*had), clients, stores })
    }
}
