//! The protocol rules at the bank, each broken once.

use crate::bank::{BankAction, BankConfig, BankCore, BankEvent, BankOutput, Finding, Policy, Waits};
use crate::message::{BankToClient, BankToStore, Base, ClientToBank, Denial, Renew, Report, SpentLine, StoreToBank};
use crate::store::StoreConfig;
use crate::testing::{Cluster, EPOCH, apply, store_node};
use crate::{Client, Epoch, EpochLength, Incarnation, Issuer, Micros, Node, Op, Params, Piece, Terms, User, VoucherId};
use std::collections::BTreeMap;

const U: User = User(1);
const C: Client = Client(1);
const D: Client = Client(2);

/// All of a user's quota, in several withdrawals: one client gets half of the rest each time.
fn withdraw_all(c: &mut Cluster, want: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for _ in 0..64 {
        pieces.extend(c.withdraw(C, U, want));
    }
    assert_eq!(pieces.iter().map(|piece| piece.amount).sum::<u64>(), want);
    pieces
}

#[test]
fn a_is_what_is_reconciled_plus_what_was_issued_in_the_last_k_epochs() {
    let mut c = Cluster::with_quota(U);
    let start = c.epoch();
    let pieces = c.withdraw(C, U, 300);
    assert_eq!(c.a(U), 300);
    c.spend(store_node(1), C, U, &pieces, 100).unwrap();
    c.epochs(1);
    c.withdraw(C, U, 50);
    assert_eq!(c.bank.parts(U), Some((0, 350)));
    // In epoch start + K the horizon is the first epoch: its vouchers have expired and what was spent remains.
    c.epochs(2);
    assert_eq!(c.epoch(), start.plus(3));
    assert_eq!(c.bank.horizon(), start);
    assert_eq!(c.bank.parts(U), Some((100, 50)));
    c.epochs(1);
    assert_eq!(c.bank.parts(U), Some((100, 0)));
}

#[test]
fn never_more_than_the_quota_is_out() {
    let mut c = Cluster::with_quota(U);
    withdraw_all(&mut c, 1000);
    assert_eq!(c.a(U), 1000);
    assert!(c.withdraw(C, U, 1).is_empty());
    // Expired but not reconciled vouchers still count.
    c.epochs(2);
    assert!(c.withdraw(C, U, 1).is_empty());
    c.epochs(2);
    assert_eq!(c.a(U), 0);
    assert_eq!(c.withdraw(C, U, 1).len(), 1);
}

#[test]
fn an_epoch_leaves_a_only_when_every_live_store_has_reported_it() {
    let mut c = Cluster::with_quota(U);
    let pieces = c.withdraw(C, U, 400);
    c.spend(store_node(2), C, U, &pieces, 400).unwrap();
    c.down.push(store_node(2));
    c.epochs(10);
    assert_eq!(c.a(U), 400, "by the clock it would be 0 now");
    c.down.clear();
    c.epochs(1);
    assert_eq!(c.bank.parts(U), Some((400, 0)));
}

#[test]
fn a_repeated_request_gets_the_same_voucher_also_after_a_restart() {
    let mut c = Cluster::with_quota(U);
    let first = c.withdraw_as(C, U, Op(5), 100);
    assert_eq!(c.withdraw_as(C, U, Op(5), 100), first);
    c.reload_bank();
    assert_eq!(c.withdraw_as(C, U, Op(5), 100), first);
    assert_eq!(c.a(U), 100);
    // Another user under the same number is not served with the first one's vouchers.
    c.quota(User(2), 1000);
    assert!(c.withdraw_as(C, User(2), Op(5), 100).is_empty());
}

#[test]
fn a_restarted_bank_knows_all_and_never_uses_a_serial_twice() {
    let mut c = Cluster::with_quota(U);
    let before = c.withdraw(C, U, 100);
    c.spend(store_node(1), C, U, &before, 60).unwrap();
    c.reload_bank();
    let after = c.withdraw(C, U, 100);
    assert_ne!(before[0].id(), after[0].id());
    assert_eq!(c.a(U), 200);
    c.epochs(5);
    assert_eq!(c.a(U), 60);
    c.reload_bank();
    assert_eq!(c.a(U), 60);
}

/// A bank that had issued more than 4 EiB to one user took its own state for damaged and did not start again.
#[test]
fn a_bank_that_has_issued_all_of_the_largest_quota_starts_again() {
    let mut c = Cluster::with_quota(U);
    c.quota(U, u64::MAX);
    for _ in 0..64 {
        c.withdraw(C, U, crate::MAX_VALUE);
    }
    let issued = c.a(U);
    assert!(issued > i128::from(u64::MAX / 2), "{issued}");
    c.reload_bank();
    assert_eq!(c.a(U), issued);
}

