//! One trial: work, go away while a hog runs, come back.

use super::load::{Line, Second};
use super::sandbox::Sandbox;
use super::sweep;
use crate::backend::GROUP_NAME;
use crate::error::{Error, Result};
use crate::runtime::{Cost, RuntimeDir, Status};
use crate::sys;
use crate::system::read;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Working sets by name: share of the box worked on, and share touched once and never again.
pub const SETS: [(&str, f64, f64); 3] = [("small", 0.20, 0.12), ("medium", 0.40, 0.15), ("large", 0.66, 0.08)];

/// The systems compared.
pub const SYSTEMS: [&str; 7] = ["none", "unlimited", "nice 19", "static 25 %", "static 50 %", "static 75 %", "ullage"];

/// How long, how large, where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The `ullage` command, which is also the load.
    pub program: PathBuf,
    /// Memory of each box.
    pub box_bytes: u64,
    /// Time at work before the break.
    pub prime: Duration,
    /// The break.
    pub away: Duration,
    /// Time measured after it.
    pub back: Duration,
    /// Ageing times are divided by this.
    pub speed_up: f64,
    /// Trials of each.
    pub repeats: u32,
    /// How many systems are tried at the same time.
    pub lanes: usize,
    /// Systems, of [`SYSTEMS`].
    pub systems: Vec<String>,
    /// Where records are appended, one line of JSON each.
    pub records: PathBuf,
    /// Where ullage's timelines (figure 9) are kept, one file per set, of the last trial.
    pub timelines: Option<PathBuf>,
}

/// How long a signal may wait to be noticed.
const TICK: Duration = Duration::from_millis(100);

/// What one trial gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// One of [`SYSTEMS`].
    pub system: String,
    /// One of [`SETS`].
    pub set: String,
    /// Length of the break.
    pub away_s: f64,
    /// The first seconds after it.
    pub back: Vec<Second>,
    /// The last seconds before it.
    pub before: Vec<Second>,
    /// Memory the hog held at the end of the break.
    pub donated_bytes: u64,
    /// What one who knows the working set would have given: all but it.
    pub oracle_bytes: u64,
    /// What the controller cost; zero for the other systems.
    pub cost: Cost,
    /// The user's pages evicted by the end of the break, by twentieth of their LRU queue, most
    /// recently used first (figure 3).
    #[serde(default)]
    pub evicted: Vec<u64>,
    /// Load of the machine (one minute) at the end of the break.
    #[serde(default)]
    pub load: f64,
}

/// Runs the plan: systems interleaved, `lanes` of them and all sets of each at the same time, every
/// trial in a box of its own. [`Error::Stopped`] once `stop` is set; boxes go with the bench, even when it is killed.
pub fn run(plan: &Plan, stop: &AtomicBool, mut tell: impl FnMut(&Record)) -> Result<()> {
    sweep::sweep();
    let mut guard = sweep::start_guard(&plan.program)?;
    let outcome = run_all(plan, stop, &mut tell);
    drop(guard.stdin.take());
    let _swept = guard.wait();
    outcome
}

fn run_all(plan: &Plan, stop: &AtomicBool, tell: &mut impl FnMut(&Record)) -> Result<()> {
    let order: Vec<&String> = (0..plan.repeats).flat_map(|_| &plan.systems).collect();
    for systems in order.chunks(plan.lanes.max(1)) {
        let records: Vec<Result<Record>> = std::thread::scope(|scope| {
            let pairs = systems.iter().enumerate().flat_map(|(lane, system)| SETS.map(|set| (lane, system, set)));
            let trials: Vec<_> =
                pairs.map(|(lane, system, set)| scope.spawn(move || trial(plan, stop, lane, system, set))).collect();
            let died = || Err(Error::Invalid("a trial panicked".into()));
            trials.into_iter().map(|trial| trial.join().unwrap_or_else(|_| died())).collect()
        });
        for record in records {
            let record = record?;
            append(&plan.records, &record)?;
            tell(&record);
        }
    }
    Ok(())
}

fn append(path: &Path, record: &Record) -> Result<()> {
    let line = serde_json::to_string(record).map_err(|error| Error::Invalid(error.to_string()))?;
    let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(open.map_err(Error::io("opening", path))?, "{line}").map_err(Error::io("writing", path))
}

/// Waits so long, or until the bench is to stop.
fn pause(time: Duration, stop: &AtomicBool) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        match until.checked_duration_since(Instant::now()) {
            Some(left) => std::thread::sleep(left.min(TICK)),
            None => return Ok(()),
        }
    }
}

