//! What a store must refuse, and what it must not forget.

use crate::bank::BankEvent;
use crate::message::{BankToClient, ClientToBank, Refusal, StoreToClient};
use crate::store::{StoreConfig, StoreEvent};
use crate::testing::{Cluster, store_node};
use crate::{Client, Incarnation, Issuer, KeyId, Keyring, Micros, Node, Op, Params, Piece, Terms, User, Voucher};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const U: User = User(1);
pub(super) const C: Client = Client(1);

pub(super) fn cluster() -> Cluster {
    let mut cluster = Cluster::new(2);
    cluster.quota(U, 10_000);
    cluster
}

#[test]
fn a_voucher_buys_what_it_is_worth_and_the_balance_is_returned() {
    let mut c = cluster();
    let pieces = c.withdraw(C, U, 2000);
    assert_eq!(pieces[0].amount, 2000);
    let balance = c.spend(store_node(1), C, U, &pieces, 600).unwrap();
    assert_eq!(balance[0].amount, 1400);
    let balance = c.spend(store_node(2), C, U, &balance, 1400).unwrap();
    assert!(balance.is_empty());
    assert_eq!(c.used(U), 2000);
}

#[test]
fn one_store_never_lets_more_than_the_value_be_spent_whatever_the_amount_says() {
    let mut c = cluster();
    let whole = c.withdraw(C, U, 1000)[0];
    c.spend(store_node(1), C, U, &[whole], 700).unwrap();
    // The client forgets the balance and presents the whole voucher again.
    assert_eq!(c.spend(store_node(1), C, U, &[whole], 301), Err(Refusal::Overspent));
    // The amount is not signed, but it cannot exceed the value.
    let more = Piece { amount: 1001, ..whole };
    assert_eq!(c.spend(store_node(2), C, U, &[more], 10), Err(Refusal::Malformed));
    // The same piece twice in one request.
    let half = Piece { amount: 300, ..whole };
    assert_eq!(c.spend(store_node(1), C, U, &[half, half], 400), Err(Refusal::Overspent));
    c.spend(store_node(1), C, U, &[half], 300).unwrap();
}

#[test]
fn refused_forged_foreign_short_and_future() {
    let mut c = cluster();
    let good = c.withdraw(C, U, 1000)[0];
    let at = store_node(1);
    for byte in 0..86 {
        let mut bytes = good.encode();
        bytes[byte] ^= 1;
        if let Ok(bad) = Piece::decode(&bytes) {
            assert!(c.spend(at, C, bad.voucher.terms.user, &[bad], 1).is_err(), "byte {byte}");
        }
    }
    assert_eq!(c.spend(at, C, User(2), &[good], 1), Err(Refusal::ForeignUser));
    assert_eq!(c.spend(at, C, U, &[good], 1001), Err(Refusal::Short));
    let others = Keyring::with_root(KeyId(1), [8; 32]);
    let forged = others.sign(good.voucher.terms).unwrap().whole();
    assert_eq!(c.spend(at, C, U, &[forged], 1), Err(Refusal::BadSignature));
    let sign = |terms: Terms| c.keys.sign(terms).unwrap().whole();
    let terms = good.voucher.terms;
    let future = sign(Terms { epoch: terms.epoch.plus(2), expiry: terms.expiry.plus(2), ..terms });
    let skewed = sign(Terms { epoch: terms.epoch.plus(1), expiry: terms.expiry.plus(1), serial: 99, ..terms });
    let lasting = sign(Terms { expiry: terms.expiry.plus(1), ..terms });
    let elsewhere = sign(Terms { audience: store_node(2), ..terms });
    assert_eq!(c.spend(at, C, U, &[future], 1), Err(Refusal::Future));
    assert_eq!(c.spend(at, C, U, &[lasting], 1), Err(Refusal::Malformed));
    assert_eq!(c.spend(at, C, U, &[elsewhere], 1), Err(Refusal::ForeignAudience));
    c.spend(at, C, U, &[skewed], 1).unwrap();
}