#[test]
fn refunds_balance_whether_spent_elsewhere_or_left_to_expire() {
    let mut c = Cluster::with_quota(U);
    let pieces = withdraw_all(&mut c, 1000);
    for piece in &pieces {
        c.spend(store_node(1), C, U, &[*piece], piece.amount).unwrap();
    }
    c.epochs(5);
    assert_eq!(c.bank.parts(U), Some((1000, 0)));
    let moved = c.free(store_node(1), C, U, 300).unwrap();
    let lost = c.free(store_node(1), C, U, 200).unwrap();
    assert_eq!(c.a(U), 1000, "until the epoch is reconciled");
    c.spend(store_node(2), C, U, &[moved], 300).unwrap();
    let _ = lost;
    c.epochs(5);
    assert_eq!((c.a(U), c.used(U)), (800, 800));
    assert!(c.found.is_empty(), "{:?}", c.found);
}

#[test]
fn a_store_lying_down_with_unreported_refunds_does_not_make_room_twice() {
    // The paper takes a failed store out of A at once. Then this user would have 1000 bytes from the refund
    // and 1000 new vouchers.
    let mut c = Cluster::with_quota(U);
    for piece in withdraw_all(&mut c, 1000) {
        c.spend(store_node(1), C, U, &[piece], piece.amount).unwrap();
    }
    c.epochs(5);
    let refund = c.free(store_node(1), C, U, 1000).unwrap();
    c.down.push(store_node(1));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    assert!(!c.actions.iter().any(|a| matches!(a, BankAction::Excluded { .. })), "its lease is not over");
    c.run(Micros::from_secs(12));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    assert!(c.actions.iter().any(|a| matches!(a, BankAction::Excluded { .. })));
    assert!(c.withdraw(C, U, 1000).is_empty(), "the refund can still be spent");
    c.spend(store_node(2), C, U, &[refund], 1000).unwrap();
    c.epochs(6);
    assert_eq!((c.a(U), c.used(U)), (1000, 1000));
}

#[test]
fn what_a_failed_store_held_leaves_a_exactly() {
    let mut c = Cluster::with_quota(U);
    let pieces = withdraw_all(&mut c, 1000);
    let mut here = 0;
    for (number, piece) in pieces.iter().enumerate() {
        let node = store_node(1 + (number as u32 % 2));
        here += if node == store_node(2) { piece.amount } else { 0 };
        c.spend(node, C, U, &[*piece], piece.amount).unwrap();
    }
    c.down.push(store_node(1));
    c.run(Micros::from_secs(12));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    c.epochs(6);
    assert_eq!(c.a(U), i128::from(here));
}

#[test]
fn a_fenced_store_gets_no_lease_and_must_start_a_new_life() {
    let mut c = Cluster::with_quota(U);
    let piece = c.withdraw(C, U, 500)[0];
    c.spend(store_node(1), C, U, &[piece], 300).unwrap();
    c.down.push(store_node(1));
    c.run(Micros::from_secs(12));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    c.down.clear();
    c.run(Micros::from_secs(3));
    assert_eq!(c.reincarnate.last(), Some(&(store_node(1), Incarnation(2))));
    let rest = Piece { amount: 200, ..piece };
    assert!(c.spend(store_node(1), C, U, &[rest], 1).is_err());
    // It comes back with what it really holds.
    let config = StoreConfig::new(store_node(1), Params::default());
    c.start_store(config, Incarnation(2), BTreeMap::from([(U, 300)]));
    c.run(Micros::from_secs(3));
    assert!(c.spend(store_node(1), C, U, &[rest], 1).is_err(), "vouchers of before its new life");
    assert!(c.a(U) >= 500 + 300, "old and new life count until the old one is reconciled");
    c.epochs(8);
    assert_eq!(c.a(U), 300);
    let piece = c.withdraw(C, U, 100)[0];
    c.spend(store_node(1), C, U, &[piece], 100).unwrap();
    c.epochs(5);
    assert_eq!((c.a(U), c.used(U)), (400, 400));
    assert!(c.found.is_empty(), "{:?}", c.found);
}

#[test]
fn a_store_set_back_to_an_old_copy_is_told_apart_from_a_crash() {
    let mut c = Cluster::with_quota(U);
    let copy = c.store_tables[&store_node(1)].clone();
    c.run(Micros::from_secs(5));
    c.reload_store(store_node(1));
    c.run(Micros::from_secs(3));
    assert!(c.reincarnate.is_empty(), "a crash");
    let piece = c.withdraw(C, U, 500)[0];
    c.spend(store_node(1), C, U, &[piece], 500).unwrap();
    *c.store_tables.get_mut(&store_node(1)).unwrap() = copy;
    c.reload_store(store_node(1));
    c.run(Micros::from_secs(3));
    assert_eq!(c.reincarnate.last(), Some(&(store_node(1), Incarnation(2))));
    assert!(c.spend(store_node(1), C, U, &[piece], 500).is_err(), "it has forgotten the voucher but takes none");
}