fn trial(
    plan: &Plan,
    stop: &AtomicBool,
    lane: usize,
    system: &str,
    (set, working, cold): (&str, f64, f64),
) -> Result<Record> {
    let share = |part: f64| (plan.box_bytes as f64 * part) as u64;
    let load = |words: &[String]| -> Vec<OsString> {
        let words = ["memory", "load"].map(str::to_owned).into_iter().chain(words.iter().cloned());
        std::iter::once(plan.program.clone().into_os_string()).chain(words.map(OsString::from)).collect()
    };
    let mut sandbox = Sandbox::new(&format!("{lane}-{set}"), plan.box_bytes)?;
    let user = load(&[share(working).to_string(), "--cold".into(), share(cold).to_string()]);
    let (mut orders, lines) = talk(sandbox.start("user", &user, 0)?)?;
    // Its memory is there when it prints its first second.
    let _started = lines.recv_timeout(Duration::from_secs(60));
    let runtime = RuntimeDir::new(Some(sandbox_dir(&sandbox.path)));
    let daemon = (system == "ullage").then(|| start_daemon(plan, set, &mut sandbox, &runtime)).transpose()?;
    order(&mut orders, "work")?;
    pause(plan.prime, stop)?;
    order(&mut orders, "rest")?;
    let before: Vec<Second> = lines.try_iter().filter_map(second).collect();

    let scene = share(1.4).to_string();
    let hog = load(&[scene, "--hog".into()]);
    match system {
        "none" => {}
        "ullage" => {
            let mut command: Vec<OsString> = vec![plan.program.clone().into(), "memory".into(), "--runtime-dir".into()];
            command.extend([runtime.path().into(), "run".into(), "--".into()]);
            command.extend(hog);
            sandbox.beside(&command)?;
        }
        _ => {
            if let Some(percent) =
                system.strip_prefix("static ").and_then(|text| text.trim_end_matches(" %").parse::<f64>().ok())
            {
                sandbox.limit("hog", share(1.0 - percent / 100.0))?;
            }
            sandbox.start("hog", &hog, if system == "nice 19" { 19 } else { 0 })?;
        }
    }
    pause(plan.away, stop)?;
    let donated_bytes = sandbox.usage(if system == "ullage" { GROUP_NAME } else { "hog" });
    let _while_away = lines.try_iter().count();
    order(&mut orders, "where")?;
    let evicted = evicted(&lines)?;
    order(&mut orders, "work")?;
    let back = collect(&lines, plan.back, stop)?;
    let cost = Status::read(&runtime).map(|status| status.cost).unwrap_or_default();
    if let Some(pid) = daemon {
        sys::signal(pid, libc::SIGTERM).map_err(Error::io("stopping", "the daemon"))?;
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(Record {
        system: system.into(),
        set: set.into(),
        away_s: plan.away.as_secs_f64(),
        back,
        before,
        donated_bytes,
        oracle_bytes: plan.box_bytes - share(working),
        cost,
        evicted,
        load: load_average(),
    })
}

fn sandbox_dir(path: &Path) -> PathBuf {
    std::env::temp_dir().join(path.file_name().unwrap_or_default())
}

fn load_average() -> f64 {
    let text = read("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn start_daemon(plan: &Plan, set: &str, sandbox: &mut Sandbox, runtime: &RuntimeDir) -> Result<i32> {
    let mut command: Vec<OsString> = vec![plan.program.clone().into(), "memory".into(), "--runtime-dir".into()];
    command.extend([runtime.path().into(), "daemon".into(), "--box".into(), sandbox.path.clone().into()]);
    command.push(format!("--speed-up={}", plan.speed_up).into());
    if let Some(directory) = &plan.timelines {
        std::fs::create_dir_all(directory).map_err(Error::io("creating", directory))?;
        command.extend(["--log".into(), directory.join(format!("timeline-{set}.jsonl")).into()]);
    }
    let pid = sandbox.beside(&command)?.id() as i32;
    let until = Instant::now() + Duration::from_secs(10);
    while Status::read(runtime).is_err() {
        if Instant::now() > until {
            return Err(Error::NotRunning(runtime.path().to_owned()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(pid)
}

type Orders = std::process::ChildStdin;

fn talk(child: &mut Child) -> Result<(Orders, Receiver<Line>)> {
    let missing = || Error::Invalid("the load has no pipes".into());
    let (input, output) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if let Ok(line) = serde_json::from_str(&line)
                && sender.send(line).is_err()
            {
                break;
            }
        }
    });
    Ok((input, receiver))
}

fn order(orders: &mut Orders, word: &str) -> Result<()> {
    writeln!(orders, "{word}").map_err(Error::io("writing to", "the load"))
}

fn second(line: Line) -> Option<Second> {
    match line {
        Line::Second(second) => Some(second),
        Line::Evicted { .. } => None,
    }
}

/// The answer to `where`; a user whose memory is gone takes its time.
fn evicted(lines: &Receiver<Line>) -> Result<Vec<u64>> {
    let until = Instant::now() + Duration::from_secs(60);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if let Ok(Line::Evicted { evicted }) = lines.recv_timeout(left) {
            return Ok(evicted);
        }
    }
    Err(Error::Invalid("the user's application does not answer".into()))
}

/// Seconds as they come; one that takes longer than a second counts for as long as it took.
fn collect(lines: &Receiver<Line>, time: Duration, stop: &AtomicBool) -> Result<Vec<Second>> {
    let until = Instant::now() + time;
    let mut found = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        found.extend(lines.recv_timeout(left.min(TICK)).ok().and_then(second));
        pause(Duration::ZERO, stop)?;
    }
    Ok(found)
}