/// A signature is computed once for each voucher at each store: nothing that differs in a bit may pass for it afterwards.
#[test]
fn what_is_like_a_voucher_that_was_spent_here_is_refused_as_before() {
    let mut c = cluster();
    let good = Piece { amount: 10, ..c.withdraw(C, U, 1000)[0] };
    let at = store_node(1);
    c.spend(at, C, U, &[good], 1).unwrap();
    for bit in 0..86 * 8 {
        let mut bytes = good.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(bad) = Piece::decode(&bytes) {
            let refused = c.spend(at, C, bad.voucher.terms.user, &[bad], 1).unwrap_err();
            assert_ne!(refused, Refusal::Overspent, "bit {bit}");
        }
    }
    c.spend(at, C, U, &[good], 1).unwrap();
    c.reload_store(at);
    c.tick();
    let mac = [0; 32];
    let forged = Piece { voucher: Voucher { mac, ..good.voucher }, ..good };
    assert_eq!(c.spend(at, C, U, &[forged], 1), Err(Refusal::BadSignature));
    c.spend(at, C, U, &[good], 1).unwrap();
    // Its key is retired.
    let others = Arc::new(Keyring::with_root(KeyId(2), [8; 32]));
    c.stores.get_mut(&at).unwrap().set_keys(others);
    assert_eq!(c.spend(at, C, U, &[good], 1), Err(Refusal::BadSignature));
    assert_eq!(c.used(U), 3);
}

#[test]
fn the_issuer_is_signed() {
    let mut c = cluster();
    let good = c.withdraw(C, U, 1000)[0];
    let terms = Terms { issuer: Issuer { node: store_node(2), incarnation: Incarnation(1) }, ..good.voucher.terms };
    let renamed = Piece { voucher: Voucher { terms, ..good.voucher }, ..good };
    assert_eq!(c.spend(store_node(1), C, U, &[renamed], 1), Err(Refusal::BadSignature));
}

#[test]
fn a_store_limited_to_its_audience_can_make_nothing_for_others() {
    let mut c = cluster();
    let secret = c.keys.audience_secret(KeyId(1), store_node(1)).unwrap();
    let mut limited = Keyring::new();
    limited.add_audience(KeyId(1), store_node(1), secret);
    let terms = c.withdraw(C, U, 1000)[0].voucher.terms;
    assert!(limited.sign(terms).is_none(), "not for anyone");
    let own = Terms { audience: store_node(1), ..terms };
    let mine = limited.sign(own).unwrap();
    assert_eq!(c.keys.verify(&mine), Ok(()));
    assert_eq!(c.spend(store_node(2), C, U, &[mine.whole()], 1), Err(Refusal::ForeignAudience));
    // Its key under another audience's name is no key at all.
    let other = Terms { audience: store_node(2), ..terms };
    let renamed = Voucher { terms: other, ..mine };
    assert_eq!(c.spend(store_node(2), C, U, &[renamed.whole()], 1), Err(Refusal::BadSignature));
}

#[test]
fn expired_and_reported_vouchers_are_refused() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    c.epochs(2);
    c.spend(store_node(1), C, U, &[piece], 10).unwrap();
    c.epochs(1);
    assert_eq!(c.spend(store_node(1), C, U, &[piece], 10), Err(Refusal::Expired));
    // A store whose epoch were set back would still refuse: it has reported.
    assert!(c.stores[&store_node(1)].reported() >= piece.voucher.terms.epoch);
}

#[test]
fn a_request_in_progress_holds_its_epoch_open() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    let at = store_node(1);
    let op = Op(77_777);
    let hold = StoreEvent::Hold { client: C, user: U, op, pieces: vec![piece], at_most: 500 };
    assert_eq!(c.store_event(at, hold.clone()), Some(StoreToClient::Held { op }));
    assert_eq!(c.store_event(at, hold), Some(StoreToClient::Held { op }), "a repetition");
    c.epochs(5);
    assert!(c.stores[&at].reported() < piece.voucher.terms.epoch);
    assert!(c.a(U) >= 1000);
    c.store_event(at, StoreEvent::Commit { client: C, op, used: 400 });
    c.epochs(5);
    assert_eq!(c.a(U), 400);
}

#[test]
fn repetitions_have_no_second_effect_also_after_a_crash() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    let at = store_node(1);
    let first = c.spend_as(at, C, U, Op(5), &[piece], 600).unwrap();
    assert_eq!(c.spend_as(at, C, U, Op(5), &[piece], 600).unwrap(), first);
    c.reload_store(at);
    c.run(Micros::from_secs(3));
    assert_eq!(c.spend_as(at, C, U, Op(5), &[piece], 600).unwrap(), first);
    assert_eq!(c.used(U), 600);
    let free = StoreEvent::Free { client: C, user: U, is_users: true, op: Op(6), amount: 100 };
    let refund = c.store_event(at, free.clone());
    assert_eq!(c.store_event(at, free.clone()), refund);
    c.reload_store(at);
    c.run(Micros::from_secs(3));
    assert_eq!(c.store_event(at, free), refund);
    assert_eq!(c.used(U), 500);
}

