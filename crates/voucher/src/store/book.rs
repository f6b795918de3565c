//! One epoch's account at one store.

use crate::message::{RefundLine, SpentLine};
use crate::{Client, Epoch, User, Voucher, VoucherId, keys};
use std::collections::BTreeMap;

/// The most lines of a report: as many of the longest as one request takes in JSON, with room for what each user has.
pub(super) const LINES_MAX: usize = 200_000;

/// The most of them that are of one user.
pub(super) const LINES_OF_USER: usize = LINES_MAX / 2;

/// To whom a refund is given that nobody is to have: the user gets the space back when its epoch is reconciled.
pub(super) const NOBODY: Client = Client(0);

/// What has been seen of one voucher.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) user: User,
    pub(super) value: u64,
    /// Held by requests that are being carried out.
    pub(super) held: u64,
    pub(super) by_client: BTreeMap<Client, u64>,
    /// What they spent together: a voucher may have as many as its user makes up clients.
    spent: u64,
    /// The voucher, once this process has found its signature right.
    pub(super) genuine: Option<Voucher>,
}

impl Seen {
    pub(super) fn new(user: User, value: u64) -> Self {
        Self { user, value, held: 0, by_client: BTreeMap::new(), spent: 0, genuine: None }
    }

    /// Whether this is the voucher whose signature was found right before: most are spent a part at a time.
    pub(super) fn is_genuine(&self, voucher: &Voucher) -> bool {
        self.genuine.is_some_and(|known| {
            known.key == voucher.key && known.terms == voucher.terms && keys::equal(&known.mac, &voucher.mac)
        })
    }

    /// What may still be spent of it here.
    pub(super) fn left(&self) -> u64 {
        self.value.saturating_sub(self.spent).saturating_sub(self.held)
    }
}

/// Everything that was done with vouchers of one epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) seen: BTreeMap<VoucherId, Seen>,
    pub(super) refunds: BTreeMap<u64, RefundLine>,
    /// Spent less refunded, by user: `S_e − S_(e−1)`.
    pub(super) delta: BTreeMap<User, i64>,
    /// How many lines the report will have.
    lines: usize,
    lines_of: BTreeMap<User, usize>,
    /// Of users who have freed more often than has lines of their own: the refund that is given to nobody.
    nobodys: BTreeMap<User, u64>,
}

impl Book {
    /// Adds a part that a client has spent of a voucher that was seen; how much that is in all.
    pub(super) fn spend(&mut self, voucher: VoucherId, (user, value): (User, u64), client: Client, part: u64) -> u64 {
        let seen = self.seen.entry(voucher).or_insert_with(|| Seen::new(user, value));
        if !seen.by_client.contains_key(&client) {
            self.lines += 1;
            *self.lines_of.entry(user).or_default() += 1;
        }
        let amount = seen.by_client.entry(client).or_default();
        *amount += part;
        seen.spent = seen.spent.saturating_add(part);
        *amount
    }

    /// Adds a refund, or makes one larger.
    pub(super) fn refund(&mut self, serial: u64, line: RefundLine) {
        if self.refunds.insert(serial, line).is_none() {
            self.lines += 1;
            *self.lines_of.entry(line.user).or_default() += 1;
        }
        if line.client == NOBODY {
            self.nobodys.insert(line.user, serial);
        }
    }

    /// Whether so much is left of the lines that a client spends of a voucher, a line each.
    pub(super) fn has_room(&self, voucher: VoucherId, user: User, client: Client) -> bool {
        self.seen.get(&voucher).is_some_and(|seen| seen.by_client.contains_key(&client))
            || self.lines < LINES_MAX && self.lines_of(user) < LINES_OF_USER
    }

    /// Whether what the user frees goes together from now on: the other half of the lines is for what is spent.
    pub(super) fn is_crowded(&self, user: User) -> bool {
        self.lines >= LINES_MAX / 2 || self.lines_of(user) >= LINES_OF_USER / 2
    }

    /// The refund of this user that is given to nobody.
    pub(super) fn nobodys(&self, user: User) -> Option<(u64, RefundLine)> {
        let serial = *self.nobodys.get(&user)?;
        Some((serial, *self.refunds.get(&serial)?))
    }

    fn lines_of(&self, user: User) -> usize {
        self.lines_of.get(&user).copied().unwrap_or(0)
    }

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
