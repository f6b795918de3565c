//! `ullage memory`: idle memory lent to background work, and never missed.

mod run;
mod settings;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use settings::Settings;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use ullage_memory::control::{Config, Mode};
use ullage_memory::daemon;
use ullage_memory::runtime::{RuntimeDir, Status};
use ullage_memory::{Error, PAGE, bench, chart, guard, join, simulate, timeline};
use ullage_types::Bytes;

/// Idle memory lent to background work, and never missed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ullage memory run -- povray scene.pov     render with idle memory only
  ullage memory mark 4711                   lend idle memory to a process that runs
  0 3 * * * ullage memory run -- updatedb   (crontab) nightly jobs that push nobody out
  ullage memory daemon --box /sys/fs/cgroup/work
  ullage memory status; ullage memory histogram
  ullage memory timeline > figure9.svg
  ullage memory simulate trace.txt --total 1G")]
pub struct Memory {
    #[command(subcommand)]
    command: What,
    /// Where the controller keeps its state [default: /run/ullage/memory, or below $XDG_RUNTIME_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a command as contributed work, starting a controller if none runs; when memory runs out it is the first to go
    #[command(after_help = "Examples:
  ullage memory run -- povray scene.pov
  ullage memory run --kill-after 10 -- make -j4   ended where it does not give back within ten seconds
  0 3 * * * ullage memory run -- updatedb         (crontab)")]
    Run(run::Run),
    /// Start a controller for 'run', and end when it is there or has ended (started by it)
    #[command(hide = true)]
    Start(Box<Settings>),
    /// Make processes that run contributed work, with all their descendants (jobs of cron, say)
    ///
    /// What they take from now on is bounded. Memory that they have already comes with them on cgroup v1 of older kernels only:
    /// else it stays charged to the group that they come from. What 'run' starts has none.
    #[command(
        visible_alias = "maketransparent",
        after_help = "Examples:
  ullage memory daemon --box /sys/fs/cgroup/work &
  ullage memory mark 4711 4712              they, and all that they have started
  ullage memory mark $(pidof -s transmission-daemon)"
    )]
    Mark {
        /// Process numbers
        #[arg(required = true, value_name = "PID")]
        pids: Vec<i32>,
    },
    /// Watch opaque memory and bound contributed work, until stopped
    #[command(after_help = "Examples:
  ullage memory daemon                            lend what the machine does not need
  ullage memory daemon --box /sys/fs/cgroup/work --kill-after 10
  ullage memory daemon --until-empty --log memory.jsonl")]
    Daemon(Box<Daemon>),
    /// Show where memory is and what is lent out
    #[command(after_help = "Examples:
  ullage memory status
  ullage memory status --json | jq .contributed")]
    Status,
    /// Show the LRU histogram
    #[command(after_help = "Examples:
  ullage memory histogram
  ullage memory histogram --json > histogram.json")]
    Histogram,
    /// Draw memory in use and limits over time (figure 9 of the paper) as SVG
    #[command(after_help = "Examples:
  ullage memory timeline > figure9.svg             of the controller that runs
  ullage memory timeline memory.jsonl > kept.svg   of 'daemon --log memory.jsonl'")]
    Timeline {
        /// A timeline kept with 'daemon --log' [default: that of the running controller]
        log: Option<PathBuf>,
    },
    /// Compare exact LRU stack distances of a trace with the sampled estimate
    #[command(after_help = "Examples:
  ullage memory simulate trace.txt --total 1G
  awk '{print $1, $3}' log | ullage memory simulate - --period 10")]
    Simulate(Simulate),
    /// Measure: a user goes away and comes back beside a hog, under several systems (needs root and
    /// cgroup v1). The paper's five minutes: --prime 150 --away 300 --back 60 --speed-up 1
    #[command(after_help = "Examples:
  ullage memory bench --repeats 1
  ullage memory bench --systems ullage,none --report out
  ullage memory bench --repeats 0 --report out     only reports what was recorded")]
    Bench(Bench),
    /// Loads for the bench
    #[command(hide = true)]
    Load {
        /// Size of the working set, or of the hog's scene
        size: Bytes,
        /// Memory touched once and never again
        #[arg(long, default_value = "0")]
        cold: Bytes,
        /// Be a renderer-like hog instead of a user
        #[arg(long)]
        hog: bool,
    },
    /// Clean up after a controller that was killed (started by it)
    #[command(hide = true)]
    Guard,
    /// Remove the boxes of a bench that was killed (started by it)
    #[command(hide = true)]
    Sweep,
}

