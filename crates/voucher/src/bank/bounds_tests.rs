//! What one user can make a bank remember.

use super::{BankConfig, Policy, Waits};
use crate::message::{BankToClient, Denial};
use crate::testing::Cluster;
use crate::{Client, Micros, Op, User};
use std::time::{Duration, Instant};

const U: User = User(1);
const C: Client = Client(1);
const MOST: usize = 10;

fn cluster(policy: impl Fn(&mut BankConfig)) -> Cluster {
    let bank = |config: &mut BankConfig| {
        config.user_max = MOST;
        policy(config);
    };
    let mut cluster = Cluster::with(1, bank, |_| {});
    cluster.quota(U, 1000);
    cluster.quota(User(2), 1000);
    cluster
}

fn refused(c: &Cluster, of: Client, request: Op) -> bool {
    c.to_clients.iter().any(|(client, message)| {
        *client == of && matches!(message, BankToClient::Denied { op, reason: Denial::TooMany, .. } if *op == request)
    })
}

/// A thousand requests for one byte each in one message, again and again, took all the memory of the bank.
#[test]
fn a_user_who_asks_for_one_byte_at_a_time_is_refused_until_epochs_pass() {
    let mut c = cluster(|_| {});
    for op in 0..2 * MOST as u64 {
        c.withdraw_as(C, U, Op(op), 1);
    }
    assert_eq!(c.a(U), MOST as i128, "no more than so many are remembered");
    assert!(refused(&c, C, Op(MOST as u64)));
    assert_eq!(c.withdraw_as(C, U, Op(3), 1).len(), 1, "a repetition is answered all the same");
    assert_eq!(c.withdraw_as(C, User(2), Op(400), 1).len(), 1, "and others");
    c.bank = super::BankCore::load(
        BankConfig { user_max: MOST, ..Cluster::bank_config() },
        c.keys.clone(),
        crate::Incarnation(1),
        crate::testing::rows(&c.bank_table),
        &mut super::BankOutput::default(),
    )
    .unwrap();
    assert!(c.withdraw_as(C, U, Op(500), 1).is_empty(), "a restart changes nothing");
    c.epochs(5);
    assert_eq!(c.withdraw_as(C, U, Op(501), 1).len(), 1);
}

#[test]
fn no_more_of_one_users_clients_are_remembered() {
    let mut c = cluster(|_| {});
    c.withdraw(C, U, 1000);
    for client in 0..2 * MOST as u64 {
        // With nothing left each is denied, and was remembered as active.
        c.quota(U, 0);
        c.withdraw_as(Client(100 + client), U, Op(client), 1);
    }
    assert!(!refused(&c, Client(100), Op(0)));
    assert!(refused(&c, Client(100 + MOST as u64), Op(MOST as u64)));
}

#[test]
fn what_comes_back_byte_by_byte_is_remembered_as_often_as_that() {
    let mut c = cluster(|_| {});
    let mut piece = c.withdraw(C, U, 100)[0];
    for op in 0..MOST as u64 {
        let part = piece.split(1).unwrap();
        assert_eq!(c.give_back(C, U, Op(100 + op), vec![part]), 1);
    }
    assert_eq!(c.give_back(C, U, Op(300), vec![piece]), 0);
    c.epochs(5);
    let again = c.withdraw(C, U, 100);
    assert_eq!(c.give_back(C, U, Op(301), again), 100);
}

#[test]
fn no_more_than_so_many_requests_of_one_user_wait() {
    let policy = Policy::Revocation { timeout: Micros::from_secs(5), waits: Waits::Enough };
    let mut c = cluster(|config| config.policy = policy);
    c.withdraw(C, U, 1000);
    for op in 0..2 * MOST as u64 {
        c.withdraw_as(Client(2), U, Op(op), 1000);
    }
    assert!(!refused(&c, Client(2), Op(1)) && refused(&c, Client(2), Op(2 * MOST as u64 - 1)));
}

/// Each request looked at all clients of its user: with as many as are remembered, a batch of requests took seconds.
#[test]
fn a_request_costs_no_more_where_its_user_has_made_up_many_clients() {
    const CLIENTS: u64 = 100_000;
    let policies = [Policy::Limiting { floor: 1 }, Policy::Revocation { timeout: Micros(0), waits: Waits::Answers }];
    for policy in policies {
        let mut c = Cluster::with(1, |config| config.policy = policy, |_| {});
        c.quota(U, 0);
        let began = Instant::now();
        for client in 0..CLIENTS {
            c.withdraw_as(Client(client), U, Op(1), 1);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{policy:?}: {:?}", began.elapsed());
    }
}

/// Regression: each refund that came back, or was passed on, wrote all of the user's that had: after some ten thousand small files were removed,
/// gigabytes.
#[test]
fn what_comes_back_is_written_alone_however_much_is_there() {
    const REFUNDS: usize = 600;
    let at = crate::testing::store_node(1);
    let mut c = Cluster::new(1);
    c.quota(U, 1 << 20);
    let pieces = c.withdraw(C, U, 1 << 19);
    c.spend(at, C, U, &pieces, 1 << 19).unwrap();
    let refunds: Vec<_> = (0..REFUNDS).map(|_| c.free(at, C, U, 16).unwrap()).collect();
    let mut most = 0;
    let mut step = |c: &mut Cluster, message| {
        let mut out = super::BankOutput::default();
        c.bank.step(super::BankEvent::FromClient(C, message), c.now, &mut out);
        let length = |write: &crate::Write| write.key.len() + write.value.iter().flatten().count();
        most = most.max(out.writes.iter().map(length).sum());
        crate::testing::apply(&mut c.bank_table, out.writes);
    };
    for (number, pieces) in refunds.chunks(64).enumerate() {
        let pieces = pieces.to_vec();
        step(&mut c, crate::message::ClientToBank::Return { user: U, op: Op(1000 + number as u64), pieces });
    }
    // What is passed on: all of it, after a restart too.
    for number in 0..2 * REFUNDS as u64 / 64 {
        if number % 8 == 7 {
            let bank = Cluster::bank_config();
            let mut out = super::BankOutput::default();
            let rows = crate::testing::rows(&c.bank_table);
            c.bank = super::BankCore::load(bank, c.keys.clone(), crate::Incarnation(1), rows, &mut out).unwrap();
            crate::testing::apply(&mut c.bank_table, out.writes);
        }
        let (user, op, want, audience) = (U, Op(5000 + number), 1 << 18, None);
        c.quota(U, 1 << 19);
        step(&mut c, crate::message::ClientToBank::Request { user, op, want, audience });
    }
    assert!(most < 32 << 10, "{most} bytes at once");
    assert_eq!(c.bank.accounts[&U].pool.len(), REFUNDS % 32);
    assert!(!c.bank_table.keys().any(|key| key[0] == b'p'));
}
