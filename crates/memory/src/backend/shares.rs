//! Evicting from several groups: from each in proportion to what it holds, as the tail of all their memory would be spread
//! if nothing else is known. From one after the other the first would lose what it needs before the last loses anything.

use super::SHRINK_STEP;
use crate::PAGE;
use crate::error::Result;
use std::path::{Path, PathBuf};

/// The kernel evicts no less at a time, however little is asked for.
const LEAST: u64 = 64 * PAGE;

/// What a group does not give is asked of the others, so often.
const ROUNDS: usize = 3;

/// A group, and how many bytes it holds.
pub type Holder = (PathBuf, u64);

/// Evicts up to `bytes` with `take`, which gives how many of those asked for went; gives how many did. `turn` counts the calls:
/// where there is too little for all groups, others are asked at the next one.
pub fn evict(
    mut groups: Vec<Holder>,
    bytes: u64,
    turn: u32,
    mut take: impl FnMut(&Path, u64) -> Result<u64>,
) -> Result<u64> {
    // Not as the directory lists them: what a turn says is to be about the same groups.
    groups.sort();
    let mut left = bytes;
    for _ in 0..ROUNDS {
        for (index, share) in shares(&groups, left, turn).into_iter().enumerate().filter(|(_, share)| *share >= PAGE) {
            let (group, held) = &mut groups[index];
            let went = take(group, share)?.min(share);
            left -= went;
            *held = if went < share / 2 { 0 } else { held.saturating_sub(went) };
        }
        if left < PAGE {
            break;
        }
    }
    Ok(bytes - left)
}

/// What of `bytes` is asked of each. Never half of what it holds: what it uses right now is there too.
fn shares(groups: &[Holder], bytes: u64, turn: u32) -> Vec<u64> {
    let all: u64 = groups.iter().map(|(_, held)| held).sum();
    let least = LEAST.min(bytes).max(1);
    // Golden ratio: the beginnings of all turns are spread evenly, so that over time a group is met as often as it is large.
    let begin = (f64::from(turn) * 0.618_033_988_749_895).fract();
    let upto = |held: u64| (held as f64 / all.max(1) as f64 * bytes as f64 / least as f64 + begin).floor() as u64;
    let (mut sum, mut left) = (0, bytes);
    let share = |(_, held): &Holder| {
        let before = upto(sum);
        sum += held;
        let share = ((upto(sum) - before) * least).min(held / 2).min(SHRINK_STEP).min(left);
        left -= share;
        share
    };
    groups.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(held: &[u64]) -> Vec<Holder> {
        held.iter().enumerate().map(|(number, held)| (format!("{number:04}").into(), held << 20)).collect()
    }

    #[test]
    fn each_loses_in_proportion_to_what_it_holds() {
        assert_eq!(shares(&holders(&[300, 100]), 16 << 20, 7), [12 << 20, 4 << 20]);
        assert_eq!(shares(&holders(&[2, 0]), 16 << 20, 0), [1 << 20, 0], "of a small one at most half");
        assert!(shares(&[], 1 << 20, 0).is_empty());
    }

    #[test]
    fn where_there_is_too_little_for_all_they_take_turns_as_often_as_they_are_large() {
        let mut met = [0; 5];
        for turn in 0..1000 {
            let asked = shares(&holders(&[10, 40, 10, 20, 20]), 16 * PAGE, turn);
            assert_eq!(asked.iter().sum::<u64>(), 16 * PAGE);
            for (met, asked) in met.iter_mut().zip(asked) {
                *met += asked / (16 * PAGE);
            }
        }
        assert!(met.iter().zip([100, 400, 100, 200, 200]).all(|(met, due)| met.abs_diff(due) <= 10), "{met:?}");
    }

    #[test]
    fn what_one_does_not_give_is_asked_of_the_others() {
        let mut asked = [0; 2];
        let went = evict(holders(&[64, 64]), 4 << 20, 0, |group, share| {
            let first = group.ends_with("0000");
            asked[usize::from(!first)] += share;
            Ok(if first { 0 } else { share })
        });
        assert_eq!((went.unwrap(), asked), (4 << 20, [2 << 20, 4 << 20]));
    }
}
