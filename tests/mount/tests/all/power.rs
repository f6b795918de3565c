//! A short form of the power campaign; the long one is `cargo run -p ullage-mount-tests --bin crash-campaign -- --power`.

use std::time::Duration;
use ullage_mount_tests::crash::power::{Kind, Machine, Writes};

#[track_caller]
fn cuts(mut machine: Machine, seeds: std::ops::Range<u64>, between: Duration) {
    for seed in seeds {
        let (wrong, promised) = machine.cut(seed, between, false);
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        eprintln!("seed {seed}: {promised} files promised and there");
    }
    machine.space.down_and_check();
}

#[test]
fn nothing_is_lost_or_mixed_over_power_cuts_on_one_disk() {
    cuts(Machine::new(Kind::Ext4, false, Writes::Ordered, &[]), 3000..3005, Duration::ZERO);
}

#[test]
fn nothing_is_lost_or_mixed_when_two_disks_lose_power_one_after_the_other() {
    cuts(Machine::new(Kind::Xfs, true, Writes::Ordered, &[]), 4000..4005, Duration::from_millis(40));
}

#[test]
fn a_disk_that_calls_durable_what_is_not_is_noticed() {
    let mut machine = Machine::new(Kind::Ext4, false, Writes::Ordered, &[]);
    let (wrong, promised) = machine.cut(5000, Duration::ZERO, true);
    assert!(promised > 0);
    assert!(wrong.iter().any(|text| text.contains("was fsynced")), "{wrong:?}");
}
