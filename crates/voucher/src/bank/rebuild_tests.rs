//! A bank rebuilt from limits, and messages from before.

use crate::bank::{BankAction, BankCore, BankEvent, BankOutput};
use crate::message::{BankToStore, StoreToBank};
use crate::store::{StoreAction, StoreConfig, StoreEvent, StoreOutput};
use crate::testing::{Cluster, EPOCH, apply, store_node};
use crate::{Client, Epoch, EpochLength, Incarnation, Micros, Params, User};
use std::collections::BTreeMap;

const U: User = User(1);
const C: Client = Client(1);

/// One step of a store of which every message is carried by hand.
fn by_hand(c: &mut Cluster, event: StoreEvent) -> Vec<StoreToBank> {
    let mut out = StoreOutput::default();
    c.now = c.now + Micros::from_secs(3);
    c.stores.get_mut(&store_node(1)).unwrap().step(event, c.now, &mut out);
    apply(c.store_tables.get_mut(&store_node(1)).unwrap(), out.writes);
    let messages = out.actions.into_iter().filter_map(|action| match action {
        StoreAction::ToBank(message) => Some(message),
        _ => None,
    });
    messages.collect()
}

/// The bank's answers to messages carried by hand.
fn answers(c: &mut Cluster, messages: Vec<StoreToBank>) -> Vec<BankToStore> {
    c.actions.clear();
    for message in messages {
        c.to_bank(message);
    }
    let answers = c.actions.iter().filter_map(|action| match action {
        BankAction::ToStore(_, answer) => Some(answer.clone()),
        _ => None,
    });
    answers.collect()
}

fn rebuild(c: &mut Cluster, life: u32) {
    rebuild_with(c, life, &[1, 2, 3]);
}

fn rebuild_with(c: &mut Cluster, life: u32, stores: &[u32]) {
    let mut out = BankOutput::default();
    let mut config = Cluster::bank_config();
    config.epoch_length = EpochLength { normal: EPOCH, shortest: Micros::from_secs(5), low_permille: 0 };
    let stores: Vec<_> = stores.iter().copied().map(store_node).collect();
    c.bank = BankCore::rebuild(config, c.keys.clone(), Incarnation(life), [(U, 1000)], stores, 0, Epoch(0), &mut out);
    c.bank_table.clear();
    apply(&mut c.bank_table, out.writes);
}

/// Seed 3732: a store had told a rebuilt bank what it held as of an epoch; then a lease of the lost bank came, with a
/// later horizon. The store forgot an epoch that the rebuilt bank waits for to this day.
#[test]
fn a_late_lease_of_the_lost_bank_does_not_make_a_store_forget_what_the_rebuilt_one_needs() {
    let mut c = Cluster::with_quota(U);
    for _ in 0..6 {
        let pieces = c.withdraw(C, U, 20);
        c.spend(store_node(1), C, U, &pieces, 20).unwrap();
        c.epochs(1);
    }
    c.down.push(store_node(1));
    c.epochs(1);
    // The lost bank gets a report and moves its horizon; the acknowledgement is lost, the lease after it comes late.
    let renewal = by_hand(&mut c, StoreEvent::Tick);
    let leases = answers(&mut c, renewal);
    let report = by_hand(&mut c, StoreEvent::FromBank(leases[0].clone()));
    assert!(matches!(report[0], StoreToBank::Report(_)), "{report:?}");
    let horizon = c.bank.horizon();
    answers(&mut c, vec![report[0].clone()]);
    assert_eq!(c.bank.horizon(), horizon.plus(1));
    let renewal = by_hand(&mut c, StoreEvent::Tick);
    let late = answers(&mut c, vec![renewal[0].clone()]);
    rebuild(&mut c, 9);
    let renewal = by_hand(&mut c, StoreEvent::Tick);
    let questions = answers(&mut c, vec![renewal[0].clone()]);
    let told = by_hand(&mut c, StoreEvent::FromBank(questions[0].clone()));
    by_hand(&mut c, StoreEvent::FromBank(late[0].clone()));
    answers(&mut c, told);
    c.down.clear();
    c.run(Micros::from_secs(60));
    assert!(!c.bank.is_recovering());
    assert_eq!((c.a(U), c.used(U)), (120, 120));
}

