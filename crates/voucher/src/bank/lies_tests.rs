//! Stores that say what cannot be true: nobody gains by it, and nobody else pays for it.

use super::Finding;
use crate::message::{RefundLine, Report, SpentLine, StoreToBank};
use crate::testing::{Cluster, store_node};
use crate::{Client, Incarnation, User};

const U: User = User(1);
const C: Client = Client(1);

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.quota(U, 1000);
    cluster
}

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
    let mut c = cluster();
    report(&mut c, vec![(U, -5000)], Vec::new(), Vec::new());
    settle(&mut c);
    assert!(matches!(c.found.as_slice(), [Finding::StoreLied { .. }]), "{:?}", c.found);
    assert_eq!(c.a(U), 0);
    assert_eq!(granted(&mut c), 1000);
}

/// What was not refunded is not free, whatever a store says; and it says so in each of its reports, not only in the first.
#[test]
fn use_that_does_not_follow_settles_at_the_larger_of_the_two() {
    let mut c = cluster();
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
    let mut c = cluster();
    report(&mut c, vec![(U, -5000)], Vec::new(), Vec::new());
    c.reload_bank();
    c.run(crate::Micros::from_secs(3));
    settle(&mut c);
    assert_eq!((c.a(U), granted(&mut c)), (0, 1000));
}