#[test]
fn a_crash_keeps_what_was_spent() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    c.spend(store_node(1), C, U, &[piece], 600).unwrap();
    c.reload_store(store_node(1));
    c.run(Micros::from_secs(3));
    assert_eq!(c.spend(store_node(1), C, U, &[piece], 401), Err(Refusal::Overspent));
    c.epochs(6);
    assert_eq!(c.a(U), 600);
}

#[test]
fn without_a_lease_nothing_is_taken_or_refunded() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    c.spend(store_node(1), C, U, &[piece], 100).unwrap();
    c.down.push(store_node(1));
    c.run(Micros::from_secs(11));
    let balance = Piece { amount: 900, ..piece };
    assert_eq!(c.spend(store_node(1), C, U, &[balance], 1), Err(Refusal::NoLease));
    assert_eq!(c.free(store_node(1), C, U, 1), Err(Refusal::NoLease));
}

#[test]
fn no_more_is_refunded_than_the_user_has_there() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    c.spend(store_node(1), C, U, &[piece], 600).unwrap();
    assert_eq!(c.free(store_node(1), C, U, 601), Err(Refusal::MoreThanHeld));
    assert_eq!(c.free(store_node(2), C, U, 1), Err(Refusal::MoreThanHeld));
    assert_eq!(c.free(store_node(1), C, U, 600).unwrap().amount, 600);
    assert_eq!(c.free(store_node(1), C, U, 1), Err(Refusal::MoreThanHeld));
}

#[test]
fn a_refund_charges_back_whoever_was_charged_not_who_deletes() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    c.spend(store_node(1), C, U, &[piece], 600).unwrap();
    let refund = c.free(store_node(1), Client(9), U, 600).unwrap();
    assert_eq!(refund.voucher.terms.user, U);
    assert_eq!(refund.voucher.terms.epoch, c.epoch());
    assert_eq!(refund.voucher.terms.issuer.node, store_node(1));
    assert_eq!(c.spend(store_node(2), Client(9), User(9), &[refund], 1), Err(Refusal::ForeignUser));
}

#[test]
fn only_addressed_stores_take_nothing_for_anyone() {
    let mut c = Cluster::with(1, |_| {}, |config| config.only_addressed = true);
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 100)[0];
    assert_eq!(c.spend(store_node(1), C, U, &[piece], 1), Err(Refusal::ForeignAudience));
    let addressed = c.keys.sign(Terms { audience: store_node(1), ..piece.voucher.terms }).unwrap();
    c.spend(store_node(1), C, U, &[addressed.whole()], 1).unwrap();
}

/// Banks signed nothing for one store alone: such a store could take no write.
#[test]
fn a_bank_addresses_vouchers_as_it_is_asked_to_and_counts_them_like_others() {
    let mut c = Cluster::with(2, |_| {}, |config| config.only_addressed = true);
    c.quota(U, 1000);
    let audience = Some(store_node(1));
    let request = ClientToBank::Request { user: U, op: Op(900), want: 100, audience };
    c.bank_event(BankEvent::FromClient(C, request));
    let Some((_, BankToClient::Granted { pieces, .. })) = c.to_clients.last().cloned() else { panic!() };
    assert_eq!(c.a(U), 100);
    assert_eq!(c.spend(store_node(2), C, U, &pieces, 100), Err(Refusal::ForeignAudience));
    c.spend(store_node(1), C, U, &pieces, 100).unwrap();
    // What was given back is for any store, and pays nothing here.
    let anyones = c.withdraw(C, U, 400);
    assert_eq!(c.give_back(C, U, Op(901), anyones), 400);
    let request = ClientToBank::Request { user: U, op: Op(902), want: 100, audience };
    c.bank_event(BankEvent::FromClient(C, request));
    let Some((_, BankToClient::Granted { pieces, .. })) = c.to_clients.last().cloned() else { panic!() };
    assert!(pieces.iter().all(|piece| piece.voucher.terms.audience == store_node(1)));
    c.epochs(6);
    assert_eq!((c.a(U), c.used(U)), (100, 100));
    assert!(c.found.is_empty(), "{:?}", c.found);
}

#[test]
fn too_many_pieces_are_refused_before_any_is_looked_at() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    let many = vec![Piece { amount: 1, ..piece }; crate::MAX_PIECES + 1];
    assert_eq!(c.spend(store_node(1), C, U, &many, 1), Err(Refusal::TooMany));
    assert_eq!(c.spend(Node(101), C, U, &many[..2], 2).unwrap(), vec![]);
}

