//! Accounts with and without checks.

use super::*;
use crate::chunk::{Ledger, Posting};
use std::time::Duration;
use ullage_bank::client::BankClient;
use ullage_net::client::{Client as Http, Settings};
use ullage_voucher::{KeyId, Node, Pieces};

fn started(checks: bool, state: Option<&[u8]>) -> Accounts {
    start_from(checks, state, &BTreeMap::new())
}

fn start_from(checks: bool, state: Option<&[u8]>, measured: &BTreeMap<Arc<str>, u64>) -> Accounts {
    let keys = Arc::new(Keyring::with_root(KeyId(1), [3; 32]));
    let mut settings = StoreSettings::new("/nonexistent".into(), Node(5), keys, [4; 32]);
    let http = Arc::new(Http::new(Settings::default()));
    settings.bank = checks.then(|| BankClient::new(http, vec!["127.0.0.1:1".into()], Duration::from_secs(1)));
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
