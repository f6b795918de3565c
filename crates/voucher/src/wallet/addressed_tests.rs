//! Stores that take nothing but what is addressed to them.

use super::{Adaptive, RequestPolicy, Unpaid, Wallet, WalletAction, WalletConfig, WalletEvent, WalletOutput};
use crate::message::{BankToClient, ClientToBank, Denial, Refusal, StoreToClient};
use crate::{ANYONE, Client, Epoch, Issuer, KeyId, Keyring, Micros, Node, Op, Piece, Terms, User};
use std::collections::BTreeSet;

const U: User = User(1);
const OPEN: Node = Node(101);
const STRICT: Node = Node(102);

fn wallet() -> Wallet {
    let addressed = BTreeSet::from([STRICT]);
    let policy = RequestPolicy::Fixed { amount: 1000 };
    let config = WalletConfig { client: Client(1), user: U, policy, addressed, retry_after: Micros::from_secs(1) };
    Wallet::new(config, Op(1000), Micros(0))
}

fn piece(value: u64, serial: u64, audience: Node) -> Piece {
    let (epoch, expiry) = (Epoch(5), Epoch(7));
    let terms = Terms { epoch, expiry, user: U, value, serial, issuer: Issuer::default(), audience };
    Keyring::with_root(KeyId(1), [1; 32]).sign(terms).unwrap().whole()
}

fn step(wallet: &mut Wallet, event: WalletEvent) -> Vec<WalletAction> {
    let mut out = WalletOutput::default();
    wallet.step(event, Micros(1), &mut out);
    out.actions
}

fn asked(actions: &[WalletAction]) -> (Op, u64, Option<Node>) {
    match actions.last() {
        Some(WalletAction::ToBank(ClientToBank::Request { op, want, audience, .. })) => (*op, *want, *audience),
        other => panic!("{other:?}"),
    }
}

fn grant(op: Op, pieces: Vec<Piece>) -> WalletEvent {
    WalletEvent::FromBank(BankToClient::Granted { user: U, op, pieces, epoch: Epoch(5) })
}

fn spend(op: u64, store: Node, need: u64) -> WalletEvent {
    WalletEvent::Spend { op: Op(op), store, need }
}

#[test]
fn each_store_is_paid_with_what_it_takes() {
    let mut w = wallet();
    let (op, want, audience) = asked(&step(&mut w, spend(1, OPEN, 10)));
    assert_eq!((want, audience), (1000, None));
    step(&mut w, grant(op, vec![piece(1000, 1, ANYONE)]));
    // There is plenty, and none of it is good there; asked for is just what is needed.
    let (op, want, audience) = asked(&step(&mut w, spend(2, STRICT, 70)));
    assert_eq!((want, audience), (70, Some(STRICT)));
    assert!(step(&mut w, spend(3, STRICT, 30)).is_empty(), "one request at a time");
    let actions = step(&mut w, grant(op, vec![piece(70, 2, STRICT)]));
    assert!(
        matches!(&actions[0], WalletAction::Pay { op: Op(2), pieces, .. } if pieces[0].voucher.terms.audience == STRICT)
    );
    let (op, want, audience) = asked(&actions);
    assert_eq!((want, audience), (30, Some(STRICT)));
    // What is refused there does not refuse what waits for elsewhere.
    step(&mut w, spend(4, OPEN, 20));
    let denied = BankToClient::Denied { user: U, op, reason: Denial::OverQuota, epoch: Epoch(5) };
    let actions = step(&mut w, WalletEvent::FromBank(denied));
    let unpaid = Unpaid::Denied(Denial::OverQuota);
    assert!(actions.contains(&WalletAction::CannotPay { op: Op(3), reason: unpaid }), "{actions:?}");
    assert!(actions.iter().any(|action| matches!(action, WalletAction::Pay { op: Op(4), .. })), "{actions:?}");
}

/// It does not know of addresses: asked again and again, it would give the whole quota, and nothing would be paid.
#[test]
fn a_bank_that_gives_what_any_store_takes_is_not_asked_again() {
    let mut w = wallet();
    let (op, ..) = asked(&step(&mut w, spend(1, STRICT, 70)));
    let actions = step(&mut w, grant(op, vec![piece(70, 1, ANYONE)]));
    let reason = Unpaid::Refused(Refusal::ForeignAudience);
    assert_eq!(actions, [WalletAction::CannotPay { op: Op(1), reason }]);
    assert_eq!(w.on_hand(), 70);
}

#[test]
fn older_messages_are_those_without_an_address() {
    let request = ClientToBank::Request { user: U, op: Op(1), want: 2, audience: None };
    let text = serde_json::to_string(&request).unwrap();
    assert!(!text.contains("audience"), "{text}");
    assert_eq!(serde_json::from_str::<ClientToBank>(&text).unwrap(), request);
}

/// What was freed at a store that is paid by itself counted against what was spent elsewhere: too little was asked for.
#[test]
fn what_is_freed_at_a_store_that_is_paid_by_itself_makes_no_difference_elsewhere() {
    let adaptive = Adaptive { window: 1, headroom_permille: 0, least: 1, ..Adaptive::default() };
    let config = WalletConfig { policy: RequestPolicy::Adaptive(adaptive), ..wallet().config };
    let mut w = Wallet::new(config, Op(1000), Micros(0));
    let refund = Some(piece(5000, 9, STRICT));
    step(&mut w, WalletEvent::FromStore(StoreToClient::Refunded { op: Op(1), refund, epoch: Epoch(5) }));
    let (op, ..) = asked(&step(&mut w, spend(2, OPEN, 1000)));
    step(&mut w, grant(op, vec![piece(1000, 1, ANYONE)]));
    let mut out = WalletOutput::default();
    w.step(WalletEvent::Tick, adaptive.interval + Micros(1), &mut out);
    let (_, want, audience) = asked(&out.actions);
    assert_eq!((want / 100, audience), (9, None), "what was spent in an interval");
}
