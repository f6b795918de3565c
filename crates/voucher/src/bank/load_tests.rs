//! What a bank that is started again is told must agree with what it was begun with.

use super::{BankConfig, BankCore, BankEvent, BankOutput};
use crate::message::ClientToBank;
use crate::rows::{Key, LoadError};
use crate::testing::{Cluster, Table, apply, rows};
use crate::{Client, Incarnation, Micros, Op, Params, Piece, User};

const U: User = User(1);

fn load(c: &Cluster, table: &Table, params: Params, out: &mut BankOutput) -> Result<BankCore, LoadError> {
    BankCore::load(BankConfig { params, ..Cluster::bank_config() }, c.keys.clone(), Incarnation(1), rows(table), out)
}

fn used() -> Cluster {
    let mut c = Cluster::new(1);
    c.quota(U, 1000);
    c.withdraw(Client(1), U, 300);
    c.epochs(5);
    c
}

/// With a larger K its first tick panicked; with a smaller one, vouchers of before would leave the sum while they can be spent.
#[test]
fn other_parameters_are_refused_and_the_message_says_which_to_take() {
    let c = used();
    for params in [Params::new(2, 5), Params::new(3, 4), Params::new(1, 2)] {
        let error = load(&c, &c.bank_table, params.unwrap(), &mut BankOutput::default()).unwrap_err();
        assert!(error.to_string().contains("--expiry-epochs 2 --reconcile-epochs 3"), "{error}");
    }
    assert!(load(&c, &c.bank_table, Params::default(), &mut BankOutput::default()).is_ok());
}

#[test]
fn a_state_without_its_parameters_is_opened_with_any_that_can_have_been_in_force_and_keeps_them() {
    let c = used();
    let mut table = c.bank_table.clone();
    table.retain(|key, _| key[0] != b'k');
    assert!(table.len() + 1 == c.bank_table.len(), "the row was there");
    let refused = load(&c, &table, Params::new(2, 5).unwrap(), &mut BankOutput::default());
    assert_eq!(refused.unwrap_err(), LoadError::Reconcile { given: 5, most: 3 });
    let mut out = BankOutput::default();
    let mut bank = load(&c, &table, Params::default(), &mut out).unwrap();
    bank.step(BankEvent::Tick, Micros(1), &mut out);
    apply(&mut table, out.writes);
    assert!(load(&c, &table, Params::new(3, 4).unwrap(), &mut BankOutput::default()).is_err());
}

#[test]
fn what_older_versions_kept_in_one_row_is_passed_on() {
    let mut c = Cluster::new(1);
    c.quota(U, 1000);
    let given: Vec<Piece> = (0..3).flat_map(|_| c.withdraw(Client(1), U, 300)).collect();
    let mut table = c.bank_table.clone();
    apply(&mut table, vec![Key::new(b'p').u64(U.0).put(&given)]);
    let mut out = BankOutput::default();
    load(&c, &table, Params::default(), &mut out).unwrap();
    apply(&mut table, out.writes);
    assert!(!table.keys().any(|key| key[0] == b'p'));
    let mut bank = load(&c, &table, Params::default(), &mut BankOutput::default()).unwrap();
    let pooled: u64 = bank.accounts[&U].pool.values().map(|piece| piece.amount).sum();
    assert_eq!(pooled, given.iter().map(|piece| piece.amount).sum::<u64>());
    let mut out = BankOutput::default();
    let (user, op, want, audience) = (U, Op(500), 10_000, None);
    let request = ClientToBank::Request { user, op, want, audience };
    bank.step(BankEvent::FromClient(Client(2), request), Micros(1), &mut out);
    assert!(bank.accounts[&U].pool.is_empty());
}