#[test]
fn a_cancelled_request_is_never_carried_out_also_after_a_crash() {
    let mut c = cluster();
    let piece = c.withdraw(C, U, 1000)[0];
    let at = store_node(1);
    let cancel = |op| StoreEvent::Cancel { client: C, op, pieces: vec![piece] };
    let refused = c.store_event(at, cancel(Op(5)));
    assert!(matches!(refused, Some(StoreToClient::Refused { reason: Refusal::Cancelled, .. })));
    c.reload_store(at);
    c.run(Micros::from_secs(3));
    assert_eq!(c.spend_as(at, C, U, Op(5), &[piece], 600), Err(Refusal::Cancelled));
    // One that was carried out is answered.
    c.spend_as(at, C, U, Op(6), &[piece], 600).unwrap();
    let answer = c.store_event(at, cancel(Op(6)));
    assert!(matches!(answer, Some(StoreToClient::Spent { used: 600, .. })));
}

fn cancelled(c: &mut Cluster, at: Node, op: Op, piece: Piece) -> Option<Refusal> {
    match c.store_event(at, StoreEvent::Cancel { client: C, op, pieces: vec![piece] }) {
        Some(StoreToClient::Refused { reason, .. }) => Some(reason),
        _ => None,
    }
}

/// A store that was cut off cancelled a payment with a voucher of an epoch that it had not heard of; it filed the
/// cancellation under its own epoch, and had forgotten it when it had caught up and a late copy came.
#[test]
fn a_cancellation_outlives_the_vouchers_of_the_request_also_at_a_store_that_lags_behind() {
    let mut c = cluster();
    c.quota(U, 1000);
    let at = store_node(1);
    c.down.push(at);
    c.epochs(2);
    let piece = c.withdraw(C, U, 100)[0];
    assert_eq!(cancelled(&mut c, at, Op(5), piece), Some(Refusal::Cancelled));
    c.down.clear();
    c.epochs(2);
    assert!(c.stores[&at].reported() >= c.epoch().minus(3).unwrap(), "it has caught up");
    assert_eq!(c.spend_as(at, C, U, Op(5), &[piece], 100), Err(Refusal::Cancelled));
    // It is not kept for ever.
    c.epochs(6);
    assert!(c.stores[&at].replay(C, Op(5)).is_none());
}

/// A store that was set back, or has begun a new life, told a client that a request was never carried out which
/// an earlier life had carried out and reported: the client used the vouchers again and was named a cheater.
#[test]
fn only_a_store_that_would_remember_says_what_became_of_a_request() {
    let mut c = cluster();
    c.quota(U, 1000);
    let at = store_node(1);
    let copy = c.store_tables[&at].clone();
    let piece = c.withdraw(C, U, 100)[0];
    c.run(Micros::from_secs(5));
    c.spend_as(at, C, U, Op(5), &[piece], 100).unwrap();
    // Set back to before.
    *c.store_tables.get_mut(&at).unwrap() = copy;
    c.reload_store(at);
    assert_eq!(cancelled(&mut c, at, Op(5), piece), Some(Refusal::NoLease));
    c.run(Micros::from_secs(20));
    // A new life.
    let config = StoreConfig::new(at, Params::default());
    c.start_store(config, Incarnation(2), BTreeMap::new());
    assert_eq!(cancelled(&mut c, at, Op(5), piece), Some(Refusal::NoLease));
    c.run(Micros::from_secs(20));
    assert_eq!(cancelled(&mut c, at, Op(5), piece), Some(Refusal::Reported));
}

/// Whoever removed or shortened what was charged to somebody else was handed that one's refund: it could be spent, and spent twice, and
/// the user who had been charged was refused vouchers for it.
#[test]
fn what_others_free_nobody_is_given_and_it_is_there_again_with_its_epoch() {
    let mut c = cluster();
    let pieces = c.withdraw(C, U, 600);
    let at = store_node(1);
    c.spend(at, C, U, &pieces, 600).unwrap();
    let stranger = Client(99);
    for (op, amount) in [(Op(1), 100), (Op(2), 200)] {
        let free = StoreEvent::Free { client: stranger, user: U, is_users: false, op, amount };
        let answer = c.store_event(at, free);
        assert!(matches!(answer, Some(StoreToClient::Refunded { refund: None, .. })), "{answer:?}");
    }
    let own = c.free(at, C, U, 50).unwrap();
    assert_eq!((own.amount, c.used(U)), (50, 250));
    c.epochs(6);
    assert_eq!(c.a(U), 250);
    assert!(c.found.is_empty(), "{:?}", c.found);
}