#[derive(Debug, Args)]
struct Daemon {
    #[command(flatten)]
    settings: Settings,
    /// End when the last contributed process has ended, or when none comes within some seconds
    #[arg(long)]
    until_empty: bool,
    /// Where a controller runs already, that is no error
    #[arg(long)]
    if_none: bool,
    /// Write the timeline here and keep it (one line of JSON a second); appended to what is there
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Bench {
    /// Records, one line of JSON per trial; appended to
    #[arg(long, default_value = "memory-bench.jsonl")]
    records: PathBuf,
    /// Write tables and charts of all records here
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Memory of each of the three boxes
    #[arg(long = "box-size", default_value = "512M")]
    box_size: Bytes,
    /// Seconds at work before the break
    #[arg(long, default_value_t = 36.0)]
    prime: f64,
    /// Seconds away
    #[arg(long, default_value_t = 30.0)]
    away: f64,
    /// Seconds measured after coming back
    #[arg(long, default_value_t = 12.0)]
    back: f64,
    /// Ageing times are divided by this
    #[arg(long, default_value_t = 4.0)]
    speed_up: f64,
    /// Trials of each; 0 only reports
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// How many systems are tried at the same time
    #[arg(long, default_value_t = 1)]
    lanes: usize,
    /// Keep ullage's timelines here
    #[arg(long, value_name = "DIR")]
    timelines: Option<PathBuf>,
    /// Systems to compare, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = bench::SYSTEMS.map(str::to_owned))]
    systems: Vec<String>,
}

#[derive(Debug, Args)]
struct Simulate {
    /// Lines of 'seconds page', times in order; '-' for standard input
    trace: PathBuf,
    /// Memory of the machine
    #[arg(long, default_value = "1G")]
    total: Bytes,
    /// Length of an ageing period in seconds
    #[arg(long, default_value_t = 60.0)]
    period: f64,
}

/// Runs one of the sub-commands.
pub fn run(arguments: Memory) -> anyhow::Result<ExitCode> {
    let runtime = RuntimeDir::new(arguments.runtime_dir);
    let json = arguments.json;
    match arguments.command {
        What::Run(run) => return run::command(&runtime, &run),
        What::Start(settings) => return run::start(&runtime, &settings),
        What::Mark { pids } => {
            let (mut failed, mut marked) = (false, Vec::new());
            for pid in pids {
                match join::mark(&runtime, pid) {
                    Ok(moved) if json => marked.extend(moved),
                    Ok(moved) if moved.len() > 1 => {
                        say!("{pid} and its {} descendants are contributed work now", moved.len() - 1);
                    }
                    Ok(_) => say!("{pid} is contributed work now"),
                    Err(error) => {
                        failed = true;
                        whisper!("ullage: {error}");
                    }
                }
            }
            if json {
                say!("{}", serde_json::json!({ "version": 1, "marked": marked }));
            }
            return Ok(ExitCode::from(u8::from(failed)));
        }
        What::Daemon(options) => {
            // What bounds the files of who started it is not to end it.
            ullage_daemon::raise_rlimits();
            let stop = ullage_memory::daemon::stop_on_signals(&ullage_daemon::end_signals())?;
            let guard = vec![
                std::env::current_exe()?.into(),
                "memory".into(),
                "--runtime-dir".into(),
                std::path::absolute(runtime.path())?.into(),
                "guard".into(),
            ];
            let if_none = options.if_none;
            let options = daemon::Options {
                runtime,
                within: options.settings.within.clone(),
                sampler: options.settings.sampler.clone(),
                config: options.settings.config()?,
                guard: Some(guard),
                until_empty: options.until_empty,
                log: options.log,
            };
            match daemon::run(&options, &stop) {
                Err(Error::AlreadyRunning(_)) if if_none => {}
                other => other?,
            }
        }
        What::Status => show_status(&Status::read(&runtime)?, json)?,
        What::Histogram => {
            let status = Status::read(&runtime)?;
            if json {
                let points = status.histogram.cumulative();
                say!("{}", serde_json::json!({ "version": 1, "page_bytes": PAGE, "hits_by_memory_pages": points }));
            } else {
                let report = &status.report;
                crate::output::text(&chart::histogram(
                    &status.histogram,
                    report.picture.total,
                    report.donation.opaque_limit,
                ));
            }
        }
        What::Timeline { log } => {
            let points = match log {
                Some(path) => timeline::read(&path)?,
                None => Status::read(&runtime).and_then(|_| timeline::read_of(&runtime))?,
            };
            if json {
                say!("{}", serde_json::to_string(&points)?);
            } else {
                crate::output::text(&timeline::svg(&points)?);
            }
        }
        What::Simulate(options) => show_simulation(&options, json)?,
        What::Bench(options) => run_bench(&options, json)?,
        What::Load { size, hog: true, .. } => bench::load::hog(size.0),
        What::Load { size, cold, hog: false } => bench::load::user(size.0, cold.0)?,
        What::Guard => guard::watch(&runtime)?,
        What::Sweep => bench::watch()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show_status(status: &Status, json: bool) -> anyhow::Result<()> {
    if json {
        say!("{}", serde_json::to_string(status)?);
        return Ok(());
    }
    let (report, pages) = (&status.report, |pages: u64| Bytes(pages * PAGE).to_string());
    // Root is shown what others have written, too.
    let line = |name: &str, value: String| say!("{name:<22}{}", crate::output::shown(value));
    line("memory", format!("{}, of it free {}", pages(report.picture.total), pages(report.picture.free)));
    line("opaque", format!("{} used, keeps {}", pages(report.picture.opaque()), pages(report.donation.opaque_limit)));
    line(
        "contributed",
        format!(
            "{} used by {} processes, may have {} (earned {})",
            pages(report.picture.contributed),
            status.contributed.len(),
            pages(report.donation.limit),
            pages(report.donation.earned)
        ),
    );
    line("working set", report.need.map_or("not known yet: only free memory is lent".into(), pages));
    let mode = if report.mode == Some(Mode::Slow) { "slow" } else { "fast" };
    line("ageing", format!("{mode}, {} periods aged, {} filtered as noise", report.aged, report.filtered));
    line("misses", format!("{:.1}/s, goal violated {} times", report.misses_per_s, report.violations));
    line("evicted to make room", pages(status.evicted));
    line("back end", format!("{} ({})", status.backend, status.group.display()));
    line("sampler", format!("{}, watching {} processes", status.sampler, status.opaque_processes));
    for candidate in &status.samplers {
        line("", format!("{}: {}", candidate.name, candidate.why_not.as_deref().unwrap_or("works")));
    }
    line(
        "cost",
        format!(
            "{:.2} % of a CPU in fast ageing, {:.2} % in slow, {}",
            status.cost.fast_cpu_percent,
            status.cost.slow_cpu_percent,
            Bytes(status.cost.rss_bytes)
        ),
    );
    for warning in &status.warnings {
        line("warning", warning.clone());
    }
    Ok(())
}

fn run_bench(options: &Bench, json: bool) -> anyhow::Result<()> {
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).context("a time must be in seconds, 0 or more");
    if let Some(unknown) = options.systems.iter().find(|name| !bench::SYSTEMS.contains(&name.as_str())) {
        bail!("no system is called '{unknown}': choose from {}", bench::SYSTEMS.join(", "));
    }
    let plan = bench::Plan {
        program: std::env::current_exe()?,
        box_bytes: options.box_size.0,
        prime: time(options.prime)?,
        away: time(options.away)?,
        back: time(options.back)?,
        speed_up: options.speed_up,
        repeats: options.repeats,
        systems: options.systems.clone(),
        records: options.records.clone(),
        lanes: options.lanes,
        timelines: options.timelines.clone(),
    };
    let stop = ullage_memory::daemon::stop_on_signals(&ullage_daemon::end_signals())?;
    bench::run(&plan, &stop, |record| {
        if json {
            say!("{}", serde_json::json!(record));
        } else {
            let faults: u64 = record.back.iter().map(|second| second.faults).sum();
            say!("{:<12} {:<7} {faults} faults, {} donated", record.system, record.set, Bytes(record.donated_bytes));
        }
    })?;
    if let Some(directory) = &options.report {
        bench::write(&bench::read(&options.records)?, directory)?;
    }
    Ok(())
}

fn show_simulation(options: &Simulate, json: bool) -> anyhow::Result<()> {
    let period = Duration::try_from_secs_f64(options.period).ok().filter(|period| !period.is_zero());
    let period = period.context("--period must be a time above 0")?;
    let text = if options.trace.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin()).context("reading standard input")?
    } else {
        std::fs::read_to_string(&options.trace).with_context(|| format!("reading {}", options.trace.display()))?
    };
    let trace = simulate::parse(&text)?;
    let config = Config { fast_period: period, slow_period: period, ..Config::default() };
    let total = (options.total.0 / PAGE).max(1);
    let outcome = simulate::run(&trace, &config, total);
    if json {
        say!("{}", serde_json::json!({ "version": 1, "outcome": outcome }));
        return Ok(());
    }
    say!("{} accesses to {} pages", outcome.accesses, outcome.pages);
    say!("{:>10}  {:>12}  {:>12}", "memory", "misses exact", "estimated");
    for (pages, exact, estimated) in outcome.curve.iter().step_by(2) {
        say!("{:>10}  {:>10.3} %  {:>10.3} %", Bytes(pages * PAGE).to_string(), 100.0 * exact, 100.0 * estimated);
    }
    let size = |pages: u64| Bytes(pages * PAGE).to_string();
    let estimated = outcome.estimated_need_pages.map_or("nothing (no period with activity)".into(), size);
    say!("needed: {} exact, {estimated} estimated", size(outcome.exact_need_pages));
    say!(
        "beside a process that wants all of {}: {} lent on average, {} misses; alone: {} misses",
        size(total),
        size(outcome.lent_pages),
        outcome.misses_beside,
        outcome.misses_alone
    );
    Ok(())
}
