//! Leads of shards spread over the banks that are there: who comes later would only wait for those before him to fail.

use crate::engine::{EtcdSettings, Standing};
use crate::member::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a bank looks. Who waits at two looks in a row is there to stay.
const LOOKS: Duration = Duration::from_secs(5);
/// In so many looks a lead that was handed over has to be kept.
const PROOF: u32 = 2;
/// How long who did not keep one gets none, at first and at most.
const SHUN: Duration = Duration::from_secs(600);
const SHUN_MAX: Duration = Duration::from_secs(86_400);

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

/// Banks that were handed a lead and did not keep it: nothing is left to such a one for a while, each time for twice as long.
#[derive(Default)]
struct Failures {
    /// What was handed over last: the shard, to whom, and how many looks ago.
    given: Option<(usize, String, u32)>,
    until: BTreeMap<String, (Instant, Duration)>,
}

impl Failures {
    /// Whoever leads it now was there to lead it, but for us and nobody.
    fn look(&mut self, own: &str, standings: &[Standing], now: Instant) {
        let Some((shard, to, looks)) = &mut self.given else { return };
        *looks += 1;
        let kept = standings[*shard].leader.as_deref().is_some_and(|leader| leader != own);
        if !kept {
            let rest = self.until.get(to).map_or(SHUN, |(_, rest)| *rest * 2).min(SHUN_MAX);
            tracing::warn!(shard, to, "was handed the lead and did not keep it; it gets none for {} s", rest.as_secs());
            self.until.insert(to.clone(), (now + rest, rest));
        }
        if !kept || *looks >= PROOF {
            self.given = None;
        }
    }

    fn shuns(&self, bank: &str, now: Instant) -> bool {
        self.until.get(bank).is_some_and(|(until, _)| now < *until)
    }
}

/// Hands leads over as long as the process runs.
pub(crate) async fn run(etcd: EtcdSettings, members: Vec<Arc<Member>>) {
    let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut failures = Failures::default();
    loop {
        tokio::time::sleep(LOOKS).await;
        // Where etcd does not answer, campaigns say so.
        let Ok(mut standings) = etcd.standings(members.len() as u32).await else { continue };
        let now = Instant::now();
        failures.look(&etcd.address, &standings, now);
        let mut waits = BTreeSet::new();
        for (shard, standing) in standings.iter_mut().enumerate() {
            waits.extend(standing.waiting.iter().map(|bank| (shard, bank.clone())));
            standing.waiting.retain(|bank| seen.contains(&(shard, bank.clone())) && !failures.shuns(bank, now));
            if !members[shard].acts() {
                // What it does not lead, or not yet, cannot be handed over.
                standing.waiting.clear();
            }
        }
        seen = waits;
        // One after the other, each seen to be kept.
        if failures.given.is_none()
            && let Some((shard, to)) = gives(&etcd.address, &standings)
        {
            tracing::info!(shard, to, "has more leads than it");
            if members[shard].hand_over().await {
                failures.given = Some((shard, to.to_owned(), 0));
            }
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

    #[test]
    fn who_does_not_keep_a_lead_gets_none_for_longer_each_time() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let gives = |failures: &mut Failures, leader: &str, now| {
            failures.given = Some((0, "b".into(), 0));
            (0..PROOF).for_each(|_| failures.look("a", &standings(leader, "abc"), now));
        };
        for leader in ["b", "c"] {
            gives(&mut failures, leader, now);
            assert!(!failures.shuns("b", now) && failures.given.is_none(), "{leader}");
        }
        gives(&mut failures, "-", now);
        assert!(failures.shuns("b", now) && !failures.shuns("c", now) && !failures.shuns("b", now + SHUN));
        gives(&mut failures, "a", now + SHUN);
        assert!(failures.shuns("b", now + SHUN * 2) && !failures.shuns("b", now + SHUN * 3));
    }
}
