//! Revocation: who is asked to give back when a request is short, and who is waited for.

use super::{BankCore, BankOutput, Policy};
use crate::message::BankToClient;
use crate::{ANYONE, Client, Micros, Op, User};

/// A client with more grants than these is waited for unseen.
const CLAIMS_LOOKED_AT: usize = 1024;

/// All clients of a user are asked so often at most, also where requests wait for no time at all.
const ROUND_MIN: Micros = Micros::from_secs(1);

impl BankCore {
    /// Asks the user's other clients for what they can spare: all, since refunds are known only when they are reported. Who was asked and has
    /// said nothing since is asked again only when the time that a request waits is over: else each request of a user with nothing
    /// left would cost as much as he makes up clients. Waited for are those that must have something.
    pub(super) fn ask_others(&mut self, user: User, asker: Client, until: Micros, now: Micros, out: &mut BankOutput) {
        let Some(account) = self.accounts.get_mut(&user) else { return };
        let heard = std::mem::take(&mut account.heard);
        let mut others: Vec<Client> = if now < account.all_asked_until {
            // Who was asked before and has not answered is still waited for.
            account.asked.remove(&asker);
            heard.into_iter().collect()
        } else {
            account.all_asked_until = until.max(now + ROUND_MIN);
            account.asked.clear();
            account.active.keys().copied().collect()
        };
        others.retain(|client| *client != asker);
        // It asks, and is not asked: the next one that is short asks it.
        account.heard.insert(asker);
        for other in others {
            self.tell(other, BankToClient::Revoke { user }, out);
            let waited_for = self.has_claim(other, user);
            if let Some(account) = self.accounts.get_mut(&user).filter(|a| waited_for && !a.silent.contains(&other)) {
                account.asked.insert(other);
            }
        }
    }

    /// Whether a client was given more, as far as is known, than it has given back and spent.
    fn has_claim(&self, client: Client, user: User) -> bool {
        let grants = self.grants.range((client, Op(0))..=(client, Op(u64::MAX)));
        let newest = grants.rev().filter(|(_, grant)| grant.user == user).take(CLAIMS_LOOKED_AT);
        let mut seen = 0;
        let holds = newest.inspect(|_| seen += 1).flat_map(|(_, grant)| grant.pieces()).any(|piece| {
            let (terms, id) = (piece.voucher.terms, piece.id());
            if terms.expiry <= self.head.epoch || terms.audience != ANYONE {
                return false;
            }
            let first = self.grants_by_voucher.get(&id).is_some_and(|(holder, _)| *holder == client);
            let given = if first { i128::from(terms.value) } else { 0 };
            let moved =
                self.moved.get(&terms.epoch).and_then(|moved| moved.get(&id)?.get(&client)).copied().unwrap_or(0);
            let tally = self.spent.get(&terms.epoch).and_then(|spent| spent.get(&id));
            given + i128::from(moved) > tally.map_or(0, |tally| i128::from(tally.spent_by(client)))
        });
        holds || seen == CLAIMS_LOOKED_AT
    }

    /// Whether this bank revokes.
    pub fn revokes(&self) -> bool {
        matches!(self.config.policy, Policy::Revocation { .. })
    }
}
