//! Cheating that goes on after it was found.

use crate::bank::{Answer, BankAction, BankConfig, Finding};
use crate::testing::{Cluster, store_node};
use crate::{Client, Micros, User};

const U: User = User(1);
const C: Client = Client(1);
const D: Client = Client(2);

fn hooks(c: &Cluster) -> Vec<u64> {
    let excess = |action: &BankAction| if let BankAction::Hook { excess, .. } = action { Some(*excess) } else { None };
    c.actions.iter().filter_map(excess).collect()
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
    let mut c = Cluster::with(2, |_| {}, |config| config.early_every = Some(Micros::from_secs(5)));
    c.quota(U, 1000);
    let piece = c.withdraw(C, U, 400)[0];
    for number in [1, 2] {
        c.spend(store_node(number), C, U, &[piece], 400).unwrap();
    }
    c.run(Micros::from_secs(12));
    let found = c.found.clone();
    assert_eq!(found.len(), 1, "{found:?}");
    c.reload_bank();
    c.epochs(4);
    assert_eq!(c.found, [found.clone(), found].concat());
}
