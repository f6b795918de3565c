//! What one user's requests cost a bank that revokes.

use super::{Policy, Waits};
use crate::message::{BankToClient, Denial, SpentLine, StoreToBank};
use crate::testing::{Cluster, store_node};
use crate::{Client, Incarnation, Micros, Op, User};
use std::time::{Duration, Instant};

const U: User = User(1);
const CLIENTS: u64 = 300;

fn cluster(timeout: Micros, quota: u64) -> Cluster {
    let policy = Policy::Revocation { timeout, waits: Waits::Answers };
    let mut c = Cluster::with(1, |config| config.policy = policy, |_| {});
    c.quota(U, quota);
    c
}

fn revokes(c: &Cluster) -> usize {
    c.to_clients.iter().filter(|(_, message)| matches!(message, BankToClient::Revoke { .. })).count()
}

fn was_asked(c: &Cluster, of: Client) -> bool {
    c.to_clients.contains(&(of, BankToClient::Revoke { user: U }))
}

fn is_answered(c: &Cluster, of: Client, request: Op) -> bool {
    c.to_clients.iter().any(|(client, message)| match message {
        BankToClient::Granted { op, .. } | BankToClient::Denied { op, .. } => (*client, *op) == (of, request),
        _ => false,
    })
}

/// Each request of a user with nothing left asked every client that he had made up: 1024 in one batch were as many times all of them.
#[test]
fn requests_of_a_user_with_no_quota_ask_each_of_his_clients_once_in_a_while() {
    for timeout in [Micros(0), Micros::from_secs(5)] {
        let mut c = cluster(timeout, 0);
        for client in 0..CLIENTS {
            c.withdraw(Client(client), U, 1);
        }
        for _ in 0..100 {
            c.withdraw(Client(0), U, 1);
        }
        assert!(matches!(c.to_clients.last(), Some((_, BankToClient::Denied { reason: Denial::OverQuota, .. }))));
        assert!(revokes(&c) <= 2 * CLIENTS as usize, "{}", revokes(&c));
    }
}

/// Clients that hold something and do not answer were asked by each request, too.
#[test]
fn requests_of_a_user_whose_clients_are_silent_ask_each_of_them_once_in_a_while() {
    let mut c = cluster(Micros::from_secs(5), CLIENTS);
    for client in 0..CLIENTS {
        assert_eq!(c.withdraw(Client(client), U, 1).len(), 1);
    }
    let request = c.op();
    c.withdraw_as(Client(0), U, request, 1);
    assert!(!is_answered(&c, Client(0), request), "they are waited for, once");
    c.run(Micros::from_secs(6));
    assert!(is_answered(&c, Client(0), request));
    for _ in 0..100 {
        let request = c.op();
        c.withdraw_as(Client(0), U, request, 1);
        assert!(is_answered(&c, Client(0), request));
    }
    assert!(revokes(&c) <= 2 * CLIENTS as usize, "{}", revokes(&c));
}

/// Who gave a byte back and took it again had all clients asked with the next request, as often as he liked.
#[test]
fn grants_and_returns_between_requests_do_not_have_all_clients_asked_anew() {
    let mut c = cluster(Micros::from_secs(5), 1);
    let mut piece = c.withdraw(Client(0), U, 1)[0];
    for client in 1..CLIENTS {
        c.withdraw(Client(client), U, 1);
    }
    c.run(Micros::from_secs(6));
    for _ in 0..100 {
        let op = c.op();
        assert_eq!(c.give_back(Client(0), U, op, vec![piece]), 1);
        piece = c.withdraw(Client(0), U, 1)[0];
        let request = c.op();
        c.withdraw_as(Client(0), U, request, 1);
        assert!(is_answered(&c, Client(0), request), "nobody else has anything");
    }
    assert!(revokes(&c) <= 2 * CLIENTS as usize, "{}", revokes(&c));
}

#[test]
fn who_answered_or_asked_meanwhile_is_asked_again_and_who_has_not_answered_yet_is_still_waited_for() {
    let (holder, other, short) = (Client(1), Client(2), Client(3));
    let mut c = cluster(Micros::from_secs(5), 1000);
    let mut piece = c.withdraw(holder, U, 600)[0];
    let mut rest = c.withdraw(other, U, 400)[0];
    c.withdraw_as(short, U, Op(50), 100);
    assert!(was_asked(&c, holder) && was_asked(&c, other));
    let part = piece.split(100).unwrap();
    c.give_back(holder, U, Op(60), vec![part]);
    assert!(is_answered(&c, short, Op(50)));
    c.to_clients.clear();
    c.withdraw_as(short, U, Op(51), 100);
    assert!(was_asked(&c, holder), "it has answered, and may have more by now");
    assert!(!was_asked(&c, other), "it was asked, and has not answered");
    c.give_back(holder, U, Op(61), vec![]);
    assert!(!is_answered(&c, short, Op(51)), "it is waited for all the same");
    let part = rest.split(100).unwrap();
    c.give_back(other, U, Op(62), vec![part]);
    assert!(is_answered(&c, short, Op(51)));
    c.to_clients.clear();
    c.withdraw_as(other, U, Op(52), 2000);
    assert!(was_asked(&c, short), "who was granted something may be done with it");
    assert!(!is_answered(&c, other, Op(52)));
}

/// When the time that a request waits is over, all are asked anew: somebody may have what nobody could know of.
#[test]
fn all_are_asked_again_when_the_time_of_a_request_is_over() {
    let mut c = cluster(Micros::from_secs(5), 0);
    let asked = |c: &mut Cluster| {
        c.to_clients.clear();
        c.withdraw(Client(0), U, 1);
        revokes(c)
    };
    c.withdraw(Client(1), U, 1);
    assert_eq!((asked(&mut c), asked(&mut c)), (1, 0));
    c.now = c.now + Micros::from_secs(5);
    assert_eq!((asked(&mut c), asked(&mut c)), (1, 0));
    c.now = c.now + Micros(1);
    assert_eq!(asked(&mut c), 0);
}

/// To learn what one client had spent of a voucher all lines of it were copied, for each client that was asked.
#[test]
fn a_voucher_with_many_lines_costs_who_asks_its_holders_no_more_than_one_with_few() {
    const LINES: u64 = 200_000;
    const HOLDERS: u64 = 1000;
    let mut c = cluster(Micros::from_secs(5), 1 << 40);
    let piece = c.withdraw(Client(0), U, 1 << 40)[0];
    // All have a part of one voucher, as the bank passes on what comes back.
    let op = c.op();
    c.give_back(Client(0), U, op, vec![piece]);
    for client in 1..=HOLDERS {
        c.withdraw(Client(client), U, 1);
    }
    let line = |client| SpentLine {
        voucher: piece.id(),
        epoch: piece.voucher.terms.epoch,
        user: U,
        value: piece.voucher.terms.value,
        client: Client(HOLDERS + client),
        amount: 1,
    };
    let (store, incarnation) = (store_node(1), Incarnation(1));
    c.to_bank(StoreToBank::Early { store, incarnation, spent: (1..=LINES).map(line).collect() });
    let began = Instant::now();
    c.withdraw(Client(0), U, u64::MAX);
    assert_eq!(revokes(&c) as u64, HOLDERS);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
