//! The pieces on hand.

use crate::{ANYONE, Epoch, MAX_PIECES, Node, Piece, Pieces, VoucherId};
use std::collections::{BTreeMap, BTreeSet};

/// Where a piece can be spent, and which it is: in this order those that expire first come first.
type Place = (Node, Epoch, VoucherId);

fn place(piece: &Piece) -> Place {
    let terms = &piece.voucher.terms;
    (terms.audience, terms.expiry, piece.id())
}

fn all_of(audience: Node) -> std::ops::RangeInclusive<Place> {
    let last = VoucherId {
        issuer: crate::Issuer { node: Node(u32::MAX), incarnation: crate::Incarnation(u32::MAX) },
        serial: u64::MAX,
    };
    (audience, Epoch(0), VoucherId::default())..=(audience, Epoch(u64::MAX), last)
}

/// The pieces on hand. Who deletes many files has as many small refunds: nothing here looks at all of them to pay once.
#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    pieces: BTreeMap<Place, Piece>,
    /// The same, by amount.
    by_amount: BTreeSet<(Node, u64, Place)>,
    anywhere: u64,
    /// No piece expires before this epoch.
    valid_from: Epoch,
    /// Refunds that came, until they expire: a repeated message is not a second refund.
    refunds: BTreeSet<(Epoch, VoucherId)>,
}

impl Purse {
    pub(super) fn put(&mut self, piece: Piece) {
        if piece.amount == 0 {
            return;
        }
        let at = place(&piece);
        let mut joined = piece;
        // Balances of one voucher join again, so that splitting does not make ever more pieces; never to more than its value.
        if let Some(other) = self.pieces.get(&at) {
            if other.voucher != piece.voucher {
                return;
            }
            joined.amount = other.amount.saturating_add(piece.amount).min(piece.voucher.terms.value.max(other.amount));
        }
        self.valid_from = self.valid_from.min(piece.voucher.terms.expiry);
        self.remove(&at);
        self.insert(joined);
    }

    fn insert(&mut self, piece: Piece) {
        let at = place(&piece);
        self.anywhere += if at.0 == ANYONE { piece.amount } else { 0 };
        self.by_amount.insert((at.0, piece.amount, at));
        self.pieces.insert(at, piece);
    }

    fn remove(&mut self, at: &Place) -> Option<Piece> {
        let piece = self.pieces.remove(at)?;
        self.anywhere -= if at.0 == ANYONE { piece.amount } else { 0 };
        self.by_amount.remove(&(at.0, piece.amount, *at));
        Some(piece)
    }

    /// What can be spent anywhere.
    pub(super) fn anywhere(&self) -> u64 {
        self.anywhere
    }

    /// What can be spent only there.
    pub(super) fn bound_to(&self, store: Node) -> u64 {
        self.pieces.range(all_of(store)).map(|(_, piece)| piece.amount).fold(0, u64::saturating_add)
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values()
    }

    /// Pieces for exactly `need` bytes at this store, no more of them than a request may carry, or nothing
    /// at all. Those that can only be used there go first, then those that expire first; where that
    /// would be too many, the largest first.
    pub(super) fn take(&mut self, need: u64, store: Node) -> Option<Pieces> {
        if let Some(part) = self.split_first(need, store) {
            return Some(Pieces::from_buf([part]));
        }
        let bound = self.pieces.range(all_of(store)).filter(|_| store != ANYONE);
        let in_order = bound.chain(self.pieces.range(all_of(ANYONE))).map(|(at, piece)| (piece.amount, *at));
        let chosen = covering(need, in_order).or_else(|| covering(need, self.largest_first(store)))?;
        Some(self.take_from(need, &chosen).into())
    }

    /// As [`Self::take`], of nothing but what can be spent there only.
    pub(super) fn take_bound(&mut self, need: u64, store: Node) -> Option<Pieces> {
        let in_order = self.pieces.range(all_of(store)).map(|(at, piece)| (piece.amount, *at));
        let chosen = covering(need, in_order).or_else(|| covering(need, self.by_amount_of(store)))?;
        Some(self.take_from(need, &chosen).into())
    }

