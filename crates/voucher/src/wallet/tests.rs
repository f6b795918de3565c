//! A wallet never pays twice with one piece, and asks in time.

use super::{Adaptive, RequestPolicy, Unpaid, Wallet, WalletAction, WalletConfig, WalletEvent, WalletOutput};
use crate::message::{BankToClient, ClientToBank, Refusal, StoreToClient};
use crate::{Client, Epoch, Issuer, KeyId, Keyring, Micros, Node, Op, Piece, Terms, User};
use std::collections::BTreeSet;

const U: User = User(1);
const S: Node = Node(101);
const T: Node = Node(102);

fn wallet(policy: RequestPolicy) -> Wallet {
    let config = WalletConfig {
        client: Client(1),
        user: U,
        policy,
        retry_after: Micros::from_secs(1),
        addressed: BTreeSet::new(),
    };
    Wallet::new(config, Op(1000), Micros(0))
}

fn piece(value: u64, serial: u64, epoch: u64) -> Piece {
    let terms = Terms {
        epoch: Epoch(epoch),
        expiry: Epoch(epoch + 2),
        user: U,
        value,
        serial,
        issuer: Issuer::default(),
        audience: crate::ANYONE,
    };
    Keyring::with_root(KeyId(1), [1; 32]).sign(terms).unwrap().whole()
}

fn step(wallet: &mut Wallet, event: WalletEvent, now: u64) -> Vec<WalletAction> {
    let mut out = WalletOutput::default();
    wallet.step(event, Micros::from_secs(now), &mut out);
    out.actions
}

fn request(actions: &[WalletAction]) -> Option<(Op, u64)> {
    actions.iter().find_map(|action| match action {
        WalletAction::ToBank(ClientToBank::Request { op, want, .. }) => Some((*op, *want)),
        _ => None,
    })
}

fn grant(op: Op, pieces: Vec<Piece>) -> WalletEvent {
    WalletEvent::FromBank(BankToClient::Granted { user: U, op, pieces, epoch: Epoch(5) })
}

fn spend(op: u64, store: Node, need: u64) -> WalletEvent {
    WalletEvent::Spend { op: Op(op), store, need }
}

fn funded(amount: u64) -> Wallet {
    let mut w = wallet(RequestPolicy::Fixed { amount });
    let (op, want) = request(&step(&mut w, spend(1, S, 1), 1)).unwrap();
    assert_eq!(want, amount);
    let actions = step(&mut w, grant(op, vec![piece(amount, 1, 5)]), 1);
    assert!(matches!(actions.as_slice(), [WalletAction::Pay { op: Op(1), .. }]));
    let done = StoreToClient::Spent { op: Op(1), used: 1, balance: Vec::new(), epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(done), 1);
    assert_eq!(w.on_hand(), amount - 1);
    w
}

