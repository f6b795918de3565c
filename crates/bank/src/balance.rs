//! Leads of shards spread over the banks that are there: who comes later would only wait for those before him to fail.

use crate::engine::{EtcdSettings, Standing};
use crate::member::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often a bank looks. Who waits at two looks in a row is there to stay.
const LOOKS: Duration = Duration::from_secs(5);

/// Which shard `own` leaves to which other bank: to that which leads fewest of those that wait, if these are two fewer at least. One at a time.
fn gives<'a>(own: &str, standings: &'a [Standing]) -> Option<(usize, &'a str)> {
    let mut leads: BTreeMap<&str, usize> = BTreeMap::new();
    for leader in standings.iter().filter_map(|standing| standing.leader.as_deref()) {
        *leads.entry(leader).or_default() += 1;
    }
    let led_by = |bank: &str| leads.get(bank).copied().unwrap_or(0);
    let own_ones = standings.iter().enumerate().filter(|(_, standing)| standing.leader.as_deref() == Some(own));
    let pairs = own_ones.flat_map(|(shard, standing)| standing.waiting.iter().map(move |bank| (shard, bank.as_str())));
    let fewest = pairs.min_by_key(|(shard, bank)| (led_by(bank), *shard))?;
    (led_by(fewest.1) + 2 <= led_by(own)).then_some(fewest)
}

/// Hands leads over as long as the process runs.
pub(crate) async fn run(etcd: EtcdSettings, members: Vec<Arc<Member>>) {
    let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
    loop {
        tokio::time::sleep(LOOKS).await;
        // Where etcd does not answer, campaigns say so.
        let Ok(mut standings) = etcd.standings(members.len() as u32).await else { continue };
        let mut waits = BTreeSet::new();
        for (shard, standing) in standings.iter_mut().enumerate() {
            waits.extend(standing.waiting.iter().map(|bank| (shard, bank.clone())));
            standing.waiting.retain(|bank| seen.contains(&(shard, bank.clone())));
        }
        seen = waits;
        if let Some((shard, to)) = gives(&etcd.address, &standings) {
            tracing::info!(shard, to, "has more leads than it");
            members[shard].hand_over().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Banks by letter: the leader, and all others wait.
    fn standings(leaders: &str, banks: &str) -> Vec<Standing> {
        let others = |leader| banks.chars().filter(move |bank| *bank != leader);
        let standing = |leader: char| Standing {
            leader: (leader != '-').then(|| leader.to_string()),
            waiting: others(leader).map(|bank| bank.to_string()).collect(),
        };
        leaders.chars().map(standing).collect()
    }

    #[test]
    fn who_leads_two_more_than_one_that_waits_gives_it_one() {
        assert_eq!(gives("a", &standings("aaaa", "ab")), Some((0, "b")));
        assert_eq!(gives("a", &standings("aaab", "ab")), Some((0, "b")));
        assert_eq!(gives("a", &standings("bbaaacc", "abcd")), Some((2, "d")));
        for (leaders, banks) in
            [("aabb", "ab"), ("aab", "ab"), ("a", "ab"), ("aaaa", "a"), ("bbba", "ab"), ("----", "ab")]
        {
            assert_eq!(gives("a", &standings(leaders, banks)), None, "{leaders}");
        }
    }

    #[test]
    fn banks_that_give_at_one_time_come_to_rest() {
        for (leaders, banks) in
            [("aaaaaaaa", "abc"), ("aaabbbcccddd", "abcde"), ("aabbccddeeffgghh", "abcdefghi"), ("aaabb", "abc")]
        {
            let mut now = standings(leaders, banks);
            let mut rounds = 0;
            loop {
                let given: Vec<_> = banks
                    .chars()
                    .filter_map(|bank| gives(&bank.to_string(), &now).map(|(shard, to)| (shard, to.to_owned())))
                    .collect();
                if given.is_empty() {
                    break;
                }
                let mut leaders: Vec<String> = now.iter().map(|standing| standing.leader.clone().unwrap()).collect();
                for (shard, to) in given {
                    leaders[shard] = to;
                }
                now = standings(&leaders.concat(), banks);
                rounds += 1;
                assert!(rounds < 40, "{leaders:?}");
            }
            let count = |bank: char| now.iter().filter(|s| s.leader.as_deref() == Some(&bank.to_string())).count();
            let counts: Vec<usize> = banks.chars().map(count).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{leaders}: {counts:?}");
        }
    }
}