    /// The usual case of [`Self::take`]: the first piece is larger than what is needed, and only shrinks.
    fn split_first(&mut self, need: u64, store: Node) -> Option<Piece> {
        // Those for anyone come first of all; mostly there are no others.
        let (first, _) = self.pieces.first_key_value()?;
        let (last, _) = self.pieces.last_key_value()?;
        let bound = (last.0 >= store && store != ANYONE).then(|| self.pieces.range(all_of(store)).next()).flatten();
        let at = bound.map_or(*first, |(at, _)| *at);
        let piece =
            self.pieces.get_mut(&at).filter(|piece| (at.0 == store || at.0 == ANYONE) && piece.amount > need)?;
        let before = piece.amount;
        let part = piece.split(need)?;
        // In this order, or a set of one would give its memory back and take it again.
        self.by_amount.insert((at.0, piece.amount, at));
        self.by_amount.remove(&(at.0, before, at));
        self.anywhere -= if at.0 == ANYONE { need } else { 0 };
        Some(part)
    }

    fn largest_first(&self, store: Node) -> impl Iterator<Item = (u64, Place)> + '_ {
        let bound = self.by_amount_of(store).filter(move |_| store != ANYONE);
        let (mut bound, mut free) = (bound.peekable(), self.by_amount_of(ANYONE).peekable());
        std::iter::from_fn(move || match (bound.peek(), free.peek()) {
            (Some((one, _)), Some((other, _))) if one >= other => bound.next(),
            (Some(_), None) => bound.next(),
            _ => free.next(),
        })
    }

    fn by_amount_of(&self, audience: Node) -> impl Iterator<Item = (u64, Place)> + '_ {
        let (first, last) = all_of(audience).into_inner();
        let all = self.by_amount.range((audience, 0, first)..=(audience, u64::MAX, last));
        all.rev().map(|(_, amount, at)| (*amount, *at))
    }

    /// Splits off `need` in all.
    fn take_from(&mut self, need: u64, chosen: &[Place]) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(chosen.len());
        let mut missing = need;
        for at in chosen {
            let Some(mut piece) = self.remove(at) else { continue };
            if let Some(part) = piece.split(missing) {
                missing -= part.amount;
                pieces.push(part);
            }
            if piece.amount > 0 {
                self.insert(piece);
            }
        }
        pieces
    }

    /// Whether this refund comes for the first time.
    pub(super) fn is_new(&mut self, refund: &Piece) -> bool {
        self.refunds.insert((refund.voucher.terms.expiry, refund.id()))
    }

    /// Takes free pieces for at most `amount`, those that last longest first: they are of most use to others.
    pub(super) fn take_free(&mut self, amount: u64) -> Vec<Piece> {
        let lasting = self.pieces.range(all_of(ANYONE)).rev().take(MAX_PIECES);
        let mut found = 0u64;
        let chosen: Vec<Place> = lasting
            .take_while(|(_, piece)| {
                let missing = found < amount;
                found = found.saturating_add(piece.amount);
                missing
            })
            .map(|(at, _)| *at)
            .collect();
        self.take_from(amount, &chosen)
    }

    pub(super) fn drop_expired(&mut self, epoch: Epoch) {
        if epoch <= self.valid_from {
            return;
        }
        self.valid_from = epoch;
        self.refunds = self.refunds.split_off(&(epoch, VoucherId::default()));
        let expired: Vec<Place> = self.pieces.keys().filter(|(_, expiry, _)| *expiry < epoch).copied().collect();
        for at in expired {
            self.remove(&at);
        }
    }
}

/// The first of them that cover `need`, unless that takes more than a request may carry.
fn covering(need: u64, pieces: impl Iterator<Item = (u64, Place)>) -> Option<Vec<Place>> {
    let mut found = 0u64;
    let mut chosen = Vec::new();
    for (amount, at) in pieces.take(MAX_PIECES) {
        if found >= need {
            break;
        }
        found = found.saturating_add(amount);
        chosen.push(at);
    }
    (found >= need).then_some(chosen)
}