#[test]
fn a_double_spender_is_named_within_k_epochs_and_refused() {
    let mut c = Cluster::with_quota(U);
    let start = c.epoch();
    let piece = c.withdraw(C, U, 400)[0];
    for number in 1..=3 {
        c.spend(store_node(number), C, U, &[piece], 400).unwrap();
    }
    c.epochs(3);
    assert!(c.epoch() <= start.plus(3));
    let [Finding::Overspent { user, value, clients, stores, .. }, .., Finding::Overspent { spent, stores: all, .. }] =
        c.found.as_slice()
    else {
        panic!("{:?}", c.found)
    };
    // Named as soon as the sum exceeds the value: two stores are enough.
    assert_eq!((*user, *value, clients.as_slice()), (U, 400, &[C][..]));
    assert!(*spent == 1200 && stores.len() == 2 && all.len() == 3);
    assert!(c.withdraw(C, U, 1).is_empty());
    assert!(matches!(c.to_clients.last(), Some((_, BankToClient::Denied { reason: Denial::Blocked, .. }))));
    assert_eq!(c.a(U), 1200, "A tells the truth even so");
}

#[test]
fn early_reports_name_a_cheater_before_the_epoch_ends() {
    let mut c = Cluster::with(2, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let start = c.epoch();
    let piece = c.withdraw(C, U, 400)[0];
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    c.spend(store_node(2), C, U, &[piece], 1).unwrap();
    c.run(Micros::from_secs(12));
    assert_eq!(c.epoch(), start);
    assert_eq!(c.found.len(), 1);
}

#[test]
fn two_clients_splitting_one_voucher_at_all_stores_are_both_seen() {
    let mut c = Cluster::with_quota(U);
    let mut piece = c.withdraw(C, U, 400)[0];
    let half = piece.split(200).unwrap();
    // Honest: the halves add up.
    c.spend(store_node(1), C, U, &[half], 200).unwrap();
    c.spend(store_node(2), D, U, &[piece], 200).unwrap();
    // Not so: one half again, at the third store.
    c.spend(store_node(3), D, U, &[piece], 200).unwrap();
    c.epochs(4);
    let [Finding::Overspent { clients, spent: 600, .. }] = c.found.as_slice() else { panic!("{:?}", c.found) };
    assert_eq!(clients.as_slice(), &[C, D], "the one it was given to answers for whom it shares with");
}

#[test]
fn a_refund_of_more_than_was_freed_is_found_and_its_issuer_known() {
    let mut c = Cluster::with_quota(U);
    let piece = c.withdraw(C, U, 400)[0];
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    let refund = c.free(store_node(1), C, U, 100).unwrap();
    // Whoever has the key can sign: the same serial, five times the value.
    let forged = c.keys.sign(Terms { value: 500, ..refund.voucher.terms }).unwrap();
    c.spend(store_node(2), C, U, &[forged.whole()], 500).unwrap();
    c.epochs(4);
    assert!(matches!(c.found.as_slice(), [Finding::Forged { freed: 100, spent: 500, .. }]), "{:?}", c.found);
}

/// What the first line said of a voucher's value was taken for it: a store that lied let its client spend it everywhere.
#[test]
fn a_store_that_lies_of_a_vouchers_value_hides_nothing_and_blames_nobody_else() {
    let mut c = Cluster::with_quota(U);
    c.quota(User(2), 1000);
    let piece = c.withdraw(C, U, 400)[0];
    for (value, user) in [(1 << 60, User(2)), (1, U)] {
        let line = SpentLine { voucher: piece.id(), epoch: c.epoch(), user, value, client: D, amount: 0 };
        let (store, incarnation) = (store_node(3), Incarnation(1));
        c.to_bank(StoreToBank::Early { store, incarnation, spent: vec![line] });
    }
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    assert!(c.found.is_empty(), "{:?}", c.found);
    c.spend(store_node(2), C, U, &[piece], 400).unwrap();
    c.epochs(4);
    let [Finding::Overspent { user: U, value: 400, spent: 800, clients, .. }] = c.found.as_slice() else {
        panic!("{:?}", c.found)
    };
    assert_eq!(clients.as_slice(), &[C]);
}

#[test]
fn vouchers_that_nobody_issued_are_found() {
    let mut c = Cluster::with_quota(U);
    let epoch = c.epoch();
    let terms = |node, serial| Terms {
        epoch,
        expiry: epoch.plus(2),
        user: U,
        value: 50,
        serial,
        issuer: Issuer { node, incarnation: Incarnation(1) },
        audience: crate::ANYONE,
    };
    for (node, serial) in [(Node(1), 7777), (store_node(2), 8888)] {
        let forged = c.keys.sign(terms(node, serial)).unwrap().whole();
        c.spend(store_node(1), C, U, &[forged], 50).unwrap();
    }
    c.epochs(4);
    let forged = c.found.iter().filter(|finding| matches!(finding, Finding::Forged { freed: 0, .. })).count();
    assert_eq!(forged, 2, "{:?}", c.found);
}

#[test]
fn a_store_that_contradicts_itself_is_found() {
    let mut c = Cluster::with_quota(U);
    let mut lie = |used: Vec<(User, i64)>, spent: Vec<SpentLine>| {
        let epoch = c.bank.stores().find(|(node, ..)| *node == store_node(3)).unwrap().2.plus(1);
        c.to_bank(StoreToBank::Report(Report {
            store: store_node(3),
            incarnation: Incarnation(1),
            epoch,
            used,
            spent,
            refunds: Vec::new(),
        }));
        c.found.len()
    };
    assert_eq!(lie(vec![(U, 5)], Vec::new()), 1, "use from nowhere");
    assert_eq!(lie(vec![(U, -5)], Vec::new()), 2, "less than nothing");
    let id = VoucherId::default();
    let line = SpentLine { voucher: id, epoch: Epoch(0), user: U, value: 5, client: C, amount: 5 };
    assert_eq!(lie(Vec::new(), vec![line]), 3, "another epoch's voucher");
}

#[test]
fn returned_vouchers_are_passed_on_and_never_made_anew() {
    let mut c = Cluster::with_quota(U);
    let pieces = withdraw_all(&mut c, 1000);
    let (op, back) = (Op(900), vec![pieces[0]]);
    assert_eq!(c.give_back(C, U, op, back.clone()), 500);
    assert_eq!(c.give_back(C, U, op, back.clone()), 500, "a repetition is answered alike");
    assert_eq!(c.a(U), 1000, "still issued: it may have been spent already");
    let passed = c.withdraw(D, U, 400);
    assert_eq!(passed[0].id(), pieces[0].id(), "the same serial");
    assert_eq!(passed.iter().map(|piece| piece.amount).sum::<u64>(), 400);
    assert_eq!(c.withdraw(D, U, 400).iter().map(|piece| piece.amount).sum::<u64>(), 100);
    assert!(c.withdraw(D, U, 400).is_empty());
    assert_eq!(c.give_back(C, U, Op(901), back), 0, "it has given that away already");
}

#[test]
fn a_client_that_returns_what_it_spent_is_named_and_not_the_one_it_was_passed_to() {
    let mut c = Cluster::with_quota(U);
    let pieces = withdraw_all(&mut c, 1000);
    c.spend(store_node(1), C, U, &[pieces[0]], 500).unwrap();
    c.give_back(C, U, Op(900), vec![pieces[0]]);
    let passed = c.withdraw(D, U, 500);
    assert!(c.spend(store_node(1), D, U, &passed, 500).is_err(), "one store, one serial, once");
    c.spend(store_node(2), D, U, &passed, 500).unwrap();
    c.epochs(4);
    let [Finding::Overspent { clients, .. }] = c.found.as_slice() else { panic!("{:?}", c.found) };
    assert_eq!(clients.as_slice(), &[C]);
}

#[test]
fn foreign_forged_and_old_returns_are_worth_nothing() {
    let mut c = Cluster::with_quota(U);
    c.quota(User(2), 1000);
    let piece = c.withdraw(C, U, 100)[0];
    let mut damaged = piece;
    damaged.voucher.mac[0] ^= 1;
    assert_eq!(c.give_back(C, U, Op(1), vec![damaged]), 0);
    assert_eq!(c.give_back(D, U, Op(2), vec![piece]), 0, "not its");
    assert_eq!(c.give_back(C, User(2), Op(3), vec![piece]), 0, "another user's");
    assert_eq!(c.give_back(C, U, Op(4), vec![piece, piece]), 100, "once");
    c.epochs(2);
    let piece = c.withdraw(C, U, 100)[0];
    c.epochs(2);
    assert_eq!(c.give_back(C, U, Op(5), vec![piece]), 0, "of no use to anybody");
}

#[test]
fn limiting_shares_what_is_left_among_the_active() {
    let mut c = Cluster::with_quota(U);
    assert_eq!(c.withdraw(C, U, 400)[0].amount, 400);
    assert_eq!(c.withdraw(D, U, 400)[0].amount, 200, "600 left for two clients and one that may come");
    assert_eq!(c.withdraw(Client(3), U, 400)[0].amount, 100);
}

fn revocation(waits: Waits) -> Policy {
    Policy::Revocation { timeout: Micros::from_secs(5), waits }
}

/// What was granted of a request, once it was answered.
fn answered(c: &Cluster, of: Client, request: Op) -> Option<u64> {
    c.to_clients.iter().find_map(|(client, message)| match message {
        BankToClient::Granted { op, pieces, .. } if (*client, *op) == (of, request) => {
            Some(pieces.iter().map(|piece| piece.amount).sum())
        }
        BankToClient::Denied { op, .. } if (*client, *op) == (of, request) => Some(0),
        _ => None,
    })
}

#[test]
fn a_request_that_waits_for_answers_is_refused_when_all_have_answered_with_nothing() {
    let mut c = Cluster::with(1, |config| config.policy = revocation(Waits::Answers), |_| {});
    c.quota(U, 1000);
    c.withdraw(C, U, 1000);
    c.withdraw_as(D, U, Op(50), 300);
    assert_eq!(answered(&c, D, Op(50)), None);
    c.give_back(C, U, Op(60), vec![]);
    assert_eq!(answered(&c, D, Op(50)), Some(0));
}

#[test]
fn a_request_that_waits_for_enough_has_what_comes_back_later_and_is_refused_when_its_time_is_over() {
    let mut c = Cluster::with(1, |config| config.policy = revocation(Waits::Enough), |_| {});
    c.quota(U, 1000);
    let mut piece = c.withdraw(C, U, 1000)[0];
    c.withdraw_as(D, U, Op(50), 300);
    c.give_back(C, U, Op(60), vec![]);
    assert_eq!(answered(&c, D, Op(50)), None, "all have answered, and it waits on");
    let part = piece.split(300).unwrap();
    c.give_back(C, U, Op(61), vec![part]);
    assert_eq!(answered(&c, D, Op(50)), Some(300));
    c.withdraw_as(D, U, Op(51), 300);
    c.give_back(C, U, Op(62), vec![]);
    assert_eq!(answered(&c, D, Op(51)), None);
    c.run(Micros::from_secs(6));
    assert_eq!(answered(&c, D, Op(51)), Some(0));
}

#[test]
fn revocation_asks_the_others_and_the_request_waits() {
    let mut c = Cluster::with(2, |config| config.policy = revocation(Waits::Answers), |_| {});
    c.quota(U, 1000);
    let first = c.withdraw(C, U, 1000);
    assert_eq!(first[0].amount, 1000, "all of it");
    assert!(c.withdraw_as(D, U, Op(50), 300).is_empty());
    assert!(c.to_clients.contains(&(C, BankToClient::Revoke { user: U })));
    // The holder keeps 600 and gives back the rest.
    let mut piece = first[0];
    let part = piece.split(400).unwrap();
    c.to_clients.clear();
    c.give_back(C, U, Op(60), vec![part]);
    let granted = c.to_clients.iter().any(|(client, message)| {
        *client == D
            && matches!(message, BankToClient::Granted { op: Op(50), pieces, .. }
                if pieces.iter().map(|p| p.amount).sum::<u64>() == 300)
    });
    assert!(granted, "{:?}", c.to_clients);
    assert_eq!(c.a(U), 1000);
}

#[test]
fn revocation_times_out_with_what_there_is() {
    let mut c = Cluster::with(1, |config| config.policy = revocation(Waits::Answers), |_| {});
    c.quota(U, 1000);
    c.withdraw(C, U, 900);
    c.withdraw_as(D, U, Op(50), 300);
    c.to_clients.clear();
    c.run(Micros::from_secs(6));
    let granted = c.to_clients.iter().find_map(|(client, message)| match message {
        BankToClient::Granted { pieces, .. } if *client == D => Some(pieces[0].amount),
        _ => None,
    });
    assert_eq!(granted, Some(100));
    c.withdraw_as(D, U, Op(51), 300);
    assert_eq!(answered(&c, D, Op(51)), Some(0), "who let one request wait is not waited for again");
    c.give_back(C, U, Op(60), vec![]);
    c.withdraw_as(D, U, Op(52), 300);
    assert_eq!(answered(&c, D, Op(52)), None, "until it is heard");
}

/// Whoever had asked for vouchers lately was waited for, though the bank's own books said that all had been given back.
#[test]
fn revocation_waits_only_for_those_that_hold_something() {
    let early = |config: &mut StoreConfig| config.early_every = Some(Micros::from_secs(5));
    let mut c = Cluster::with(1, |config| config.policy = revocation(Waits::Answers), early);
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 1000)[0];
    assert_eq!(c.give_back(C, U, Op(60), vec![piece]), 1000);
    c.withdraw_as(D, U, Op(50), 1200);
    assert_eq!(answered(&c, D, Op(50)), Some(1000));
    // What it spent, stores tell.
    let pieces: Vec<Piece> = c.to_clients.iter().filter(|(to, _)| *to == D).find_map(granted).unwrap();
    c.spend(store_node(1), D, U, &pieces, 1000).unwrap();
    c.withdraw_as(C, U, Op(51), 300);
    assert_eq!(answered(&c, C, Op(51)), None, "as far as is known, it has them");
    c.run(Micros::from_secs(6));
    c.give_back(D, U, Op(61), vec![]);
    c.withdraw_as(C, U, Op(52), 300);
    assert_eq!(answered(&c, C, Op(52)), Some(0));
}

