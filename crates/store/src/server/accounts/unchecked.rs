//! Without checks: a sum for each user, and no vouchers.

use super::{Accounts, Payment};
use crate::chunk::Posting;
use crate::server::note::{CREDIT, Note};
use std::collections::HashMap;
use ullage_bank::identity;
use ullage_voucher::message::StoreToClient;
use ullage_voucher::{Epoch, Op, User};

impl Accounts {
    pub(super) fn book_unchecked(&mut self, postings: &[Posting], payment: &Payment) -> (Vec<u8>, Vec<StoreToClient>) {
        let mut used = 0;
        let mut note = Note::default();
        for posting in postings {
            used += posting.delta_bytes.max(0) as u64;
            add_to(self.unchecked.get_or_insert_default(), posting, &mut note);
        }
        let answer =
            StoreToClient::Spent { op: Op(payment.op), used, balance: payment.pieces.to_vec(), epoch: Epoch(0) };
        (note.finish().unwrap_or_default(), vec![answer])
    }
}

/// Without checks: a user's sum.
pub(super) fn add_to(sums: &mut HashMap<User, i64>, posting: &Posting, note: &mut Note) {
    let user = identity::user(&posting.user);
    let sum = sums.entry(user).or_default();
    *sum += posting.delta_bytes;
    note.put(0, user.0, *sum as u64);
}

/// Whose sum a row is, if it is one: no row of a core has a key as long as these.
pub(super) fn user_of_sum(key: &[u8]) -> Option<User> {
    let (shard, user) = key.split_first_chunk()?;
    let user = User(u64::from_be_bytes(user.try_into().ok()?));
    (u32::from_be_bytes(*shard) != CREDIT).then_some(user)
}
