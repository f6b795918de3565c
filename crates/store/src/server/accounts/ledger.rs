//! The accounts as the chunk store uses them: each change of a chunk is booked in the record that makes it.

use super::payment::STEPS_MAX;
use super::unchecked::{add_to, user_of_sum};
use super::{Accounts, Payment, Unpaid};
use crate::chunk::{Ledger, Posting};
use crate::server::note::{CREDIT, Note};
use smallvec::SmallVec;
use ullage_bank::identity;
use ullage_bank::rows::{apply, decode_rows, decode_writes, encode_rows};
use ullage_voucher::message::{Refusal, StoreToClient};
use ullage_voucher::store::{StoreAction, StoreEvent, StoreOutput};
use ullage_voucher::{Epoch, Op, User};

/// The client's own number back in place of the step's.
pub(super) fn with_op(mut message: StoreToClient, number: u64) -> StoreToClient {
    match &mut message {
        StoreToClient::Held { op }
        | StoreToClient::Spent { op, .. }
        | StoreToClient::Refunded { op, .. }
        | StoreToClient::Refused { op, .. } => *op = Op(number),
    }
    message
}

impl Ledger for Accounts {
    type Payment = Payment;
    type Receipt = Vec<StoreToClient>;
    type Refusal = Unpaid;

    fn book(&mut self, postings: &[Posting], payment: &Payment) -> Result<(Vec<u8>, Vec<StoreToClient>), Unpaid> {
        if self.unchecked.is_some() {
            return Ok(self.book_unchecked(postings, payment));
        }
        // A number that was used is answered as it was then, and never pays for anything else.
        if let Some(earlier) = self.earlier(payment.client, payment.op) {
            return Err(Unpaid::Earlier(earlier));
        }
        let mut steps: SmallVec<[(User, i64, bool); 1]> = postings
            .iter()
            .map(|Posting { user, delta_bytes }| {
                let is_users = *delta_bytes < 0 && identity::is_client_of(payment.client, user);
                (identity::user(user), *delta_bytes, is_users)
            })
            .collect();
        if steps.is_empty() {
            steps.push((identity::user(&payment.payer), 0, false));
        }
        let now = self.now();
        let mut note = Note::default();
        let mut answers = Vec::new();
        // All steps of one operation succeed or none is taken: what the later ones could be refused for is asked first.
        let closed = steps
            .iter()
            .any(|(user, ..)| !self.cores.get(self.shard_of(*user) as usize).is_some_and(|core| core.is_open(now)));
        let needed_bytes = steps.iter().map(|(_, delta, _)| (*delta).max(0) as u64).sum();
        if closed || steps.len() as u64 > STEPS_MAX {
            return Err(Unpaid::Refused { reason: Refusal::NoLease, needed_bytes, epoch: Epoch(0) });
        }
        let remembered = steps.len() == 1 || self.cores.iter().all(|core| core.remembers(payment.client, steps.len()));
        if !remembered {
            return Err(Unpaid::Refused { reason: Refusal::TooMany, needed_bytes, epoch: Epoch(0) });
        }
        let number = |position: u64| Op((payment.op << 8) | position);
        // Shards forget at times of their own: of a request of several users one may still know its part, or that it is settled.
        let numbers = number(0)..=number(STEPS_MAX - 1);
        let mut refused = None;
        if self.cores.iter().any(|core| core.has_answered(payment.client, numbers.clone())) {
            refused = Some(Refusal::Settled);
        } else if steps.len() > 1 {
            refused = (0..).zip(&steps).find_map(|(position, (user, delta, _))| {
                let core = self.cores.get(self.shard_of(*user) as usize)?;
                core.may_free(payment.client, number(position), *user, delta.unsigned_abs()).err()
            });
        }
        if let Some(reason) = refused {
            return Err(Unpaid::Refused { reason, needed_bytes, epoch: Epoch(0) });
        }
        for (position, (user, delta, is_users)) in (0..).zip(steps) {
            let op = number(position);
            let client = payment.client;
            let shard = self.shard_of(user);
            let out = &mut self.out;
            out.clear();
            match self.cores.get_mut(shard as usize) {
                Some(core) if delta >= 0 => {
                    core.spend(client, user, op, &payment.pieces, delta as u64, now, out);
                }
                Some(core) => {
                    let amount = delta.unsigned_abs();
                    core.step(StoreEvent::Free { client, user, is_users, op, amount }, now, out);
                }
                None => {}
            }
            for action in out.actions.drain(..) {
                if let StoreAction::ToClient(_, answer) = action {
                    if let StoreToClient::Refused { reason, epoch, .. } = answer {
                        return Err(Unpaid::Refused { reason, needed_bytes, epoch });
                    }
                    answers.push(with_op(answer, payment.op));
                }
            }
            note.add_all(shard, out.writes.drain(..));
        }
        self.settle(payment, &mut note);
        Ok((note.finish().unwrap_or_default(), answers))
    }

    fn correct(&mut self, postings: &[Posting]) -> Vec<u8> {
        let mut note = Note::default();
        for posting in postings.iter().filter(|posting| posting.delta_bytes < 0) {
            if let Some(sums) = &mut self.unchecked {
                add_to(sums, posting, &mut note);
                continue;
            }
            let user = identity::user(&posting.user);
            let amount = self.credits.entry(user).or_default();
            *amount += posting.delta_bytes.unsigned_abs();
            note.put(CREDIT, user.0, *amount);
        }
        note.finish().unwrap_or_default()
    }

    fn replay(&mut self, note: &[u8]) -> Result<(), String> {
        let writes = decode_writes(note).map_err(|error| error.to_string())?;
        apply(&mut self.rows, &writes);
        self.load_own();
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        let mut note = Note::default();
        for (shard, core) in (0..).zip(&self.cores) {
            note.add_all(shard, core.rows());
        }
        for (user, bytes) in &self.credits {
            note.put(CREDIT, user.0, *bytes);
        }
        for (user, bytes) in self.unchecked.iter().flatten() {
            note.put(0, user.0, *bytes as u64);
        }
        let mut state = encode_rows(&self.rows);
        state.extend(note.finish().unwrap_or_default());
        state
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.rows = decode_rows(state).map_err(|error| error.to_string())?;
        self.load_own();
        Ok(())
    }
}

impl Accounts {
    /// Any shard may have answered the client: its deletes are charged back to whoever paid.
    fn settle(&mut self, payment: &Payment, note: &mut Note) {
        let Some(settled) = payment.settled else { return };
        let below = Op(settled.min(payment.op) << 8);
        for shard in 0..self.cores.len() as u32 {
            let mut out = StoreOutput::default();
            self.step(shard, StoreEvent::Settled { client: payment.client, below }, &mut out);
            note.add_all(shard, out.writes);
        }
    }

    fn load_own(&mut self) {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let prefix = CREDIT.to_be_bytes();
        self.credits =
            self.rows.range(prefix.to_vec()..).map(|(key, value)| (User(number(&key[4..])), number(value))).collect();
        if let Some(sums) = &mut self.unchecked {
            *sums =
                self.rows.iter().filter_map(|(key, value)| Some((user_of_sum(key)?, number(value) as i64))).collect();
        }
    }
}