/// Vouchers that had come back and expired counted as what could be passed on: nobody was asked, and the request was refused.
#[test]
fn what_came_back_and_expired_is_not_counted_on_when_others_can_be_asked() {
    let mut c = Cluster::with(1, |config| config.policy = revocation(Waits::Answers), |_| {});
    c.quota(U, 1000);
    let back = c.withdraw(Client(3), U, 600);
    c.give_back(Client(3), U, Op(60), back);
    c.epochs(1);
    let mut piece = c.withdraw(C, U, 400)[0];
    c.epochs(1);
    c.to_clients.clear();
    c.withdraw_as(D, U, Op(50), 300);
    assert_eq!(answered(&c, D, Op(50)), None);
    assert!(c.to_clients.contains(&(C, BankToClient::Revoke { user: U })));
    let part = piece.split(300).unwrap();
    c.give_back(C, U, Op(61), vec![part]);
    assert_eq!(answered(&c, D, Op(50)), Some(300));
}

/// What is bound to a store is always made anew: what others give back pays nothing of it.
#[test]
fn nobody_is_asked_for_the_sake_of_a_request_bound_to_a_store_nor_waits_behind_it() {
    let bound = |c: &mut Cluster, op, want| {
        let request = ClientToBank::Request { user: U, op, want, audience: Some(store_node(1)) };
        c.bank_event(BankEvent::FromClient(D, request));
    };
    let revokes = |c: &Cluster| c.to_clients.contains(&(C, BankToClient::Revoke { user: U }));
    for waits in [Waits::Answers, Waits::Enough] {
        let mut c = Cluster::with(1, |config| config.policy = revocation(waits), |_| {});
        c.quota(U, 1000);
        let mut piece = c.withdraw(C, U, 900)[0];
        let part = piece.split(500).unwrap();
        c.give_back(C, U, Op(60), vec![part]);
        bound(&mut c, Op(50), 300);
        assert!(!revokes(&c));
        if waits == Waits::Answers {
            assert_eq!(answered(&c, D, Op(50)), Some(100), "what there is, at once");
            continue;
        }
        assert_eq!(answered(&c, D, Op(50)), None);
        // What another wants is in the pool; what waits for more keeps what is left to make.
        c.withdraw_as(Client(3), U, Op(51), 400);
        assert_eq!(answered(&c, Client(3), Op(51)), Some(400));
        c.withdraw_as(Client(3), U, Op(52), 200);
        assert_eq!(answered(&c, Client(3), Op(52)), None);
        assert!(revokes(&c), "they are asked for who can be paid so");
        let part = piece.split(100).unwrap();
        c.give_back(C, U, Op(61), vec![part]);
        assert_eq!(answered(&c, Client(3), Op(52)), Some(200));
        c.run(Micros::from_secs(6));
        assert_eq!(answered(&c, D, Op(50)), Some(100));
    }
}

