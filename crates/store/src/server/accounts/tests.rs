//! Accounts with and without checks.

use super::*;
use crate::chunk::{Ledger, Posting};
use std::time::Duration;
use ullage_bank::client::BankClient;
use ullage_net::client::{Client as Http, Settings};
use ullage_voucher::message::{Lease, Refusal};
use ullage_voucher::{ANYONE, Issuer, KeyId, Node, Pieces, Terms};

pub(super) fn settings(checks: bool) -> StoreSettings {
    let keys = Arc::new(Keyring::with_root(KeyId(1), [3; 32]));
    let mut settings = StoreSettings::new("/nonexistent".into(), Node(5), keys, [4; 32]);
    let http = Arc::new(Http::new(Settings::default()));
    settings.bank = checks.then(|| BankClient::new(http, vec!["127.0.0.1:1".into()], Duration::from_secs(1)));
    settings
}

fn started(checks: bool, state: Option<&[u8]>) -> Accounts {
    start_from(checks, state, &BTreeMap::new())
}

fn start_from(checks: bool, state: Option<&[u8]>, measured: &BTreeMap<Arc<str>, u64>) -> Accounts {
    let settings = settings(checks);
    let mut accounts = Accounts::new(&settings);
    if let Some(state) = state {
        accounts.load(state).unwrap();
    }
    accounts.start(measured).unwrap();
    accounts
}

#[test]
fn what_is_saved_comes_back_and_lives_through_a_start_without_checks() {
    let first = started(true, None).save();
    assert!(!first.is_empty());
    assert_eq!(started(true, Some(&first)).save(), first);
    let unchecked = started(false, Some(&first));
    assert!(unchecked.unchecked.as_ref().unwrap().is_empty(), "rows of cores are nobody's sums");
    assert_eq!(started(true, Some(&unchecked.save())).save(), first);
}

/// Rows without checks were taken for damaged ones of a core.
#[test]
fn what_was_written_without_checks_is_measured_anew() {
    let first = started(true, None).save();
    for before in [None, Some(first.as_slice())] {
        let mut unchecked = started(false, before);
        let posting = Posting { user: "alice".into(), delta_bytes: 8192 };
        let payment = Payment { client: Client(1), op: 1, payer: "alice".into(), pieces: Pieces::new(), settled: None };
        unchecked.book(&[posting], &payment).unwrap();
        let state = unchecked.save();
        let mut accounts = start_from(true, Some(&state), &BTreeMap::from([("alice".into(), 4096)]));
        assert_eq!(accounts.used("alice"), 4096);
        assert_eq!(accounts.incarnations(), [Incarnation(2)]);
        accounts = started(true, Some(&accounts.save()));
        assert_eq!(accounts.used("alice"), 4096);
        assert_eq!(accounts.incarnations(), [Incarnation(2)], "once");
    }
}

#[test]
fn without_checks_sums_come_back_and_a_recount_lowers_them() {
    let mut accounts = started(false, None);
    let posting = |delta_bytes| Posting { user: "alice".into(), delta_bytes };
    let payment = Payment { client: Client(1), op: 1, payer: "alice".into(), pieces: Pieces::new(), settled: None };
    accounts.book(&[posting(8192)], &payment).unwrap();
    accounts.correct(&[posting(-4096)]);
    assert_eq!(accounts.used("alice"), 4096);
    assert_eq!(started(false, Some(&accounts.save())).used("alice"), 4096);
}

/// Regression: of a chunk charged to several users a part was credited when the rest was refused, and a repetition was answered with its refund.
#[test]
fn what_is_refused_in_the_middle_changes_nothing() {
    let settings = settings(true);
    let mut accounts = Accounts::new(&settings);
    accounts.plan.config.remembered_max = 3;
    accounts.start(&BTreeMap::new()).unwrap();
    let (_, errands) = accounts.tick((1, 1));
    let Some((_, StoreToBank::Renew(renew))) = errands.to_bank.first() else { panic!("{errands:?}") };
    let lease = Lease {
        bank: Incarnation(1),
        incarnation: renew.incarnation,
        boot: renew.boot,
        beat: renew.beat,
        length: Micros::from_secs(60),
        epoch: Epoch(5),
        reported: Epoch(0),
        horizon: Epoch(0),
        accept_from: Epoch(5),
    };
    accounts.from_bank(0, vec![BankToStore::Lease(lease)]);
    let client = Client(7 << 32);
    let payment = |op: u64, payer: &str, value: u64| {
        let terms = Terms {
            epoch: Epoch(5),
            expiry: Epoch(5 + settings.params.expiry()),
            user: identity::user(payer),
            value,
            serial: op,
            issuer: Issuer { node: identity::bank_node(0), incarnation: Incarnation(1) },
            audience: ANYONE,
        };
        let pieces = (value > 0).then(|| settings.keys.sign(terms).unwrap().whole()).into_iter().collect();
        Payment { client, op, payer: payer.into(), pieces, settled: None }
    };
    let posting = |user: &str, delta_bytes| Posting { user: user.into(), delta_bytes };
    accounts.book(&[posting("alice", 8192)], &payment(1, "alice", 8192)).unwrap();
    accounts.book(&[posting("bob", 4096)], &payment(2, "bob", 4096)).unwrap();
    let state = accounts.save();
    let refused = accounts.book(&[posting("bob", -4096), posting("alice", -8192)], &payment(3, "alice", 0));
    assert!(matches!(refused, Err(Unpaid::Refused { reason: Refusal::TooMany, .. })), "{refused:?}");
    assert!(accounts.earlier(client, 3).is_none());
    assert_eq!((accounts.used("alice"), accounts.used("bob")), (8192, 4096));
    assert_eq!(accounts.save(), state);
    // One by one is what there is room for.
    accounts.book(&[posting("bob", -4096)], &payment(4, "bob", 0)).unwrap();
}
