//! `crash-campaign`: kills the daemon under load as often as wanted.

#![deny(missing_docs)]

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use ullage_mount_tests::crash::broken_promise;
use ullage_mount_tests::crash::power::{Kind, Machine, Writes};
use ullage_mount_tests::crash::round;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

/// The size of the disk, in MiB.
const DISK_MIB: u64 = 8192;

/// What the pool is on when the daemon is killed.
#[derive(Clone, Copy, ValueEnum)]
enum Disk {
    Ext4,
    Xfs,
    Btrfs,
}

/// Kills the daemon of a space under load, again and again, and looks for everything that was promised.
#[derive(Parser)]
#[command(
    version,
    after_help = "Needs root. Examples:
  crash-campaign --rounds 200
  ULLAGE_BIN=target/flawed/release/ullage crash-campaign --canary --rounds 20
                                        (after cargo build --release -p ullage-cli --features flawed --target-dir target/flawed)
  crash-campaign --power --rounds 100
  crash-campaign --power --caches --rounds 100    (needs caching-disk beside it: cargo build --bins)
  crash-campaign --rounds 1 --seed 1234    the first crash of that campaign again
  crash-campaign --power --machine 3 --rounds 1 --seed 1234    the same of a power cut
  crash-campaign --rounds 200 --no-passthrough
  crash-campaign --rounds 200 --drain
  crash-campaign --rounds 200 --limit 1500M
  crash-campaign --rounds 200 --disk xfs --limit 6G    (of so much, room is lent)"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Arguments {
    /// How many crashes.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Where chance starts; each round counts it up by one. Printed, so that a run can be repeated [default: the clock].
    #[arg(long)]
    seed: Option<u64>,
    /// Cut the power instead: freeze the disks under load, and bring a copy up.
    #[arg(long)]
    power: bool,
    /// With --power: the disks have caches that lose any part of what was not flushed.
    #[arg(long)]
    caches: bool,
    /// With --power: two disks lose it less than this apart, in milliseconds.
    #[arg(long, default_value_t = 80)]
    apart_ms: u64,
    /// With --power: all cuts on this one of the machines, as a failure says: 0 and 1 have one disk, 2 and 3 two; even ones ext4, odd ones xfs.
    #[arg(long, requires = "power", value_parser = clap::value_parser!(u64).range(0..4))]
    machine: Option<u64>,
    /// The daemon is a known-bad one, built with the feature `flawed`: success is that something lost is found.
    #[arg(long, conflicts_with = "power")]
    canary: bool,
    /// Move all data through the server.
    #[arg(long)]
    no_passthrough: bool,
    /// What the pool is on.
    #[arg(long, value_enum, default_value = "ext4", conflicts_with = "power")]
    disk: Disk,
    /// Have a pool emptied in each crash: files go from one to another meanwhile.
    #[arg(long)]
    drain: bool,
    /// Limit the whole space, as `up --size` does; every file is a limited one then.
    #[arg(long, value_name = "SIZE")]
    limit: Option<String>,
}

impl Arguments {
    /// Flags of `up`.
    fn flags(&self) -> Vec<&str> {
        let size = self.limit.iter().flat_map(|limit| ["--size", limit]);
        self.no_passthrough.then_some("--no-passthrough").into_iter().chain(size).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    println!("seed {seed}");
    if arguments.power {
        return power(&arguments, seed);
    }
    let mut ground = Ground::new();
    let disk = match arguments.disk {
        Disk::Ext4 => ground.ext4("disk", DISK_MIB),
        Disk::Xfs => ground.xfs("disk", DISK_MIB),
        Disk::Btrfs => ground.btrfs("disk", DISK_MIB),
    };
    let mut space = Space::on(ground, &disk);
    space.flags = ["--linger-ms", "100"].into_iter().chain(arguments.flags()).map(Into::into).collect();
    if arguments.drain {
        space.add_beside();
    }
    space.up();
    let began = Instant::now();
    let mut promised = 0;
    for at in 0..arguments.rounds {
        space.limit(Duration::from_secs(60));
        let (wrong, files) = round::kill(&space, seed.wrapping_add(at));
        promised += files;
        if let (true, Some(broken)) = (arguments.canary, broken_promise(&wrong)) {
            println!(
                "a daemon that says of names that they are durable before they are was noticed in round {at}: {broken}"
            );
            return ExitCode::SUCCESS;
        }
        if !wrong.is_empty() {
            println!("round {at} (--rounds 1 --seed {}):", seed.wrapping_add(at));
            wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
            println!("the daemon's log:\n{}", space.log());
            return ExitCode::FAILURE;
        }
    }
    space.down_and_check();
    if arguments.canary {
        println!("a known-bad daemon was not noticed: this campaign proves nothing");
        return ExitCode::FAILURE;
    }
    println!(
        "{} crashes, {promised} files promised, nothing lost, nothing mixed; {:.0} s",
        arguments.rounds,
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// A quarter of the rounds each on ext4 and xfs, on one disk and on two, and last a disk that lies, which must be noticed.
fn power(arguments: &Arguments, seed: u64) -> ExitCode {
    let flags = &*arguments.flags();
    let began = Instant::now();
    let (mut promised, mut at) = (0, 0);
    let writes = if arguments.caches { Writes::Cached } else { Writes::Ordered };
    let machines = [(Kind::Ext4, false), (Kind::Xfs, false), (Kind::Ext4, true), (Kind::Xfs, true)];
    for (number, (kind, two)) in (0u64..).zip(machines) {
        let rounds = match arguments.machine {
            Some(machine) if machine == number => arguments.rounds,
            Some(_) => 0,
            None => (arguments.rounds + 3 - number) / 4,
        };
        if rounds == 0 {
            continue;
        }
        let make = if arguments.drain { Machine::draining } else { Machine::new };
        let mut machine = make(kind, two, writes, flags);
        for _ in 0..rounds {
            let seed = seed.wrapping_add(at);
            let (wrong, files) = machine.cut(seed, Duration::from_millis(seed % arguments.apart_ms.max(1)), false);
            (promised, at) = (promised + files, at + 1);
            if !wrong.is_empty() {
                let disks = if two { "two disks" } else { "one disk" };
                println!("cut {at} on {kind:?}, {disks} (the same with --machine {number} --rounds 1 --seed {seed}):");
                wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
                return ExitCode::FAILURE;
            }
        }
        machine.space.down_and_check();
        println!("{kind:?}, {}: {rounds} cuts", if two { "two disks" } else { "one disk" });
    }
    let (wrong, _) = if arguments.caches {
        Machine::new(Kind::Ext4, false, Writes::Lying, flags).cut(seed, Duration::ZERO, false)
    } else {
        Machine::new(Kind::Ext4, false, writes, flags).cut(seed, Duration::ZERO, true)
    };
    // What a disk that flushed nothing leaves may be no file system any more.
    let noticed = |text: &String| arguments.caches || text.contains("was fsynced");
    if !wrong.iter().any(noticed) {
        println!("a disk that lies was not noticed: this campaign proves nothing");
        return ExitCode::FAILURE;
    }
    println!(
        "{at} power cuts, {promised} files promised, nothing lost, nothing mixed, a lying disk noticed; {:.0} s",
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