fn granted((_, message): &(Client, BankToClient)) -> Option<Vec<Piece>> {
    if let BankToClient::Granted { pieces, .. } = message { Some(pieces.clone()) } else { None }
}

#[test]
fn a_bank_rebuilt_from_limits_issues_nothing_until_k_epochs_passed_and_is_then_exact() {
    let mut c = Cluster::with_quota(U);
    let pieces = withdraw_all(&mut c, 1000);
    for piece in &pieces[1..] {
        c.spend(store_node(2), C, U, &[*piece], piece.amount).unwrap();
    }
    let mut out = BankOutput::default();
    let mut config = Cluster::bank_config();
    config.epoch_length = EpochLength { normal: EPOCH, shortest: Micros::from_secs(5), low_permille: 0 };
    let stores = (1..=3).map(store_node);
    c.bank = BankCore::rebuild(config, c.keys.clone(), Incarnation(9), [(U, 1000)], stores, 0, Epoch(0), &mut out);
    c.bank_table.clear();
    apply(&mut c.bank_table, out.writes);
    assert!(c.withdraw(C, U, 10).is_empty());
    c.run(Micros::from_secs(4));
    assert!(c.bank.is_recovering());
    assert!(c.bank.authorized(U).is_none());
    // An old voucher still buys, unseen by the bank.
    c.spend(store_node(1), C, U, &[pieces[0]], 100).unwrap();
    c.run(Micros::from_secs(60));
    assert!(c.actions.contains(&BankAction::Recovered));
    assert_eq!(c.a(U), 600, "500 + 100");
    assert_eq!(c.withdraw(C, U, 200)[0].amount, 200);
    assert!(c.found.is_empty(), "{:?}", c.found);
    c.reload_bank();
    assert_eq!(c.a(U), 800);
}

