//! Vouchers that come back: pooled and passed on, also to requests that wait for them.
//!
//! A returned piece is never turned into a new voucher before its own epoch is reconciled: the bank cannot
//! know whether it was spent already. The same voucher, with the same serial, is passed on to whoever needs
//! it. So its value stays in V of its own epoch, one store still lets each serial be spent only once, and a
//! client that returns what it has spent is named like any other that spends twice.

use super::account::Waiting;
use super::grant::Ask;
use super::{BankCore, BankOutput, Policy, Waits, load};
use crate::message::{BankToClient, Denial};
use crate::{ANYONE, Client, Epoch, MAX_PIECES, Micros, Node, Op, Piece, User};

/// A return that was made, and of how many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) epoch: Epoch,
    pub(super) accepted: u64,
    pub(super) user: Option<User>,
}

impl BankCore {
    pub(super) fn take_back(&mut self, client: Client, user: User, op: Op, pieces: &[Piece], out: &mut BankOutput) {
        if let Some(recorded) = self.returns.get(&(client, op)) {
            let accepted = recorded.accepted;
            self.tell(client, BankToClient::Returned { user, op, accepted }, out);
            return;
        }
        let mut accepted = 0;
        // What comes back when no more is remembered is as good as expired.
        let crowded = self.accounts.get(&user).is_some_and(|account| account.returns >= self.config.user_max);
        for piece in pieces.iter().take(if crowded { 0 } else { MAX_PIECES }) {
            if self.is_returnable(client, user, piece) {
                accepted += piece.amount;
                self.move_claim(piece, client, -(piece.amount as i64), out);
                if let Some(account) = self.accounts.get_mut(&user) {
                    let pooled = account.pool_put(*piece);
                    out.writes.push(load::pooled_key(user, &pooled).put(&pooled));
                }
            }
        }
        let epoch = self.head.epoch;
        if accepted > 0 {
            out.writes.push(load::return_key(epoch, client, op).put(&(accepted, user)));
            self.record_return(client, op, Recorded { epoch, accepted, user: Some(user) });
        }
        let revokes = self.revokes();
        if let Some(account) = self.accounts.get_mut(&user).filter(|_| revokes) {
            account.asked.remove(&client);
            account.hear(client);
        }
        self.tell(client, BankToClient::Returned { user, op, accepted }, out);
        self.serve_user_now(user, out);
    }

    /// Also when loading.
    pub(super) fn record_return(&mut self, client: Client, op: Op, recorded: Recorded) {
        if let Some(account) = recorded.user.and_then(|user| self.accounts.get_mut(&user)) {
            account.returns += 1;
        }
        self.returns.insert((client, op), recorded);
    }

    /// Only genuine vouchers of this user that others can still use, and only from a client that was given as
    /// much of it. Whose a refund is the bank hears later: of one that it has not passed on itself, no
    /// more than the value comes back.
    fn is_returnable(&self, client: Client, user: User, piece: &Piece) -> bool {
        let terms = &piece.voucher.terms;
        let genuine = terms.user == user
            && terms.audience == ANYONE
            && terms.expiry > self.head.epoch
            && terms.epoch <= self.head.epoch.plus(self.config.params.skew())
            && terms.epoch > self.head.horizon
            && piece.amount > 0
            && self.accounts.contains_key(&user)
            && self.keys.verify(&piece.voucher).is_ok();
        if !genuine {
            return false;
        }
        let moved = self.moved.get(&terms.epoch).and_then(|moved| moved.get(&piece.id()));
        let passed = moved.and_then(|moved| moved.get(&client)).copied().unwrap_or(0);
        let amount = i128::from(piece.amount);
        if terms.issuer.node == self.config.node {
            let given = match self.grants_by_voucher.get(&piece.id()) {
                Some((holder, _)) if *holder == client => terms.value,
                Some(_) => 0,
                None => return false,
            };
            return i128::from(given) + i128::from(passed) >= amount;
        }
        let unclaimed: i128 =
            moved.into_iter().flat_map(|moved| moved.values()).map(|by| -i128::from((*by).min(0))).sum();
        i128::from(passed) >= amount || unclaimed + amount <= i128::from(terms.value)
    }