#[test]
fn a_repeated_grant_refund_or_balance_counts_once() {
    let mut w = funded(100);
    step(&mut w, grant(Op(1000), vec![piece(100, 1, 5)]), 2);
    assert_eq!(w.on_hand(), 99);
    let refund = StoreToClient::Refunded { op: Op(9), refund: Some(piece(50, 2, 5)), epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(refund.clone()), 2);
    step(&mut w, WalletEvent::FromStore(refund), 2);
    assert_eq!(w.on_hand(), 149);
    let actions = step(&mut w, spend(2, S, 60), 2);
    let [WalletAction::Pay { pieces, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    let balance = vec![Piece { amount: 10, ..pieces[0] }];
    let spent = StoreToClient::Spent { op: Op(2), used: 50, balance, epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(spent.clone()), 2);
    step(&mut w, WalletEvent::FromStore(spent), 2);
    assert_eq!(w.on_hand(), 99);
}

#[test]
fn payments_add_up_exactly_and_repetitions_are_identical() {
    let mut w = funded(100);
    let first = step(&mut w, spend(2, S, 40), 2);
    let [WalletAction::Pay { pieces, .. }] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(pieces.iter().map(|piece| piece.amount).sum::<u64>(), 40);
    assert_eq!(step(&mut w, spend(2, S, 40), 3), first);
    assert_eq!(w.on_hand(), 59);
}

#[test]
fn what_was_refused_or_given_up_is_used_again_only_once_its_fate_is_known() {
    let mut w = funded(100);
    let pieces = |paid: &[WalletAction]| match paid {
        [WalletAction::Pay { pieces, .. }] => pieces.to_vec(),
        other => panic!("{other:?}"),
    };
    let paid = step(&mut w, spend(2, S, 40), 2);
    let cancel = vec![WalletAction::Cancel { op: Op(2), store: S, pieces: pieces(&paid) }];
    assert_eq!(step(&mut w, WalletEvent::GiveUp { op: Op(2) }, 3), cancel);
    assert_eq!(w.on_hand(), 59);
    assert_eq!(step(&mut w, WalletEvent::Tick, 5), cancel, "repeated until answered");
    // It had been carried out: there is a balance.
    let third = step(&mut w, spend(3, T, 1), 5);
    let balance = vec![Piece { amount: 10, ..piece(100, 1, 5) }];
    let spent = StoreToClient::Spent { op: Op(2), used: 30, balance, epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(spent), 5);
    assert_eq!(w.on_hand(), 68);
    // A refusal says only that this copy was not carried out.
    let refused = |reason| WalletEvent::FromStore(StoreToClient::Refused { op: Op(3), reason, epoch: Epoch(5) });
    let actions = step(&mut w, refused(Refusal::NoLease), 6);
    assert_eq!(
        actions,
        vec![
            WalletAction::Cancel { op: Op(3), store: T, pieces: pieces(&third) },
            WalletAction::CannotPay { op: Op(3), reason: Unpaid::Refused(Refusal::NoLease) }
        ]
    );
    assert_eq!(w.on_hand(), 68);
    assert!(step(&mut w, refused(Refusal::Cancelled), 6).is_empty());
    assert_eq!(w.on_hand(), 69);
    step(&mut w, refused(Refusal::Cancelled), 6);
    assert_eq!(w.on_hand(), 69, "once");
}

#[test]
fn an_unanswered_request_is_repeated_under_its_number() {
    let mut w = wallet(RequestPolicy::Fixed { amount: 100 });
    let first = request(&step(&mut w, spend(1, S, 10), 1)).unwrap();
    assert!(step(&mut w, WalletEvent::Tick, 1).is_empty());
    assert_eq!(request(&step(&mut w, WalletEvent::Tick, 3)), Some(first));
    assert!(request(&step(&mut w, spend(2, S, 10), 3)).is_none(), "one at a time");
    let actions = step(&mut w, grant(first.0, vec![piece(100, 1, 5)]), 4);
    assert_eq!(actions.len(), 2, "both are paid");
}

#[test]
fn expired_pieces_are_dropped() {
    let mut w = funded(100);
    let refused = StoreToClient::Refused { op: Op(77), reason: Refusal::Short, epoch: Epoch(8) };
    step(&mut w, WalletEvent::FromStore(refused), 2);
    assert_eq!(w.on_hand(), 0);
}

#[test]
fn revocation_returns_everything_that_is_not_needed() {
    let mut w = funded(100);
    let actions = step(&mut w, WalletEvent::FromBank(BankToClient::Revoke { user: U }), 2);
    let [WalletAction::ToBank(ClientToBank::Return { op, pieces, .. })] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!(pieces[0].amount, 99);
    assert_eq!(w.on_hand(), 0);
    // Repeated until it is acknowledged.
    assert_eq!(step(&mut w, WalletEvent::Tick, 4), actions);
    step(&mut w, WalletEvent::FromBank(BankToClient::Returned { user: U, op: *op, accepted: 99 }), 4);
    assert!(step(&mut w, WalletEvent::Tick, 9).is_empty());
}

/// All refunds of many removals went back in one request, which the bank refused for its length, every two seconds and for ever.
#[test]
fn what_is_given_back_goes_in_portions_and_is_forgotten_when_it_expires() {
    let mut w = wallet(RequestPolicy::Fixed { amount: 100 });
    let refund = |serial| StoreToClient::Refunded { op: Op(9), refund: Some(piece(1, serial, 5)), epoch: Epoch(5) };
    for serial in 0..20_000 {
        step(&mut w, WalletEvent::FromStore(refund(serial)), 1);
    }
    let returns = |actions: &[WalletAction]| -> Vec<Op> {
        let op = |action: &WalletAction| match action {
            WalletAction::ToBank(ClientToBank::Return { op, .. }) => *op,
            other => panic!("{other:?}"),
        };
        actions.iter().map(op).collect()
    };
    let portion = returns(&step(&mut w, WalletEvent::GiveBack, 1));
    assert!(portion.len() < 100, "{} at once", portion.len());
    assert_eq!(returns(&step(&mut w, WalletEvent::Tick, 4)), portion, "repeated, and nothing with it");
    let mut under_way = std::collections::VecDeque::from(portion);
    for _ in 0..100 {
        let Some(op) = under_way.pop_front() else { panic!("no more under way: {} on hand", w.on_hand()) };
        let next = step(&mut w, WalletEvent::FromBank(BankToClient::Returned { user: U, op, accepted: 64 }), 4);
        under_way.extend(returns(&next));
    }
    assert!(w.is_returning() && w.on_hand() > 0);
    let late = StoreToClient::Refused { op: Op(77), reason: Refusal::Short, epoch: Epoch(8) };
    step(&mut w, WalletEvent::FromStore(late), 5);
    assert!(step(&mut w, WalletEvent::Tick, 9).is_empty() && !w.is_returning());
    // One that is over does not take along what comes later.
    step(&mut w, spend(1, S, 1), 10);
    assert_eq!(w.waiting(), 1);
}

#[test]
fn adaptive_learns_the_rate_refills_early_and_gives_surplus_back() {
    let adaptive =
        Adaptive { interval: Micros::from_secs(10), window: 3, headroom_permille: 0, least: 50, give_back: true };
    let mut w = wallet(RequestPolicy::Adaptive(adaptive));
    let mut serial = 0;
    let mut asked = Vec::new();
    for second in 0..200u64 {
        let mut actions = step(&mut w, WalletEvent::Tick, second);
        if second < 100 {
            actions.extend(step(&mut w, spend(second, S, 20), second));
        }
        let mut more = Vec::new();
        for action in &actions {
            match action {
                WalletAction::ToBank(ClientToBank::Request { op, want, .. }) => {
                    serial += 1;
                    asked.push((second, *want));
                    more.extend(step(&mut w, grant(*op, vec![piece(*want, serial, 5)]), second));
                }
                WalletAction::ToBank(ClientToBank::Return { op, pieces, .. }) => {
                    asked.push((second, 0));
                    assert!(!pieces.is_empty());
                    let op = *op;
                    step(&mut w, WalletEvent::FromBank(BankToClient::Returned { user: U, op, accepted: 1 }), second);
                }
                _ => {}
            }
        }
        for action in actions.into_iter().chain(more) {
            if let WalletAction::Pay { op, .. } = action {
                let done = StoreToClient::Spent { op, used: 20, balance: Vec::new(), epoch: Epoch(5) };
                step(&mut w, WalletEvent::FromStore(done), second);
            }
        }
    }
    let steady: Vec<u64> = asked.iter().filter(|(s, _)| (40..100).contains(s)).map(|(_, want)| *want).collect();
    assert!(steady.len() <= 9, "little more than one request per interval: {asked:?}");
    let sum: u64 = steady.iter().sum();
    assert!((1000..1500).contains(&sum), "about what is used, 1200: {asked:?}");
    assert!(asked.iter().any(|(s, want)| *s > 100 && *want == 0), "surplus goes back: {asked:?}");
}

/// The sum on hand was once more than the pieces when a voucher came back to more than its value.
#[test]
fn what_is_on_hand_is_what_the_pieces_add_up_to() {
    let mut w = funded(100);
    let paid = step(&mut w, spend(2, S, 60), 2);
    let [WalletAction::Pay { pieces, .. }] = paid.as_slice() else { panic!("{paid:?}") };
    // A store that lies about the balance.
    let balance = vec![Piece { amount: 90, ..pieces[0] }];
    let spent = StoreToClient::Spent { op: Op(2), used: 50, balance, epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(spent), 2);
    assert_eq!(w.on_hand(), 100);
    assert_eq!(w.on_hand(), w.pieces().map(|piece| piece.amount).sum::<u64>());
    let back = step(&mut w, WalletEvent::GiveBack, 3);
    assert!(matches!(back.as_slice(), [WalletAction::ToBank(ClientToBank::Return { .. })]), "{back:?}");
    assert_eq!(w.on_hand(), 0);
    assert!(w.is_returning() && step(&mut w, WalletEvent::GiveBack, 3).is_empty());
}

#[test]
fn a_client_that_is_refused_gives_back_what_is_too_little_for_it() {
    let mut w = funded(100);
    let (op, _) = request(&step(&mut w, spend(2, S, 500), 2)).unwrap();
    let denied = BankToClient::Denied { user: U, op, reason: crate::message::Denial::OverQuota, epoch: Epoch(5) };
    let actions = step(&mut w, WalletEvent::FromBank(denied), 3);
    let [WalletAction::CannotPay { op: Op(2), .. }, WalletAction::ToBank(ClientToBank::Return { pieces, .. })] =
        actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    assert_eq!(pieces[0].amount, 99);
    assert_eq!(w.on_hand(), 0);
}

/// A repeated answer that came after the refund had expired was taken for a new refund, and spent at a store that
/// was an epoch behind: an honest client was named a cheater.
#[test]
fn a_refund_that_is_repeated_after_it_expired_is_worth_nothing() {
    let mut w = funded(100);
    let refund = |epoch| StoreToClient::Refunded { op: Op(9), refund: Some(piece(50, 2, 5)), epoch: Epoch(epoch) };
    step(&mut w, WalletEvent::FromStore(refund(5)), 2);
    assert_eq!(w.on_hand(), 149);
    step(&mut w, WalletEvent::FromStore(refund(8)), 3);
    assert_eq!(w.on_hand(), 0, "everything has expired");
    step(&mut w, WalletEvent::FromStore(refund(8)), 4);
    assert_eq!(w.on_hand(), 0);
}

/// Who removed a chunk that another had grown got the other's refund, and paid with it: the store refused, and all vouchers that
/// went with it were lost.
#[test]
fn a_refund_of_another_user_is_not_paid_with() {
    let mut w = funded(100);
    let keys = Keyring::with_root(KeyId(1), [1; 32]);
    let foreign = keys.sign(Terms { user: User(2), ..piece(50, 2, 5).voucher.terms }).unwrap().whole();
    let refund = StoreToClient::Refunded { op: Op(9), refund: Some(foreign), epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(refund), 2);
    assert_eq!(w.on_hand(), 99);
    let own = StoreToClient::Refunded { op: Op(9), refund: Some(piece(50, 2, 5)), epoch: Epoch(5) };
    step(&mut w, WalletEvent::FromStore(own), 2);
    assert_eq!(w.on_hand(), 149);
}

/// A store that charges another user, or finds one voucher expired, refused: everything that had been sent was lost.
#[test]
fn what_a_store_refuses_for_one_of_them_is_good_elsewhere() {
    for (reason, left) in [(Refusal::ForeignUser, 149), (Refusal::ForeignAudience, 149), (Refusal::Expired, 99)] {
        let mut w = funded(100);
        let refund = StoreToClient::Refunded { op: Op(9), refund: Some(piece(50, 2, 3)), epoch: Epoch(5) };
        step(&mut w, WalletEvent::FromStore(refund), 2);
        let paid = step(&mut w, spend(2, S, 149), 2);
        assert!(matches!(paid.as_slice(), [WalletAction::Pay { pieces, .. }] if pieces.len() == 2), "{paid:?}");
        let epoch = if reason == Refusal::Expired { Epoch(6) } else { Epoch(5) };
        let refused = |reason| WalletEvent::FromStore(StoreToClient::Refused { op: Op(2), reason, epoch });
        let told = step(&mut w, refused(reason), 3);
        assert!(matches!(told.as_slice(), [WalletAction::Cancel { .. }, WalletAction::CannotPay { .. }]), "{told:?}");
        step(&mut w, refused(Refusal::Cancelled), 3);
        assert_eq!(w.on_hand(), left, "{reason:?}");
    }
}

/// Every payment of a client that had deleted many small files sorted all its refunds: 0.3 of the throughput was left.
#[test]
fn many_small_refunds_do_not_slow_payments_down() {
    let time = |refunds: u64| {
        let mut wallet = funded(1 << 40);
        for serial in 0..refunds {
            let refund =
                StoreToClient::Refunded { op: Op(serial), refund: Some(piece(8192, serial + 10, 4)), epoch: Epoch(1) };
            step(&mut wallet, WalletEvent::FromStore(refund), 1);
        }
        let began = std::time::Instant::now();
        for op in 0..2000 {
            let paid = step(&mut wallet, spend(1 << 20 | op, Node(7), 8192), 1);
            assert!(matches!(paid.as_slice(), [WalletAction::Pay { pieces, .. }] if pieces.len() == 1), "{paid:?}");
            let spent = StoreToClient::Spent { op: Op(1 << 20 | op), used: 8192, balance: Vec::new(), epoch: Epoch(1) };
            step(&mut wallet, WalletEvent::FromStore(spent), 1);
        }
        began.elapsed()
    };
    let (few, many) = (time(2000), time(60_000));
    assert!(many < few * 10, "{many:?} with thirty times as many as in {few:?}");
}

/// More small pieces than a request may carry, and one large one: it is the large one that pays.
#[test]
fn a_large_payment_is_not_made_of_small_pieces() {
    let mut wallet = funded(1 << 30);
    for serial in 0..1000 {
        let refund =
            StoreToClient::Refunded { op: Op(serial), refund: Some(piece(4096, serial + 10, 4)), epoch: Epoch(1) };
        step(&mut wallet, WalletEvent::FromStore(refund), 1);
    }
    let paid = step(&mut wallet, spend(5000, Node(7), 4 << 20), 1);
    assert!(matches!(paid.as_slice(), [WalletAction::Pay { pieces, .. }] if pieces.len() == 1), "{paid:?}");
    let small = step(&mut wallet, spend(5001, Node(7), 40_960), 1);
    assert!(matches!(small.as_slice(), [WalletAction::Pay { pieces, .. }] if pieces.len() == 10), "{small:?}");
}

/// Regression: what a request was sent with that turned out to free space was away until it expired, though the store had taken nothing of it.
#[test]
fn what_a_request_that_freed_was_sent_with_comes_back() {
    let freed = |refund| {
        let mut w = funded(100_000);
        let before = w.on_hand();
        step(&mut w, spend(7, S, 8192), 2);
        let answer = StoreToClient::Refunded { op: Op(7), refund: Some(refund), epoch: Epoch(5) };
        step(&mut w, WalletEvent::FromStore(answer.clone()), 3);
        // As the end of the request does, and what the store answers to the question that follows.
        step(&mut w, WalletEvent::GiveUp { op: Op(7) }, 3);
        step(&mut w, WalletEvent::FromStore(answer), 3);
        w.on_hand() - before
    };
    assert_eq!(freed(piece(1 << 20, 99, 5)), 1 << 20);
    // The store forgets its answer while it still takes vouchers of the next epoch, a copy of the request with them.
    assert_eq!(freed(piece(1 << 20, 99, 4)), (1 << 20) - 8192);
}