#[test]
fn a_rebuilt_bank_may_issue_a_stated_share() {
    let mut out = BankOutput::default();
    let keys = Cluster::new(1).keys;
    let config = Cluster::bank_config();
    let mut bank = BankCore::rebuild(config, keys, Incarnation(2), [(U, 1000)], [], 100, Epoch(50), &mut out);
    out.clear();
    for op in 0..20 {
        let request = ClientToBank::Request { user: U, op: Op(op), want: 80, audience: None };
        bank.step(BankEvent::FromClient(C, request), Micros(0), &mut out);
    }
    let (_, issued) = bank.parts(U).unwrap();
    assert_eq!(issued, 100, "a tenth, and no more");
    assert!(bank.epoch() > Epoch(50));
}

/// A bank that hears one life of a store, message by message; which process it sends into a new life, if any.
fn renewals() -> impl FnMut(u64, u64, &[(u64, u64)]) -> Option<u64> {
    let mut out = BankOutput::default();
    let keys = Cluster::new(1).keys;
    let mut bank = BankCore::new(BankConfig::new(Node(1), Params::default()), keys, Incarnation(1), &mut out);
    let mut fresh = true;
    move |boot, beat, before| {
        out.clear();
        let base = std::mem::take(&mut fresh).then(|| Base { fresh: true, epoch: Epoch(0), used: Vec::new() });
        let renew = Renew {
            store: Node(5),
            incarnation: Incarnation(1),
            boot,
            beat,
            bank: Incarnation(0),
            before: before.to_vec(),
            epoch: Epoch(1),
            free: 0,
            total: 0,
            base,
        };
        bank.step(BankEvent::FromStore(StoreToBank::Renew(renew)), Micros(0), &mut out);
        out.actions.iter().find_map(|action| match action {
            BankAction::ToStore(_, BankToStore::Reincarnate { boot, .. }) => Some(*boot),
            _ => None,
        })
    }
}

