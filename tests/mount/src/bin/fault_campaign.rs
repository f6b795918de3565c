//! `fault-campaign`: lets the daemon's system calls fail, each in turn.

#![deny(missing_docs)]

use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use ullage_mount_tests::crash::broken_promise;
use ullage_mount_tests::crash::failing::fail;
use ullage_mount_tests::crash::fault::{CALLS, Fault, possible};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::space::Space;

/// Lets each system call of a space's daemon fail, the first of a thread, the second and so on until none is left that fails: under load, then in
/// the start after a kill. Looks for everything that was promised each time.
#[derive(Parser)]
#[command(
    version,
    after_help = "Needs root and strace. Examples:
  fault-campaign
  fault-campaign --call fsetxattr --size 1500M
  fault-campaign --call pwrite64 --errno EIO --nth 7 --seed 1234    that failure again
  ULLAGE_BIN=target/flawed/release/ullage fault-campaign --canary --call openat
                                        (after cargo build --release -p ullage-cli --features flawed --target-dir target/flawed)"
)]
struct Arguments {
    /// Only this call.
    #[arg(long)]
    call: Option<String>,
    /// Only this error.
    #[arg(long, requires = "call")]
    errno: Option<String>,
    /// Only this one of a thread's calls.
    #[arg(long, requires = "call")]
    nth: Option<u32>,
    /// The last one of a thread's calls that fails; in between every one, then fewer and fewer.
    #[arg(long, default_value_t = 40)]
    most: u32,
    /// Where chance starts. Printed [default: the clock].
    #[arg(long)]
    seed: Option<u64>,
    /// Limit the whole space, as `up --size` does; every file is a limited one then.
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// The daemon is a known-bad one, built with the feature `flawed`: success is that something lost is found, and nothing else.
    #[arg(long)]
    canary: bool,
    /// Move all data through the server.
    #[arg(long)]
    no_passthrough: bool,
    /// The pool's layout.
    #[arg(long, default_value = "sparse", value_parser = ["sparse", "mirror"])]
    layout: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !possible() {
        eprintln!("there is no strace");
        return ExitCode::FAILURE;
    }
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    println!("seed {seed}");
    let mut space = space(&arguments);
    let began = Instant::now();
    let (mut rounds, mut promised, mut calls) = (0, 0, (0, 0));
    for (call, errno) in faults(&arguments) {
        let mut nth = arguments.nth.unwrap_or(1);
        loop {
            let fault = Fault { call: call.clone(), errno: errno.clone(), nth };
            space.limit(Duration::from_secs(120));
            let failed = fail(&space, &fault, seed);
            rounds += 1;
            promised += failed.promised;
            calls = (calls.0 + failed.calls.0, calls.1 + failed.calls.1);
            println!("{call} {errno}, number {nth}: {:?} failed, {} files promised", failed.calls, failed.promised);
            if let (true, Some(broken)) = (arguments.canary, broken_promise(&failed.wrong)) {
                println!("a daemon that says of names that they are durable before they are was noticed: {broken}");
                return ExitCode::SUCCESS;
            }
            if !failed.wrong.is_empty() {
                failed.wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
                println!("the daemon's log:\n{}", space.log());
                return ExitCode::FAILURE;
            }
            nth += 1 + nth / 4;
            if failed.calls == (0, 0) || nth > arguments.most || arguments.nth.is_some() {
                break;
            }
        }
    }
    space.down_and_check();
    if arguments.canary {
        println!("a known-bad daemon was not noticed: this campaign proves nothing");
        return ExitCode::FAILURE;
    }
    println!(
        "{rounds} failures ({} calls under load, {} at starts), {promised} files promised, nothing lost, nothing mixed; {:.0} s",
        calls.0,
        calls.1,
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn space(arguments: &Arguments) -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 2048);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("{},layout={}", space.pools[0], arguments.layout)];
    let size = arguments.size.iter().flat_map(|size| ["--size", size]);
    let flags =
        ["--linger-ms", "100"].into_iter().chain(size).chain(arguments.no_passthrough.then_some("--no-passthrough"));
    space.flags = flags.map(Into::into).collect();
    space.up();
    space
}

fn faults(arguments: &Arguments) -> Vec<(String, String)> {
    let all =
        CALLS.iter().flat_map(|(call, errnos)| errnos.iter().map(|errno| ((*call).to_owned(), (*errno).to_owned())));
    let Some(call) = &arguments.call else { return all.collect() };
    match &arguments.errno {
        Some(errno) => vec![(call.clone(), errno.clone())],
        None => all.filter(|(it, _)| it == call).collect(),
    }
}
