//! Cheating that goes on after it was found.

use crate::bank::{Answer, BankAction, BankConfig, BankEvent, Finding};
use crate::message::{SpentLine, StoreToBank};
use crate::testing::{Cluster, store_node};
use crate::{Client, Incarnation, Micros, Piece, User};

const U: User = User(1);
const C: Client = Client(1);
const D: Client = Client(2);

fn hooks(c: &Cluster) -> Vec<u64> {
    let excess = |action: &BankAction| if let BankAction::Hook { excess, .. } = action { Some(*excess) } else { None };
    c.actions.iter().filter_map(excess).collect()
}

/// A bank with so many stores, at two of which a user spent a voucher: that was found.
fn found(stores: u32) -> Cluster {
    let mut c = Cluster::with(stores, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 400)[0];
    for number in [1, 2] {
        c.spend(store_node(number), C, U, &[piece], 400).unwrap();
    }
    c.run(Micros::from_secs(12));
    assert_eq!(c.found.len(), 1, "{:?}", c.found);
    c
}

/// Once a voucher's cheater was named, nobody else who cheated with it was, and the damage stood still.
#[test]
fn who_cheats_with_a_voucher_of_which_another_was_named_is_named_too_and_all_damage_counts_once() {
    let hook = |config: &mut BankConfig| config.answer = Answer::Hook;
    let mut c = Cluster::with(3, hook, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let mut piece = c.withdraw(C, U, 400)[0];
    let part = piece.split(100).unwrap();
    for number in [1, 2] {
        c.spend(store_node(number), C, U, &[piece], 300).unwrap();
    }
    c.run(Micros::from_secs(12));
    assert_eq!(c.found.len(), 1, "{:?}", c.found);
    c.spend(store_node(3), D, U, &[piece], 300).unwrap();
    c.run(Micros::from_secs(12));
    let Some(Finding::Overspent { clients, stores, spent: 900, .. }) = c.found.last() else { panic!("{:?}", c.found) };
    assert_eq!((clients.as_slice(), stores.len()), (&[C, D][..], 3));
    // More at a store that was told already waits for the end.
    c.spend(store_node(1), C, U, &[part], 100).unwrap();
    c.run(Micros::from_secs(6));
    assert_eq!(c.found.len(), 2, "{:?}", c.found);
    c.epochs(4);
    assert!(matches!(c.found.as_slice(), [_, _, Finding::Overspent { spent: 1000, .. }]), "{:?}", c.found);
    assert_eq!(hooks(&c), [200, 300, 100]);
}

#[test]
fn after_a_restart_what_was_found_is_told_once_more_and_not_found_once_more() {
    let mut c = found(2);
    let found = c.found.clone();
    c.reload_bank();
    c.epochs(4);
    assert_eq!(c.found, [found.clone(), found].concat());
}

/// A user's clients are numbered as the user likes. Of a voucher that was spent again, 4 KiB at a time and each as another client, every
/// line of a report was a finding that named all before it: a few MiB made gigabytes of them.
#[test]
fn a_voucher_spent_again_as_many_clients_is_told_a_few_times_and_at_the_end_in_full() {
    let mut c = Cluster::with(2, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 400)[0];
    c.spend(store_node(1), C, U, &[piece], 400).unwrap();
    c.run(Micros::from_secs(6));
    for client in 1000..1049 {
        c.spend(store_node(2), Client(client), U, &[Piece { amount: 1, ..piece }], 1).unwrap();
    }
    let epoch = c.epoch();
    let line =
        |client| SpentLine { voucher: piece.id(), epoch, user: U, value: 400, client: Client(client), amount: 1 };
    let early = |clients| StoreToBank::Early {
        store: store_node(2),
        incarnation: Incarnation(1),
        spent: (0..clients).map(|client| line(1000 + client)).collect(),
    };
    c.to_bank(early(10));
    let [Finding::Overspent { spent: 410, clients, .. }] = c.found.as_slice() else { panic!("{:?}", c.found) };
    assert_eq!(clients.len(), 11, "one finding for all lines of a report");
    for clients in 10..50 {
        c.to_bank(early(clients));
    }
    assert!(c.found.len() <= 16, "{}", c.found.len());
    let before = c.found.len();
    c.epochs(4);
    let Some(Finding::Overspent { spent: 449, clients, .. }) = c.found.last() else { panic!("{:?}", c.found.last()) };
    assert_eq!((c.found.len(), clients.len()), (before + 1, 50));
}

/// What was found was forgotten K epochs later, though a store that stayed away kept its vouchers on the books: a bank that was started again then
/// found it anew, blocked who had been allowed vouchers again, and told a hook the same bytes again.
#[test]
fn a_finding_is_remembered_as_long_as_what_proves_it() {
    let mut c = found(3);
    assert_eq!(c.bank.is_blocked(U), Some(true));
    c.bank_event(BankEvent::SetBlocked { user: U, blocked: false });
    c.down.push(store_node(3));
    c.epochs(6);
    c.reload_bank();
    assert_eq!((c.found.len(), c.bank.is_blocked(U)), (2, Some(false)), "told once more, and not found once more");
    c.down.clear();
    c.epochs(6);
    c.reload_bank();
    assert_eq!((c.found.len(), c.bank.is_blocked(U)), (2, Some(false)), "all is over");
}