#[test]
fn late_and_repeated_renewals_are_no_sign_of_an_old_copy() {
    let mut renew = renewals();
    assert_eq!(renew(1, 1, &[]), None);
    assert_eq!(renew(1, 2, &[]), None);
    assert_eq!(renew(1, 1, &[]), None, "late");
    assert_eq!(renew(2, 4, &[(1, 3)]), None, "a new process");
    assert_eq!(renew(1, 3, &[]), Some(1), "late, from the process before, which is no longer there to heed it");
    assert_eq!(renew(5, 9, &[(2, 6), (3, 7), (4, 8)]), None, "processes that the bank never heard of in between");
    assert_eq!(renew(3, 7, &[(2, 6)]), Some(3), "late, from one of those");
    assert_eq!(renew(5, 10, &[]), None);
}

/// The renewals of a store that was set back count on from its copy. While the first of them were lost, it
/// overtook the number that the bank knew, and was taken for one that had merely crashed.
#[test]
fn a_store_set_back_is_found_out_however_often_it_asks_or_starts_again() {
    let mut renew = renewals();
    for beat in 1..=9 {
        assert_eq!(renew(1, beat, &[]), None);
    }
    assert_eq!(renew(2, 20, &[(1, 5)]), Some(2), "its copy is of renewal 5");
    assert_eq!(renew(3, 40, &[(1, 5), (2, 39)]), Some(3));
    assert_eq!(renew(4, 41, &[(9, 40)]), Some(4), "a copy of before the process that the bank knows");
    assert_eq!(renew(1, 10, &[]), None);
}

/// Regression: it went on as if nothing were missing. Its stores had forgotten the reports that it asked for, so nothing was reconciled any
/// more, and after a while all users had too little quota; nobody was told why.
#[test]
fn a_bank_set_back_to_an_old_copy_counts_on_no_store_and_says_why() {
    let mut c = Cluster::with_quota(U);
    let copy = c.bank_table.clone();
    for set_back in [false, true] {
        c.epochs(6);
        if set_back {
            c.bank_table.clone_from(&copy);
        }
        c.reload_bank();
        c.run(Micros::from_secs(60));
        assert_eq!(c.stores.values().any(|store| store.is_open(c.now)), !set_back);
        let lied = |finding: &&Finding| matches!(finding, Finding::StoreLied { why, .. } if why.contains("set back"));
        assert_eq!(c.found.iter().filter(lied).count(), if set_back { c.stores.len() } else { 0 }, "each once");
    }
}

