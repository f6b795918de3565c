//! Stores that say what cannot be true: nobody gains by it, and nobody else pays for it.

use super::{BankEvent, Finding};
use crate::message::{BankToClient, ClientToBank, RefundLine, Report, SpentLine, StoreToBank};
use crate::testing::{Cluster, store_node};
use crate::{Client, Epoch, Incarnation, Issuer, Micros, Node, Op, Piece, User, VoucherId};

const U: User = User(1);
const C: Client = Client(1);

/// What the next report of the third store says, in place of that store.
fn report(c: &mut Cluster, used: Vec<(User, i64)>, spent: Vec<SpentLine>, refunds: Vec<RefundLine>) {
    let store = store_node(3);
    let epoch = c.bank.stores().find(|(node, ..)| *node == store).unwrap().2.plus(1);
    let incarnation = Incarnation(1);
    c.to_bank(StoreToBank::Report(Report { store, incarnation, epoch, used, spent, refunds }));
}

/// Lets the bank settle what the third store has reported, and lets that one say nothing by itself.
fn settle(c: &mut Cluster) {
    c.down.push(store_node(3));
    for _ in 0..8 {
        if c.bank.stores().find(|(node, ..)| *node == store_node(3)).unwrap().2 <= c.epoch() {
            report(c, Vec::new(), Vec::new(), Vec::new());
        }
        c.epochs(1);
    }
}

fn granted(c: &mut Cluster) -> u64 {
    (0..64).flat_map(|_| c.withdraw(C, U, 1 << 40)).map(|piece| piece.amount).sum()
}

/// A use below zero was added to what others hold, and made as much room elsewhere.
#[test]
fn less_than_nothing_at_one_store_is_no_room_at_another() {
    let mut c = Cluster::with_quota(U);
    report(&mut c, vec![(U, -5000)], Vec::new(), Vec::new());
    settle(&mut c);
    assert!(matches!(c.found.as_slice(), [Finding::StoreLied { .. }]), "{:?}", c.found);
    assert_eq!(c.a(U), 0);
    assert_eq!(granted(&mut c), 1000);
}

/// What was not refunded is not free, whatever a store says; and it says so in each of its reports, not only in the first.
#[test]
fn use_that_does_not_follow_settles_at_the_larger_of_the_two() {
    let mut c = Cluster::with_quota(U);
    let pieces = c.withdraw(C, U, 500);
    c.spend(store_node(3), C, U, &pieces, 400).unwrap();
    c.epochs(5);
    assert_eq!(c.bank.parts(U), Some((400, 0)));
    report(&mut c, vec![(U, 100)], Vec::new(), Vec::new());
    report(&mut c, vec![(U, 100)], Vec::new(), Vec::new());
    settle(&mut c);
    assert_eq!(c.found.len(), 2, "{:?}", c.found);
    assert_eq!(c.bank.parts(U), Some((400, 0)));
    assert_eq!(granted(&mut c), 600);
    report(&mut c, vec![(U, 700)], Vec::new(), Vec::new());
    settle(&mut c);
    assert_eq!(c.bank.parts(U).unwrap().0, 700, "more than follows counts as it is said");
}

/// A bank that starts again counts the same.
#[test]
fn what_was_mended_stays_so_after_a_restart() {
    let mut c = Cluster::with_quota(U);
    report(&mut c, vec![(U, -5000)], Vec::new(), Vec::new());
    c.reload_bank();
    c.run(Micros::from_secs(3));
    settle(&mut c);
    assert_eq!((c.a(U), granted(&mut c)), (0, 1000));
}

fn early(c: &mut Cluster, lines: Vec<SpentLine>) {
    c.to_bank(StoreToBank::Early { store: store_node(3), incarnation: Incarnation(1), spent: lines });
}

fn line(epoch: Epoch, voucher: VoucherId, amount: u64) -> SpentLine {
    SpentLine { voucher, epoch, user: U, value: amount, client: C, amount }
}

fn issued(node: Node, serial: u64) -> VoucherId {
    VoucherId { issuer: Issuer { node, incarnation: Incarnation(1) }, serial }
}

fn lies(c: &Cluster) -> Vec<&str> {
    let lies = c.found.iter().map(|finding| match finding {
        Finding::StoreLied { store, why, .. } if *store == store_node(3) => why.as_str(),
        other => panic!("{other:?}"),
    });
    lies.collect()
}

/// No client can make a voucher, and any store can say that it has seen one: the user whom it named was refused vouchers.
#[test]
fn vouchers_that_nobody_issued_block_nobody() {
    let mut c = Cluster::with_quota(U);
    let epoch = c.epoch();
    early(&mut c, vec![line(epoch, issued(Node(1), 7777), 50), line(epoch, issued(store_node(2), 8888), 50)]);
    c.epochs(4);
    let told: Vec<_> = c.found.iter().filter(|finding| matches!(finding, Finding::Forged { .. })).collect();
    let [Finding::Forged { stores, .. }] = told.as_slice() else { panic!("{:?}", c.found) };
    assert_eq!(stores.as_slice(), &[store_node(3)], "who says so");
    assert_eq!(c.bank.is_blocked(U), Some(false));
    assert_eq!(granted(&mut c), 1000);
}

