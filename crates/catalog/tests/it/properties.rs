//! Any sequence of operations leaves the catalog as it leaves the model.

use crate::bed::Bed;
use crate::run::{Op, Place, Run};
use proptest::prelude::*;

fn any_place() -> impl Strategy<Value = Place> {
    (any::<u8>(), any::<u8>()).prop_map(|(directory, name)| Place { directory, name })
}

fn any_op() -> impl Strategy<Value = Op> {
    let lengths = prop_oneof![8 => 0u32..40, 2 => 200u32..5000, 1 => 100_000u32..260_000];
    prop_oneof![
        10 => (any_place(), 0u8..13, 0u8..3, 0u32..3, any::<u16>(), prop_oneof![3 => Just(0u16), 1 => 1u16..5000])
            .prop_map(|(place, kind, class, owner, target, xattr)| Op::Create {
                place, kind, class, owner, target, xattr
            }),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(directory, class)| Op::CreateUnnamed { directory, class }),
        6 => (any::<u8>(), any_place()).prop_map(|(file, to)| Op::Link { file, to }),
        5 => any_place().prop_map(Op::Unlink),
        5 => any_place().prop_map(Op::Rmdir),
        10 => (any_place(), any_place(), any::<bool>()).prop_map(|(from, to, keep)| Op::Rename { from, to, keep }),
        5 => (any_place(), any_place()).prop_map(|(from, to)| Op::Exchange { from, to }),
        6 => (any::<u8>(), any::<u16>(), 0u32..3, any::<u8>(), any::<u8>())
            .prop_map(|(file, mode, owner, class, blocks)| Op::Update { file, mode, owner, class, blocks }),
        3 => (any::<u8>(), any::<u8>(), lengths, any::<u8>())
            .prop_map(|(file, name, length, mode)| Op::SetXattr { file, name, length, mode }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(file, name)| Op::RemoveXattr { file, name }),
        6 => any::<u8>().prop_map(Op::Remove),
        2 => any::<u8>().prop_map(Op::Hold),
        1 => Just(Op::LetGo),
        1 => any::<u8>().prop_map(Op::ListBegin),
        4 => any::<u8>().prop_map(Op::ListOn),
        2 => (any::<u8>(), proptest::option::of(any::<u8>()), proptest::option::of(0u8..12))
            .prop_map(|(uid, bytes, inodes)| Op::LimitUser { uid, bytes, inodes }),
        2 => (any::<u8>(), proptest::option::of(any::<u8>()), proptest::option::of(0u8..12))
            .prop_map(|(directory, bytes, inodes)| Op::LimitDirectory { directory, bytes, inodes }),
        4 => Just(Op::Sync),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
        1 => any::<u64>().prop_map(Op::Cut),
        1 => (0u8..8).prop_map(Op::CutLater),
    ]
}

fn config(share: u32) -> ProptestConfig {
    let all = ProptestConfig::default();
    ProptestConfig { cases: (all.cases / share).max(1), max_shrink_iters: 3000, failure_persistence: None, ..all }
}

proptest! {
    #![proptest_config(config(1))]

    #[test]
    fn any_operations_leave_what_the_model_says(ops in proptest::collection::vec(any_op(), 1..120)) {
        Run::new(Bed::memory()).all(&ops);
    }

    #[test]
    fn a_power_cut_goes_back_to_a_state_since_the_last_sync(ops in proptest::collection::vec(any_op(), 1..120)) {
        Run::new(Bed::machine()).all(&ops);
    }
}

proptest! {
    #![proptest_config(config(32))]

    #[test]
    fn the_engine_on_disk_is_no_different(ops in proptest::collection::vec(any_op(), 1..80)) {
        Run::new(Bed::disk()).all(&ops);
    }
}

proptest! {
    #![proptest_config(config(8))]

    /// Whatever prefix is durable: the totals beside it are a recount of it.
    #[test]
    fn the_totals_fit_after_every_single_operation(ops in proptest::collection::vec(any_op(), 1..40)) {
        let mut run = Run::new(Bed::machine());
        for op in &ops {
            run.step(op);
            run.step(&Op::Sync);
            run.finish();
        }
    }
}
