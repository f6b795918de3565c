//! What a request frees of users in several shards, of which each forgets at times of its own.

use super::tests::settings;
use super::*;
use crate::chunk::{Ledger, Posting};
use std::time::{Duration, Instant};
use ullage_voucher::message::{Lease, Refusal};
use ullage_voucher::{ANYONE, Issuer, Terms};

/// Whose chunks it is about, a shard each.
const ALICE: &str = "alice";
const BOB: &str = "bob";

fn shard(name: &str) -> u32 {
    identity::shard_of(identity::user(name), 2)
}

/// Two shards with a lease each, in epoch 5.
fn two_shards() -> Accounts {
    assert_ne!(shard(ALICE), shard(BOB));
    let mut settings = settings(true);
    settings.shards = 2;
    settings.renew_every = Micros::from_millis(20);
    let mut accounts = Accounts::new(&settings);
    accounts.start(&BTreeMap::new()).unwrap();
    lease(&mut accounts, shard(ALICE), 5, 0);
    lease(&mut accounts, shard(BOB), 5, 0);
    accounts
}

/// Answers the next renewal of a shard.
fn lease(accounts: &mut Accounts, shard: u32, epoch: u64, horizon: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    let renew = loop {
        assert!(Instant::now() < until, "no renewal");
        let found = accounts.tick((1, 1)).1.to_bank.into_iter().find_map(|(of, message)| match message {
            StoreToBank::Renew(renew) if of == shard => Some(renew),
            _ => None,
        });
        match found {
            Some(renew) => break renew,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let lease = Lease {
        bank: Incarnation(1),
        incarnation: renew.incarnation,
        boot: renew.boot,
        beat: renew.beat,
        length: Micros::from_secs(600),
        epoch: Epoch(epoch),
        reported: Epoch(horizon),
        horizon: Epoch(horizon),
        accept_from: Epoch(5),
    };
    accounts.from_bank(shard, vec![BankToStore::Lease(lease)]);
}

/// The epochs of one shard are reconciled before the other's, and what was answered in them is forgotten there.
fn forget(accounts: &mut Accounts, shard: u32) {
    for epoch in 6..20 {
        lease(accounts, shard, epoch, epoch.saturating_sub(3));
    }
}

/// One client of alice's, with vouchers of epoch 5 over what it takes.
fn payment(accounts: &Accounts, op: u64, payer: &str, value: u64) -> Payment {
    let terms = Terms {
        epoch: Epoch(5),
        expiry: Epoch(5 + accounts.params().expiry()),
        user: identity::user(payer),
        value,
        serial: op,
        issuer: Issuer { node: identity::bank_node(0), incarnation: Incarnation(1) },
        audience: ANYONE,
    };
    let pieces = (value > 0).then(|| accounts.plan.keys.sign(terms).unwrap().whole()).into_iter().collect();
    Payment { client: identity::client(ALICE, 1), op, payer: payer.into(), pieces, settled: None }
}

fn posting(user: &str, delta_bytes: i64) -> Posting {
    Posting { user: user.into(), delta_bytes }
}

fn write(accounts: &mut Accounts, op: u64, user: &str, bytes: u64) {
    let payment = payment(accounts, op, user, bytes);
    accounts.book(&[posting(user, bytes as i64)], &payment).unwrap();
}

/// A chunk that both are charged for goes.
fn free(accounts: &mut Accounts, op: u64) -> Result<(Vec<u8>, Vec<StoreToClient>), Unpaid> {
    let payment = payment(accounts, op, ALICE, 0);
    accounts.book(&[posting(ALICE, -8192), posting(BOB, -4096)], &payment)
}

fn used(accounts: &Accounts) -> (u64, u64) {
    (accounts.used(ALICE), accounts.used(BOB))
}

/// Regression: what one user freed was booked in one shard and the rest refused in another, which still knew what the client had settled: the
/// chunk stayed, and its space was there once more.
#[test]
fn what_one_shard_refuses_is_booked_in_none() {
    let mut accounts = two_shards();
    write(&mut accounts, 1, BOB, 4096);
    write(&mut accounts, 2, ALICE, 8192);
    let settles = Payment { settled: Some(1000), ..payment(&accounts, 1000, ALICE, 0) };
    accounts.book(&[], &settles).unwrap();
    forget(&mut accounts, shard(ALICE));
    let refused = free(&mut accounts, 5);
    assert!(matches!(refused, Err(Unpaid::Refused { reason: Refusal::Settled, .. })), "{refused:?}");
    assert_eq!(used(&accounts), (8192, 4096));
    assert!(accounts.earlier(identity::client(ALICE, 1), 5).is_none());
}

/// Regression: under a number that one shard had forgotten and another had not, what was freed of the other's user stayed charged, though the
/// chunk was gone.
#[test]
fn what_one_shard_repeats_is_booked_in_none() {
    let mut accounts = two_shards();
    for (op, user, bytes) in [(1, BOB, 4096), (2, ALICE, 8192), (3, ALICE, 8192), (4, BOB, 4096)] {
        write(&mut accounts, op, user, bytes);
    }
    free(&mut accounts, 5).unwrap();
    assert_eq!(used(&accounts), (8192, 4096));
    forget(&mut accounts, shard(ALICE));
    let again = free(&mut accounts, 5);
    assert!(matches!(again, Err(Unpaid::Refused { .. })), "{again:?}");
    // Nor is it anything else: what it was sent with may have been spent elsewhere.
    let pays = payment(&accounts, 5, BOB, 4096);
    let again = accounts.book(&[posting(BOB, 4096)], &pays);
    assert!(matches!(again, Err(Unpaid::Refused { .. })), "{again:?}");
    assert_eq!(used(&accounts), (8192, 4096));
}
