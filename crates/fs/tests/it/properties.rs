//! Any operations leave what the model says, now and after the space was opened again.

use crate::model::{Op, Run};
use proptest::prelude::*;

fn any_op() -> impl Strategy<Value = Op> {
    let short = || 0u16..9000;
    prop_oneof![
        8 => any::<u8>().prop_map(Op::Create),
        2 => any::<u8>().prop_map(|link| Op::Tmpfile { link }),
        6 => (any::<u8>(), any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(at, write, truncate)| Op::Open { at, write, truncate }),
        6 => any::<u8>().prop_map(Op::Release),
        12 => (any::<u8>(), short(), short(), any::<u8>())
            .prop_map(|(handle, offset, length, byte)| Op::Write { handle, offset, length, byte }),
        6 => (any::<u8>(), short(), short()).prop_map(|(handle, offset, length)| Op::Read { handle, offset, length }),
        3 => (any::<u8>(), short()).prop_map(|(at, size)| Op::Truncate { at, size }),
        1 => (any::<u8>(), short()).prop_map(|(handle, length)| Op::Fallocate { handle, length }),
        5 => any::<u8>().prop_map(Op::Unlink),
        6 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(from, to, flags)| Op::Rename { from, to, flags }),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Op::Link { from, to }),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(at, mode)| Op::Chmod { at, mode }),
        2 => (any::<u8>(), any::<u8>(), 0u16..600).prop_map(|(at, name, length)| Op::SetXattr { at, name, length }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, name)| Op::RemoveXattr { at, name }),
        1 => any::<u8>().prop_map(Op::Fsync),
        4 => any::<u8>().prop_map(Op::Stat),
        2 => any::<u8>().prop_map(Op::List),
        1 => Just(Op::Reopen),
    ]
}

fn config() -> ProptestConfig {
    let all = ProptestConfig::default();
    ProptestConfig { cases: (all.cases / 16).max(1), max_shrink_iters: 300, failure_persistence: None, ..all }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_operations_leave_what_the_model_says(ops in proptest::collection::vec(any_op(), 1..100)) {
        Run::new().all(&ops);
    }
}
