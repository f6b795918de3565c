//! A short form of the crash campaign; the long one is `cargo run -p ullage-mount-tests --bin crash-campaign`.

use std::time::Duration;
use ullage_mount_tests::crash::round;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

fn rounds(count: u64, seed: u64, flags: &[&str]) {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 1024);
    let mut space = Space::on(ground, &disk);
    space.flags = ["--linger-ms", "100"].iter().chain(flags).map(Into::into).collect();
    space.up();
    for seed in seed..seed + count {
        space.limit(Duration::from_secs(60));
        let (wrong, promised) = round::kill(&space, seed);
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        eprintln!("seed {seed}: {promised} files promised and there");
    }
    space.down_and_check();
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_with_passthrough() {
    rounds(14, 1000, &[]);
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_through_the_server() {
    rounds(6, 2000, &["--no-passthrough"]);
}

#[test]
fn nothing_is_lost_or_mixed_over_kills_below_a_limit() {
    rounds(6, 3000, &["--size", "900M"]);
}
