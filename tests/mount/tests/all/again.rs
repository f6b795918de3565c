//! The same command once more, as scripts give it.

use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;

/// Regression: `--reserve` was for all pools from the second time on, also for one that the same line names with a reserve of its own; the third time
/// it was not as asked for, and refused.
#[test]
fn an_up_with_reserves_of_several_kinds_is_the_same_each_time() {
    let mut space = two();
    space.flags.extend(["--reserve".into(), "2M".into()]);
    let named = space.up_arguments();
    for _ in 0..3 {
        ullage(&named).ok();
        assert_eq!(reserves(&space), [2 << 20, 4 << 20]);
        space.down();
    }
    // Who names no pool speaks of all.
    ullage(["up".as_ref(), space.mount.as_os_str(), "--reserve=1M".as_ref()]).ok();
    assert_eq!(reserves(&space), [1 << 20, 1 << 20]);
    space.down_and_check();
}

fn two() -> Space {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    let [fast, big] = ["fast", "big"].map(|name| space.ground.directory(name));
    space.pools = vec![format!("fast={}", fast.display()), format!("big={},reserve=4M", big.display())];
    space
}

fn reserves(space: &Space) -> Vec<u64> {
    let list = space.pool_command("list", &["--json"]).json();
    list["pools"].as_array().unwrap().iter().map(|pool| pool["reserve"].as_u64().unwrap()).collect()
}
