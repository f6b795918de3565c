//! What a lowered quota allows of vouchers that were given back.

use crate::bank::{BankConfig, Policy, Waits};
use crate::message::BankToClient;
use crate::testing::{Cluster, store_node};
use crate::{Client, Micros, Piece, User};
use proptest::prelude::*;

const U: User = User(1);
const C: Client = Client(1);
const D: Client = Client(2);

fn revoking(config: &mut BankConfig) {
    config.policy = Policy::Revocation { timeout: Micros::from_secs(5), waits: Waits::Answers };
}

fn amount(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.amount).sum()
}

/// Refunds of what was removed, given back, were passed on whatever the quota had become.
#[test]
fn a_lowered_quota_stops_also_what_was_given_back() {
    for change in [|_: &mut BankConfig| {}, revoking] {
        let mut c = Cluster::with(1, change, |_| {});
        c.quota(U, 1000);
        let mut pieces = Vec::new();
        for _ in 0..64 {
            pieces.extend(c.withdraw(C, U, 1000 - amount(&pieces)));
        }
        for piece in &pieces {
            c.spend(store_node(1), C, U, &[*piece], piece.amount).unwrap();
        }
        let refund = c.free(store_node(1), C, U, 900).unwrap();
        let op = c.op();
        assert_eq!(c.give_back(C, U, op, vec![refund]), 900);
        c.quota(U, 150);
        let mut passed = c.withdraw(D, U, 40);
        assert_eq!(amount(&passed), 40);
        passed.extend(c.withdraw(D, U, 10));
        assert_eq!(amount(&passed), 50, "100 bytes are in use");
        assert!(c.withdraw(D, U, 300).is_empty());
        c.run(Micros::from_secs(6));
        assert!(matches!(c.to_clients.last(), Some((_, BankToClient::Denied { .. }))), "{:?}", c.to_clients.last());
        c.quota(U, 1000);
        assert_eq!(amount(&c.withdraw(D, U, 850)), 850, "the rest is still there");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64, u64),
    GiveBack(u64, usize),
    Quota(u64),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4u64, 1..600u64).prop_map(|(client, want)| Step::Ask(client, want)),
        4 => (1..4u64, any::<usize>()).prop_map(|(client, which)| Step::GiveBack(client, which)),
        2 => (0..1000u64).prop_map(Step::Quota),
        1 => (1..3u64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Clients that never spend and give back now and then: with what any is granted, all hold no more than the quota.
    #[test]
    fn no_grant_goes_beyond_the_quota(revokes: bool, steps in proptest::collection::vec(step(), 1..40)) {
        let change = if revokes { revoking } else { |_: &mut BankConfig| {} };
        let mut c = Cluster::with(1, change, |_| {});
        let mut quota = 1000;
        c.quota(U, quota);
        let mut held: Vec<(Client, Piece)> = Vec::new();
        for step in steps {
            c.to_clients.clear();
            match step {
                Step::Ask(client, want) => drop(c.withdraw(Client(client), U, want)),
                Step::GiveBack(client, which) => {
                    let own: Vec<usize> = (0..held.len()).filter(|at| held[*at].0 == Client(client)).collect();
                    if !own.is_empty() {
                        let (client, piece) = held.remove(own[which % own.len()]);
                        let op = c.op();
                        prop_assert_eq!(c.give_back(client, U, op, vec![piece]), piece.amount);
                    }
                }
                Step::Quota(bytes) => {
                    quota = bytes;
                    c.quota(U, quota);
                }
                Step::Wait(seconds) => c.run(Micros::from_secs(seconds)),
                Step::Restart => c.reload_bank(),
            }
            for (client, message) in &c.to_clients {
                if let BankToClient::Granted { pieces, .. } = message {
                    held.extend(pieces.iter().map(|piece| (*client, *piece)));
                    let all: u64 = held.iter().map(|(_, piece)| piece.amount).sum();
                    prop_assert!(all <= quota, "{} of {}", all, quota);
                }
            }
        }
    }
}