/// Regression: a copy of the epoch that still runs was not found out, and the vouchers that had been given since were given again; who had
/// spent them was named as their forger.
#[test]
fn a_bank_set_back_within_an_epoch_is_found_out_and_names_nobody() {
    let mut c = Cluster::with(2, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let copy = c.bank_table.clone();
    c.reload_bank();
    c.run(Micros::from_secs(5));
    let pieces = c.withdraw(C, U, 100);
    c.spend(store_node(1), C, U, &pieces, 100).unwrap();
    c.run(Micros::from_secs(9));
    assert!(c.found.is_empty() && c.stores.values().all(|store| store.is_open(c.now)));
    c.bank_table = copy;
    c.reload_bank();
    assert_eq!(c.epoch(), c.stores[&store_node(1)].epoch(), "no epoch has begun since");
    c.run(Micros::from_secs(20));
    assert!(c.found.iter().all(|finding| matches!(finding, Finding::StoreLied { .. })), "{:?}", c.found);
    assert_eq!((c.found.len(), c.bank.is_blocked(U)), (2, Some(false)));
    assert!(!c.stores.values().any(|store| store.is_open(c.now)));
}

#[test]
fn epochs_shrink_while_space_is_low() {
    let mut c = Cluster::with(
        1,
        |config| {
            config.epoch_length = EpochLength { normal: EPOCH, shortest: Micros::from_secs(6), low_permille: 100 };
        },
        |_| {},
    );
    let before = c.epoch();
    c.run(Micros::from_secs(300));
    let calm = c.epoch().0 - before.0;
    c.store_event(store_node(1), crate::store::StoreEvent::Space { free: 1, total: 1000 });
    c.run(Micros::from_secs(70));
    let before = c.epoch();
    c.run(Micros::from_secs(300));
    assert!(c.epoch().0 - before.0 >= 5 * calm);
}

#[test]
fn a_user_without_quota_or_with_a_lowered_one_gets_nothing_but_stays_accounted() {
    let mut c = Cluster::with_quota(U);
    assert!(c.withdraw(C, User(77), 10).is_empty());
    let piece = c.withdraw(C, U, 500)[0];
    c.spend(store_node(1), C, U, &[piece], 500).unwrap();
    c.quota(U, 100);
    assert!(c.withdraw(C, U, 10).is_empty());
    c.epochs(5);
    assert_eq!(c.a(U), 500);
    c.bank_event(BankEvent::RemoveUser { user: U });
    assert!(c.withdraw(C, U, 10).is_empty());
    assert!(matches!(c.to_clients.last(), Some((_, BankToClient::Denied { reason: Denial::UnknownUser, .. }))));
    assert_eq!(c.a(U), 500);
}

#[test]
fn key_rotation_keeps_old_vouchers_until_the_key_is_retired() {
    let mut keys = crate::Keyring::with_root(crate::KeyId(1), [1; 32]);
    let terms = Terms {
        epoch: Epoch(3),
        expiry: Epoch(5),
        user: U,
        value: 1,
        serial: 1,
        issuer: Issuer::default(),
        audience: crate::ANYONE,
    };
    let old = keys.sign(terms).unwrap();
    keys.add_root(crate::KeyId(2), [2; 32]);
    let new = keys.sign(terms).unwrap();
    assert_eq!(new.key, crate::KeyId(2));
    assert!(keys.verify(&old).is_ok() && keys.verify(&new).is_ok());
    keys.retire(crate::KeyId(1));
    assert!(keys.verify(&old).is_err() && keys.verify(&new).is_ok());
    let shown = format!("{keys:?}");
    assert!(!shown.contains("2, 2, 2"), "no key in a log: {shown}");
}

/// A restarted bank knew nothing of the lease of a store's earlier life, and believed in it for ever: the new life waited.
#[test]
fn a_new_life_begins_also_when_the_bank_has_been_restarted_meanwhile() {
    let mut c = Cluster::with_quota(U);
    c.run(Micros::from_secs(5));
    let config = StoreConfig::new(store_node(1), Params::default());
    c.start_store(config, Incarnation(2), BTreeMap::from([(U, 300)]));
    c.reload_bank();
    c.run(Micros::from_secs(60));
    let lives: Vec<_> =
        c.bank.stores().filter(|(node, ..)| *node == store_node(1)).map(|(_, i, _, lost)| (i, lost)).collect();
    assert_eq!(lives, [(Incarnation(1), true), (Incarnation(2), false)]);
    c.epochs(8);
    assert_eq!((c.a(U), c.used(U)), (300, 300));
}

/// What a store reported to a rebuilt bank that still waited for another store was never taken into A, nor forgotten:
/// after a restart of the bank the store's next report seemed to contradict itself.
#[test]
fn a_rebuilt_bank_counts_what_is_reported_before_all_stores_have_come() {
    let keys = Cluster::new(1).keys;
    let (mut out, mut table) = (BankOutput::default(), BTreeMap::new());
    let (one, two) = (Node(5), Node(6));
    let config = Cluster::bank_config();
    let mut bank =
        BankCore::rebuild(config.clone(), keys.clone(), Incarnation(9), [(U, 1000)], [one, two], 0, Epoch(0), &mut out);
    let came = |store, epoch, used: &[(User, i64)]| {
        StoreToBank::Renew(Renew {
            store,
            incarnation: Incarnation(1),
            boot: 7,
            beat: 9,
            bank: Incarnation(9),
            before: Vec::new(),
            epoch: Epoch(13),
            free: 0,
            total: 0,
            base: Some(Base { fresh: false, epoch: Epoch(epoch), used: used.to_vec() }),
        })
    };
    let report = |epoch, before: i64, amount: u64| {
        let id =
            crate::VoucherId { issuer: crate::Issuer { node: Node(1), incarnation: Incarnation(1) }, serial: epoch };
        let epoch = Epoch(epoch);
        StoreToBank::Report(crate::message::Report {
            store: one,
            incarnation: Incarnation(1),
            epoch,
            used: vec![(U, before + amount as i64)],
            spent: vec![crate::message::SpentLine { voucher: id, epoch, user: U, value: amount, client: C, amount }],
            refunds: Vec::new(),
        })
    };
    for message in [came(one, 8, &[(U, 100)]), report(9, 100, 50), came(two, 9, &[])] {
        bank.step(BankEvent::FromStore(message), Micros(1), &mut out);
    }
    bank.step(BankEvent::Tick, Micros(2), &mut out);
    assert_eq!((bank.horizon(), bank.parts(U).unwrap().0), (Epoch(9), 150));
    apply(&mut table, std::mem::take(&mut out.writes));
    let mut bank = BankCore::load(config, keys, Incarnation(1), crate::testing::rows(&table), &mut out).unwrap();
    bank.step(BankEvent::FromStore(report(10, 150, 5)), Micros(3), &mut out);
    assert!(!out.actions.iter().any(|action| matches!(action, BankAction::Found(_))), "{:?}", out.actions);
}
