//! Each known flaw must be caught: a checker that finds nothing proves nothing.

use ullage_sim::faults::{Setup, campaign};
use ullage_voucher::Flaw;

fn caught(setup: Setup) -> usize {
    campaign(1, 60, 2, &setup, &|_, _| {}).len()
}

#[test]
fn vouchers_forgotten_at_x_instead_of_k() {
    let setup = Setup { bank: Some(|config| config.with_flaw(Flaw::ForgetAtExpiry)), ..Setup::default() };
    assert!(caught(setup) > 0);
}

#[test]
fn a_refund_doubled() {
    let setup = Setup { store: Some(|config| config.with_flaw(Flaw::RefundDoubled)), ..Setup::default() };
    assert!(caught(setup) > 0);
}

#[test]
fn a_split_not_counted() {
    let setup = Setup { store: Some(|config| config.with_flaw(Flaw::SplitNotCounted)), ..Setup::default() };
    assert!(caught(setup) > 0);
}

#[test]
fn a_failed_store_excluded_at_once_as_the_paper_has_it() {
    let setup = Setup { bank: Some(|config| config.with_flaw(Flaw::ExcludeAtOnce)), ..Setup::default() };
    assert!(!campaign(1, 400, 2, &setup, &|_, _| {}).is_empty());
}

#[test]
fn vouchers_accepted_after_their_epoch_was_reported() {
    let setup = Setup { store: Some(|config| config.with_flaw(Flaw::AcceptAfterReport)), ..Setup::default() };
    assert!(!campaign(1, 200, 2, &setup, &|_, _| {}).is_empty());
}

#[test]
fn settled_requests_forgotten_as_if_they_had_never_been() {
    let setup = Setup { store: Some(|config| config.with_flaw(Flaw::SettledForgotten)), ..Setup::default() };
    assert!(caught(setup) > 0);
}

/// Its refunds are bounded by the fence even so; but it takes vouchers that nobody counts any more.
#[test]
fn a_store_that_goes_on_without_a_lease() {
    let setup = Setup { store: Some(|config| config.with_flaw(Flaw::NoLease)), ..Setup::default() };
    let breaches = campaign(1, 60, 2, &setup, &|_, _| {});
    assert!(breaches.iter().any(|breach| breach.what.contains("was given up with")), "{breaches:?}");
}
