//! `crash-campaign`: kills the daemon under load as often as wanted.

#![deny(missing_docs)]

use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use ullage_mount_tests::crash::round;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

/// Kills the daemon of a space under load, again and again, and looks for everything that was promised.
#[derive(Parser)]
#[command(
    version,
    after_help = "Needs root. Examples:
  crash-campaign --rounds 200
  crash-campaign --rounds 1 --seed 1234    the first crash of that campaign again
  crash-campaign --rounds 200 --no-passthrough"
)]
struct Arguments {
    /// How many crashes.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Where chance starts; each round counts it up by one. Printed, so that a run can be repeated [default: the clock].
    #[arg(long)]
    seed: Option<u64>,
    /// Move all data through the server.
    #[arg(long)]
    no_passthrough: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    println!("seed {seed}");
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 2048);
    let mut space = Space::on(ground, &disk);
    space.flags = vec!["--linger-ms".into(), "100".into()];
    if arguments.no_passthrough {
        space.flags.push("--no-passthrough".into());
    }
    space.up();
    let began = Instant::now();
    let mut promised = 0;
    for at in 0..arguments.rounds {
        space.limit(Duration::from_secs(60));
        let (wrong, files) = round::kill(&space, seed.wrapping_add(at));
        promised += files;
        if !wrong.is_empty() {
            println!("round {at} (--rounds 1 --seed {}):", seed.wrapping_add(at));
            wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
            println!("the daemon's log:\n{}", space.log());
            return ExitCode::FAILURE;
        }
    }
    space.down_and_check();
    println!(
        "{} crashes, {promised} files promised, nothing lost, nothing mixed; {:.0} s",
        arguments.rounds,
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
