//! Reports must fit a request, however much is done.

use super::book::{LINES_MAX, LINES_OF_USER};
use super::tests::{C, U, cluster};
use super::{StoreAction, StoreEvent, StoreOutput};
use crate::bank::{BankAction, BankEvent, BankOutput};
use crate::message::{BankToStore, RefundLine, Refusal, Report, SpentLine, StoreToBank, StoreToClient};
use crate::testing::{Cluster, apply, store_node};
use crate::{Client, Epoch, Incarnation, Issuer, Node, Op, Piece, User, VoucherId};

/// What a bank takes of a store in one request.
const REQUEST_MAX_BYTES: usize = 64 << 20;

/// One event, without the cluster's look at all rows.
fn quick(c: &mut Cluster, event: StoreEvent) -> StoreToClient {
    let (mut out, at) = (StoreOutput::default(), store_node(1));
    c.stores.get_mut(&at).unwrap().step(event, c.now, &mut out);
    apply(c.store_tables.get_mut(&at).unwrap(), out.writes);
    out.actions
        .into_iter()
        .find_map(|action| if let StoreAction::ToClient(_, told) = action { Some(told) } else { None })
        .unwrap()
}

fn spend(c: &mut Cluster, client: u64, op: u64, pieces: Vec<Piece>) -> StoreToClient {
    quick(c, StoreEvent::Spend { client: Client(client), user: U, op: Op(op), pieces, used: 1 })
}

/// Closes all epochs, tells the bank, and gives the last report back.
fn report(c: &mut Cluster) -> Report {
    let mut out = StoreOutput::default();
    let store = c.stores.get_mut(&store_node(1)).unwrap();
    store.head.reported = store.head.epoch;
    store.next_report = c.now;
    store.send_reports(c.now, &mut out);
    let mut last = None;
    for action in out.actions {
        if let StoreAction::ToBank(StoreToBank::Report(report)) = action {
            let (mut out, told) = (BankOutput::default(), StoreToBank::Report(report.clone()));
            c.bank.step(BankEvent::FromStore(told), c.now, &mut out);
            let acked = |action: &BankAction| matches!(action, BankAction::ToStore(_, BankToStore::Ack { reported, .. }) if *reported == report.epoch);
            assert!(out.actions.iter().all(acked), "{:?}", out.actions);
            last = Some(report);
        }
    }
    last.unwrap()
}

#[test]
fn the_longest_lines_fit_a_request_with_room_for_what_each_user_has() {
    let voucher =
        VoucherId { issuer: Issuer { node: Node(u32::MAX), incarnation: Incarnation(u32::MAX) }, serial: u64::MAX };
    let (user, client, value) = (User(u64::MAX), Client(u64::MAX), u64::MAX);
    let spent = SpentLine { voucher, epoch: Epoch(u64::MAX), user, value, client, amount: u64::MAX };
    let refund = RefundLine { voucher, user, value, client };
    let used = (user, i64::MAX);
    let longest = serde_json::to_vec(&spent).unwrap().len().max(serde_json::to_vec(&refund).unwrap().len()) + 1;
    let of_a_user = serde_json::to_vec(&used).unwrap().len() + 1;
    assert!(longest * LINES_MAX + of_a_user * 100_000 < REQUEST_MAX_BYTES, "{longest} and {of_a_user} bytes");
}

/// Regression: half a million refunds in an epoch, or a voucher spent by as many clients, made a report that the bank did not take, that time
/// and ever after: nothing was reconciled any more, and quota ran out for all.
#[test]
fn a_user_who_frees_without_end_gets_the_space_back_and_the_report_stays_small() {
    let mut c = cluster();
    c.quota(U, 1 << 40);
    let whole = c.withdraw(C, U, 1 << 30);
    let held = LINES_OF_USER as u64;
    quick(&mut c, StoreEvent::Spend { client: C, user: U, op: Op(1), pieces: whole, used: held });
    let mut given = 0;
    for op in 0..held {
        let free = StoreEvent::Free { client: C, user: U, is_users: true, op: Op(10 + op), amount: 1 };
        match quick(&mut c, free) {
            StoreToClient::Refunded { refund, .. } => given += u64::from(refund.is_some()),
            other => panic!("{other:?}"),
        }
        if op == held / 2 {
            c.reload_store(store_node(1));
            c.tick();
        }
    }
    assert_eq!((given as usize, c.used(U)), (LINES_OF_USER / 2 - 1, 0));
    let report = report(&mut c);
    assert_eq!(report.refunds.len(), LINES_OF_USER / 2);
    assert_eq!(report.refunds.iter().map(|line| line.value).sum::<u64>(), held);
}

#[test]
fn a_user_who_makes_up_clients_without_end_is_refused_and_others_are_not() {
    let mut c = cluster();
    let other = User(2);
    c.quota(U, 1 << 40);
    c.quota(other, 1 << 40);
    let whole = c.withdraw(C, U, 1 << 30);
    let piece = Piece { amount: 1, ..whole[0] };
    let made_up = LINES_OF_USER as u64 + 1000;
    let refused = (0..made_up).filter(|client| {
        let answer = spend(&mut c, 100 + client, 1, vec![piece]);
        matches!(answer, StoreToClient::Refused { reason: Refusal::TooMany, .. })
    });
    assert_eq!(refused.count(), 1000);
    assert!(matches!(spend(&mut c, 100, 2, vec![piece]), StoreToClient::Spent { .. }), "it has its line");
    let theirs = c.withdraw(Client(7), other, 10);
    c.spend(store_node(1), Client(7), other, &theirs, 10).unwrap();
}