    /// Takes returned pieces for at most `want` bytes out of the pool, as far as the quota allows.
    pub(super) fn pass_on(&mut self, user: User, want: u64, audience: Node, out: &mut BankOutput) -> Vec<Piece> {
        let epoch = self.head.epoch;
        let Some(account) = self.accounts.get_mut(&user) else { return Vec::new() };
        while let Some(first) = account.pool.first_entry().filter(|first| first.get().voucher.terms.expiry <= epoch) {
            out.writes.push(load::pooled_key(user, &first.remove()).remove());
        }
        let mut passed = Vec::new();
        let mut missing = want.min(account.passable(audience, epoch));
        while missing > 0 && passed.len() < MAX_PIECES / 2 {
            let Some(mut last) = account.pool.last_entry() else { break };
            let piece = last.get_mut();
            let key = load::pooled_key(user, piece);
            if let Some(part) = piece.split(missing) {
                missing -= part.amount;
                passed.push(part);
            }
            if piece.amount > 0 {
                out.writes.push(key.put(&*piece));
            } else {
                last.remove();
                out.writes.push(key.remove());
            }
        }
        passed
    }

    /// Keeps who answers for how much of a voucher, for naming.
    pub(super) fn move_claim(&mut self, piece: &Piece, client: Client, by: i64, out: &mut BankOutput) {
        let epoch = piece.voucher.terms.epoch;
        let claims = self.moved.entry(epoch).or_default().entry(piece.id()).or_default();
        *claims.entry(client).or_default() += by;
        out.writes.push(load::moved_key(epoch, piece.id()).put(&*claims));
    }

    /// Puts a request into the queue of its user, once.
    pub(super) fn enqueue(&mut self, user: User, waiting: Waiting, now: Micros, out: &mut BankOutput) {
        let epoch = self.head.epoch;
        let Some(account) = self.accounts.get_mut(&user) else { return };
        if account.waiting.iter().any(|other| (other.client, other.ask.op) == (waiting.client, waiting.ask.op)) {
            return;
        }
        // What comes back pays nothing that is bound to a store; what is left is kept for such that wait.
        let is_bound = waiting.ask.audience != ANYONE;
        let first = !is_bound && account.waiting.iter().all(|other| other.ask.audience != ANYONE);
        let left = if account.waiting.is_empty() { account.remaining() } else { 0 };
        let short = waiting.ask.want > account.passable(waiting.ask.audience, epoch).saturating_add(left);
        let (asker, until) = (waiting.client, waiting.until);
        account.waiting.push_back(waiting);
        if first && short {
            self.ask_others(user, asker, until, now, out);
        }
    }

    pub(super) fn serve_waiting(&mut self, now: Micros, out: &mut BankOutput) {
        let users: Vec<User> =
            self.accounts.iter().filter(|(_, a)| !a.waiting.is_empty()).map(|(user, _)| *user).collect();
        for user in users {
            self.serve_user(user, now, out);
        }
    }

    fn serve_user_now(&mut self, user: User, out: &mut BankOutput) {
        // Time-outs are left to the tick.
        self.serve_user(user, Micros(0), out);
    }

    /// Satisfies waiting requests in order, as far as there is enough; those that waited too long, or (where only answers are
    /// waited for) for nobody, get what there is.
    pub(super) fn serve_user(&mut self, user: User, now: Micros, out: &mut BankOutput) {
        let patient = matches!(self.config.policy, Policy::Revocation { waits: Waits::Enough, .. });
        loop {
            let (remaining, epoch) = (self.remaining(user), self.head.epoch);
            let Some(account) = self.accounts.get_mut(&user) else { return };
            if account.waiting.is_empty() {
                return;
            }
            let Some((position, left)) = account.next_served(now, epoch, remaining, patient) else { return };
            let Some(waiting) = account.waiting.remove(position) else { return };
            let Ask { want, audience, .. } = waiting.ask;
            let short = want > account.passable(audience, epoch).saturating_add(left);
            if short && audience == ANYONE && now >= waiting.until {
                account.silent.append(&mut account.asked);
            }
            let blocked = account.blocked;
            if blocked {
                self.deny(waiting.client, user, waiting.ask.op, Denial::Blocked, out);
                continue;
            }
            // What is left to mint is taken first: a pooled piece may expire, but it may also be all there is.
            let Waiting { client, ask, .. } = waiting;
            let minted = ask.want.min(left);
            let passed = self.pass_on(user, ask.want - minted, ask.audience, out);
            self.give(client, user, Ask { want: minted, ..ask }, passed, out);
        }
    }
}
