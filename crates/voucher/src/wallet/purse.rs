//! The pieces on hand.

use crate::{ANYONE, Epoch, MAX_PIECES, Node, Piece, VoucherId};
use std::collections::BTreeSet;

/// A piece on hand.
#[derive(Clone, Copy, Debug)]
struct Coin {
    piece: Piece,
}

impl Coin {
    fn usable_at(&self, store: Node) -> bool {
        let audience = self.piece.voucher.terms.audience;
        audience == ANYONE || audience == store
    }

    fn is_free(&self) -> bool {
        self.piece.voucher.terms.audience == ANYONE
    }
}

/// Pieces, those that expire first in front.
#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    coins: Vec<Coin>,
    anywhere: u64,
    /// Refunds that came, until they expire: a repeated message is not a second refund.
    refunds: BTreeSet<(Epoch, VoucherId)>,
}

impl Purse {
    pub(super) fn put(&mut self, piece: Piece) {
        if piece.amount == 0 {
            return;
        }
        let coin = Coin { piece };
        // Balances of one voucher join again, so that splitting does not make ever more pieces; never to more than its value.
        let same = self.coins.iter_mut().find(|other| other.piece.voucher == piece.voucher);
        if let Some(other) = same {
            let added = piece.amount.min(piece.voucher.terms.value.saturating_sub(other.piece.amount));
            other.piece.amount += added;
            self.anywhere += if coin.is_free() { added } else { 0 };
            return;
        }
        if coin.is_free() {
            self.anywhere += piece.amount;
        }
        let expiry = piece.voucher.terms.expiry;
        let at = self.coins.partition_point(|other| other.piece.voucher.terms.expiry <= expiry);
        self.coins.insert(at, coin);
    }

    /// What can be spent anywhere.
    pub(super) fn anywhere(&self) -> u64 {
        self.anywhere
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.coins.iter().map(|coin| &coin.piece)
    }

    /// Pieces for exactly `need` bytes at this store, no more of them than a request may carry, or nothing
    /// at all. Those that can only be used there go first, then those that expire first; with very many
    /// small ones, the largest first.
    pub(super) fn take(&mut self, need: u64, store: Node) -> Option<Vec<Piece>> {
        let mut order: Vec<usize> = Vec::new();
        let simple = self.coins.len() <= MAX_PIECES;
        let mut found = 0;
        for bound in [true, false] {
            for (at, coin) in self.coins.iter().enumerate() {
                if (simple && found >= need) || !coin.usable_at(store) || coin.is_free() == bound {
                    continue;
                }
                found += coin.piece.amount;
                order.push(at);
            }
        }
        if !simple {
            order.sort_by_key(|at| std::cmp::Reverse(self.coins[*at].piece.amount));
            order.truncate(MAX_PIECES);
            found = order.iter().map(|at| self.coins[*at].piece.amount).sum();
        }
        if found < need {
            return None;
        }
        let mut pieces = Vec::with_capacity(order.len());
        let mut missing = need;
        for at in order {
            let free = self.coins[at].is_free();
            if let Some(part) = self.coins[at].piece.split(missing) {
                missing -= part.amount;
                self.anywhere -= if free { part.amount } else { 0 };
                pieces.push(part);
            }
        }
        self.coins.retain(|coin| coin.piece.amount > 0);
        Some(pieces)
    }

    /// Whether this refund comes for the first time.
    pub(super) fn is_new(&mut self, refund: &Piece) -> bool {
        self.refunds.insert((refund.voucher.terms.expiry, refund.id()))
    }

    /// Takes free pieces for at most `amount`, those that last longest first: they are of most use to others.
    pub(super) fn take_free(&mut self, amount: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut missing = amount;
        for coin in self.coins.iter_mut().rev() {
            if missing > 0
                && coin.is_free()
                && pieces.len() < MAX_PIECES
                && let Some(part) = coin.piece.split(missing)
            {
                missing -= part.amount;
                self.anywhere -= part.amount;
                pieces.push(part);
            }
        }
        self.coins.retain(|coin| coin.piece.amount > 0);
        pieces
    }

    pub(super) fn drop_expired(&mut self, epoch: Epoch) {
        self.refunds = self.refunds.split_off(&(epoch, VoucherId::default()));
        let anywhere = &mut self.anywhere;
        self.coins.retain(|coin| {
            let keep = coin.piece.voucher.terms.expiry >= epoch;
            if !keep && coin.is_free() {
                *anywhere -= coin.piece.amount;
            }
            keep
        });
    }
}