/// Lines of epochs that would never come were kept for ever, and could be told without end.
#[test]
fn what_is_told_of_epochs_that_are_to_come_is_not_kept() {
    let mut c = Cluster::with_quota(U);
    let (epoch, voucher) = (c.epoch(), issued(Node(1), 7777));
    for ahead in 2..100 {
        early(&mut c, vec![line(epoch.plus(ahead), voucher, 50)]);
    }
    early(&mut c, vec![line(Epoch(u64::MAX), voucher, 50)]);
    assert_eq!(lies(&c), ["a voucher of an epoch that is still to come"], "once an epoch");
    assert!(c.bank.spent.is_empty(), "{:?}", c.bank.spent);
    for _ in 0..100 {
        report(&mut c, Vec::new(), Vec::new(), Vec::new());
    }
    assert_eq!(c.found.len(), 2, "{:?}", c.found);
    let reported = c.bank.stores().map(|(_, _, reported, _)| reported).max();
    assert_eq!(reported, Some(epoch.plus(1)), "nor is a report of such");
}

/// A store could have a user refused with what it told early, and leave it out of its account, which settles what is used there.
#[test]
fn what_was_told_early_is_in_the_report_or_the_store_lied() {
    let mut c = Cluster::with(3, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 400)[0];
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    c.down.push(store_node(3));
    c.run(Micros::from_secs(6));
    let reported = |c: &Cluster| c.bank.stores().find(|(node, ..)| *node == store_node(3)).unwrap().2;
    while reported(&c).plus(1) < c.epoch() {
        report(&mut c, Vec::new(), Vec::new(), Vec::new());
    }
    let told = line(c.epoch(), piece.id(), 300);
    early(&mut c, vec![told]);
    assert!(matches!(c.found.as_slice(), [Finding::Overspent { .. }]), "{:?}", c.found);
    c.found.clear();
    report(&mut c, vec![(U, 200)], vec![SpentLine { amount: 200, ..told }], Vec::new());
    assert_eq!(lies(&c), ["it told more of the vouchers of an epoch before it reported it"]);
    early(&mut c, vec![told]);
    let tally = &c.bank.spent[&told.epoch][&piece.id()];
    assert_eq!(tally.spent_by(C), 600, "the report is the last word");
}

/// An honest store that tells early and then reports is believed, also by a bank that has started again between.
#[test]
fn what_was_told_early_and_then_reported_is_no_lie() {
    let mut c = Cluster::with(3, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 400)[0];
    c.spend(store_node(1), C, U, &[piece], 100).unwrap();
    c.run(Micros::from_secs(12));
    c.spend(store_node(1), C, U, &[Piece { amount: 300, ..piece }], 200).unwrap();
    c.reload_bank();
    c.epochs(1);
    c.spend(store_node(2), C, U, &[Piece { amount: 100, ..piece }], 100).unwrap();
    c.epochs(6);
    assert!(c.found.is_empty(), "{:?}", c.found);
    assert_eq!(c.a(U), 400);
}

/// Nobody but the store that it names takes such a voucher, so a client cannot have spent it elsewhere: the user was refused all the same.
#[test]
fn a_voucher_for_one_store_told_by_another_is_that_ones_lie() {
    let mut c = Cluster::with_quota(U);
    let (op, audience) = (Op(700), Some(store_node(1)));
    let request = ClientToBank::Request { user: U, op, want: 400, audience };
    c.bank_event(BankEvent::FromClient(C, request));
    let Some((_, BankToClient::Granted { pieces, .. })) = c.to_clients.last() else { panic!("{:?}", c.to_clients) };
    let piece = pieces[0];
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    let told = line(c.epoch(), piece.id(), 400);
    early(&mut c, vec![told]);
    c.epochs(6);
    assert_eq!(lies(&c), ["a voucher that only another store takes"]);
    assert_eq!((c.bank.is_blocked(U), c.a(U)), (Some(false), 400));
}

/// A line of nothing for another's refund made what was spent of it forged.
#[test]
fn a_refund_is_told_by_who_made_it() {
    let mut c = Cluster::with_quota(U);
    let pieces = c.withdraw(C, U, 400);
    c.spend(store_node(1), C, U, &pieces, 400).unwrap();
    let refund = c.free(store_node(1), C, U, 100).unwrap();
    c.spend(store_node(2), C, U, &[refund], 100).unwrap();
    c.down.push(store_node(3));
    c.epochs(4);
    let epoch = refund.voucher.terms.epoch;
    while c.bank.stores().any(|(node, _, reported, _)| node == store_node(3) && reported < epoch) {
        let theirs = RefundLine { voucher: refund.id(), user: U, value: 0, client: C };
        report(&mut c, Vec::new(), Vec::new(), vec![theirs]);
    }
    settle(&mut c);
    assert!(lies(&c).iter().all(|why| *why == "a refund that it did not make"), "{:?}", c.found);
    assert_eq!(c.bank.is_blocked(U), Some(false));
}
