//! After any operations and any power cuts exactly a prefix is there, with everything synced.

use crate::model::{Op, run};
use crate::world::Random;
use proptest::prelude::*;
use ullage_kv::Canary;

fn any_op() -> impl Strategy<Value = Op> {
    let change = (0u8..40, proptest::option::weighted(0.7, prop_oneof![5 => 0u16..60, 1 => 1000u16..6000]));
    let bytes = || proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xffu8), 0u8..40], 0..3);
    prop_oneof![
        8 => proptest::collection::vec(change, 0..8).prop_map(Op::Commit),
        4 => Just(Op::Sync),
        4 => Just(Op::WriteOut),
        4 => Just(Op::FlushedOutside),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
        1 => any::<u64>().prop_map(Op::Cut),
        1 => (0u32..8).prop_map(Op::CutLater),
        1 => (bytes(), bytes()).prop_map(|(prefix, from)| Op::Scan(prefix, from)),
        1 => Just(Op::Snapshot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_a_prefix_with_everything_synced_is_there(ops in proptest::collection::vec(any_op(), 1..60)) {
        if let Err(why) = run(&ops, None) {
            return Err(TestCaseError::fail(why));
        }
    }
}

/// Commits too large for one sector, syncs, and power that goes during a write.
fn torn_writes(seed: u64) -> Vec<Op> {
    let mut random = Random(seed);
    let mut ops = Vec::new();
    for _ in 0..12 {
        let changes = (0..4).map(|_| (random.below(40) as u8, Some(1000 + random.below(2000) as u16))).collect();
        ops.push(Op::CutLater(random.below(4) as u32));
        ops.push(Op::Commit(changes));
        ops.push(Op::Sync);
    }
    ops
}

/// Several records wait for one flush; of them the first may be lost and the last not.
#[test]
fn records_after_one_that_was_lost_unflushed_are_dropped_with_it() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut ops = Vec::new();
        for _ in 0..3 {
            for n in 0..random.below(5) as u8 {
                ops.push(Op::Commit(vec![(n, Some(random.below(6000) as u16))]));
                ops.push(if random.below(5) == 0 { Op::FlushedOutside } else { Op::WriteOut });
            }
            ops.push(Op::Cut(random.below(1 << 30) as u64));
        }
        assert_eq!(run(&ops, None), Ok(()), "seed {seed}");
    }
}

/// A file made and removed before anything was written leaves nothing to write: what is durable then is in no record. One written
/// afterwards said so all the same, and where it outlived one before it the catalog was called damaged and was not opened.
#[test]
fn what_cancelled_itself_out_is_not_missed_after_a_power_cut() {
    let cancelled = [vec![Op::Commit(vec![])], vec![Op::Commit(vec![(1, Some(9))]), Op::Commit(vec![(1, None)])]];
    let record = |n| [Op::Commit(vec![(n, Some(9))]), Op::WriteOut];
    for seed in 0..200 {
        for cancelled in &cancelled {
            for durable in [Op::Sync, Op::FlushedOutside] {
                let before = if seed % 2 == 0 { vec![] } else { vec![Op::Commit(vec![(7, Some(9))]), Op::Sync] };
                let ops: Vec<Op> = [before, cancelled.clone(), vec![durable]]
                    .into_iter()
                    .flatten()
                    .chain((2..5).flat_map(record))
                    .chain([Op::Cut(seed)])
                    .collect();
                assert_eq!(run(&ops, None), Ok(()), "seed {seed}: {ops:?}");
            }
        }
    }
}

#[test]
fn torn_writes_are_never_taken_for_whole() {
    for seed in 0..50 {
        assert_eq!(run(&torn_writes(seed), None), Ok(()), "seed {seed}");
    }
}

#[test]
fn the_canary_that_ignores_checksums_is_caught() {
    assert!((0..50).any(|seed| {
        let outcome = std::panic::catch_unwind(|| run(&torn_writes(seed), Some(Canary::IgnoreChecksum)));
        !matches!(outcome, Ok(Ok(())))
    }));
}

#[test]
fn the_canary_that_acknowledges_before_the_write_is_caught() {
    let ops = [Op::Commit(vec![(1, Some(1))]), Op::Sync, Op::Cut(1)];
    assert_eq!(run(&ops, None), Ok(()));
    assert!(run(&ops, Some(Canary::AckBeforeWrite)).is_err());
}