/// Seed 4726: what a store had told one rebuilt bank came late, to the next one, which took it for the store's last word:
/// it waited for epochs that the store no longer kept, and understated the epoch until which old vouchers may exist.
#[test]
fn a_rebuilt_bank_does_not_believe_what_a_store_told_an_earlier_one() {
    let mut c = Cluster::with_quota(U);
    c.epochs(2);
    rebuild(&mut c, 9);
    c.down.push(store_node(1));
    let renewal = by_hand(&mut c, StoreEvent::Tick);
    let questions = answers(&mut c, vec![renewal[0].clone()]);
    let late = by_hand(&mut c, StoreEvent::FromBank(questions[0].clone()));
    c.down.clear();
    c.run(Micros::from_secs(60));
    assert!(!c.bank.is_recovering());
    for _ in 0..6 {
        let pieces = c.withdraw(C, U, 20);
        c.spend(store_node(1), C, U, &pieces, 20).unwrap();
        c.epochs(1);
    }
    let newest = c.epoch();
    rebuild(&mut c, 20);
    c.down.push(store_node(1));
    answers(&mut c, late);
    assert_eq!(c.bank.stores().count(), 0, "asked again");
    c.down.clear();
    c.run(Micros::from_secs(60));
    assert!(!c.bank.is_recovering());
    assert!(c.epoch() > newest.plus(1), "no epoch of the lost bank comes again");
    assert_eq!((c.a(U), c.used(U)), (120, 120));
}

/// A store that was cut off, and given up, came back while the rebuilt bank, which had not been told of it, was
/// recovering: what it held as of an epoch long reconciled was taken into A, and its newer reports never were.
#[test]
fn a_store_that_a_rebuilt_bank_was_not_told_of_begins_a_new_life() {
    let mut c = Cluster::with_quota(U);
    let pieces = c.withdraw(C, U, 100);
    c.spend(store_node(1), C, U, &pieces, 100).unwrap();
    c.epochs(1);
    c.down.push(store_node(1));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    c.run(Micros::from_secs(20));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    c.epochs(8);
    rebuild_with(&mut c, 9, &[2, 3]);
    c.run(Micros::from_secs(4));
    assert!(c.bank.is_recovering() && c.epoch() > Epoch(10), "it has heard of the stores it knows");
    c.down.clear();
    c.run(Micros::from_secs(3));
    assert_eq!(c.bank.stores().count(), 2);
    assert_eq!(c.reincarnate.first(), Some(&(store_node(1), Incarnation(2))));
    c.start_store(StoreConfig::new(store_node(1), Params::default()), Incarnation(2), BTreeMap::from([(U, 100)]));
    c.run(Micros::from_secs(60));
    assert_eq!((c.a(U), c.used(U)), (100, 100));
}

/// The rebuilt bank recovered at once without a store that was given up, while a lease of the lost bank still ran.
#[test]
fn a_rebuilt_bank_goes_on_without_a_store_only_when_no_old_lease_is_left() {
    let mut c = Cluster::with_quota(U);
    c.down.push(store_node(1));
    rebuild(&mut c, 9);
    c.run(Micros::from_secs(5));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    assert_eq!(c.epoch(), Epoch(4), "waits");
    c.run(Micros::from_secs(11));
    c.bank_event(BankEvent::Exclude { store: store_node(1) });
    assert!(
        c.actions.iter().any(|action| matches!(action, BankAction::Excluded { store, .. } if *store == store_node(1)))
    );
    c.run(Micros::from_secs(60));
    assert!(!c.bank.is_recovering());
}
