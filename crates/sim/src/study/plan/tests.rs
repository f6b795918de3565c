//! What is advised for which plan.

use super::*;

const PLAN: &str = "clients = 20\nstores = 8\nusers = 20\nclients_per_user = 1\nquota = 1_000_000_000\nwrite_rate = 10000.0\n\
                    client_bandwidth = 1e6\nstore_outage = 30\ncheat_limit = 500_000_000\n";

#[test]
fn the_longest_epoch_within_the_limits_is_advised() {
    let advice = AdvicePlan::parse(PLAN).unwrap().advise(1);
    // 3 epochs at 1 MB/s stay below 500 MB up to 166 s.
    assert_eq!(advice.epoch, Some(120.0));
    assert_eq!(advice.policy, "limiting");
}

fn plan(changes: &[(&str, &str)]) -> AdvicePlan {
    let text = changes.iter().fold(PLAN.to_owned(), |text, (from, to)| text.replace(from, to));
    AdvicePlan::parse(&text).unwrap()
}

/// Regression: the horizon that such a store holds up was told, and counted nowhere.
#[test]
fn a_store_that_is_away_for_long_counts_against_every_epoch_that_does_not_bridge_it() {
    let plan = plan(&[("store_outage = 30", "store_outage = 3000")]);
    for (epoch, named) in [(5.0, 3010.0), (120.0, 3240.0)] {
        let candidate = plan.candidate(epoch, Params::default(), 1);
        assert_eq!((candidate.named_within, candidate.cheat_bound), (named, named * 1e6));
        assert!(!candidate.bridges_outage && !candidate.against.is_empty(), "{candidate:?}");
    }
    let bridges = plan.candidate(3600.0, Params::default(), 1);
    assert_eq!((bridges.named_within, bridges.bridges_outage), (3.0 * 3600.0, true));
}

/// Regression: with however many clients of one user, the bandwidth of one was counted.
#[test]
fn a_cheater_may_have_all_clients_of_a_user_but_no_more_than_there_are() {
    for (each, bound) in [("1", 60e6), ("10", 600e6), ("1000", 1200e6)] {
        let plan = plan(&[("clients_per_user = 1", &format!("clients_per_user = {each}"))]);
        let candidate = plan.candidate(15.0, Params::default(), 1);
        assert_eq!((candidate.named_within, candidate.cheat_bound), (60.0, bound), "{each}");
        assert_eq!(candidate.against.is_empty(), each == "1");
    }
}

/// Regression: above a thousand users each number of them had the same messages.
#[test]
fn messages_are_those_of_all_users() {
    let ten = ("clients_per_user = 1", "clients_per_user = 10");
    let of = |users| plan(&[("users = 20", users), ten]).candidate(15.0, Params::default(), 1);
    let (few, many) = (of("users = 1000"), of("users = 4000"));
    assert_eq!((few.simulated_users, many.simulated_users), (1000, 1000));
    assert!((many.messages / few.messages - 4.0).abs() < 0.01, "{few:?} {many:?}");
    // Whether all are simulated or a part makes little difference.
    let model = plan(&[("users = 20", "users = 1000"), ten]).model(15.0, 1);
    let part = run(&Model { users: 200, banks: 2, ..model });
    assert!((part.messages * 5.0 / few.messages - 1.0).abs() < 0.1, "{part:?} {few:?}");
    assert!((part.latency_ms / few.latency_ms - 1.0).abs() < 0.1, "{part:?} {few:?}");
}

/// Regression: of epochs of twenty minutes and more less than one was simulated.
#[test]
fn whole_epochs_of_every_length_are_simulated() {
    for users in ["users = 1", "users = 20", "users = 333", "users = 1000000"] {
        let plan = plan(&[("users = 20", users), ("clients = 20", "clients = 100000")]);
        for epoch in LENGTHS {
            let model = plan.model(epoch, 1);
            assert!(model.seconds >= 3.0 * epoch && model.measure >= epoch && model.measure < model.seconds);
            assert!(model.users > 0 && model.users <= plan.users && model.clients <= CLIENTS, "{model:?}");
        }
    }
}

#[test]
fn nonsense_is_refused() {
    assert!(AdvicePlan::parse("clients = 1").is_err());
    assert!(AdvicePlan::parse(&PLAN.replace("users = 20", "users = 0")).is_err());
    assert!(AdvicePlan::parse(&format!("{PLAN}colour = 1\n")).is_err());
    // Regression: so many took all memory, or went on for hours, and with more than a second has nanoseconds it could not end.
    let many = AdvicePlan::parse(&PLAN.replace("stores = 8", "stores = 4294967295")).unwrap_err().to_string();
    assert!(many.contains("stores") && many.contains("at most"), "{many}");
    let away = AdvicePlan::parse(&PLAN.replace("store_outage = 30", "store_outage = -1")).unwrap_err().to_string();
    assert!(away.contains("store_outage must be a number"), "{away}");
}
