//! One trial: work, go away while a hog runs, come back.

use super::load::Second;
use super::sandbox::Sandbox;
use crate::error::{Error, Result};
use crate::runtime::{Cost, RuntimeDir, Status};
use crate::sys;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
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
    /// Systems, of [`SYSTEMS`].
    pub systems: Vec<String>,
    /// Where records are appended, one line of JSON each.
    pub records: PathBuf,
}

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
}

/// Runs the plan, systems interleaved, the sets of one system at the same time in boxes of their own.
pub fn run(plan: &Plan, mut tell: impl FnMut(&Record)) -> Result<()> {
    for _ in 0..plan.repeats {
        for system in &plan.systems {
            let records: Vec<Result<Record>> = std::thread::scope(|scope| {
                let trials: Vec<_> = SETS.iter().map(|set| scope.spawn(move || trial(plan, system, *set))).collect();
                let died = || Err(Error::Invalid("a trial panicked".into()));
                trials.into_iter().map(|trial| trial.join().unwrap_or_else(|_| died())).collect()
            });
            for record in records {
                let record = record?;
                append(&plan.records, &record)?;
                tell(&record);
            }
        }
    }
    Ok(())
}

fn append(path: &Path, record: &Record) -> Result<()> {
    let line = serde_json::to_string(record).map_err(|error| Error::Invalid(error.to_string()))?;
    let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(open.map_err(Error::io("opening", path))?, "{line}").map_err(Error::io("writing", path))
}

fn trial(plan: &Plan, system: &str, (set, working, cold): (&str, f64, f64)) -> Result<Record> {
    let share = |part: f64| (plan.box_bytes as f64 * part) as u64;
    let load = |words: &[String]| -> Vec<OsString> {
        let words = ["memory", "load"].map(str::to_owned).into_iter().chain(words.iter().cloned());
        std::iter::once(plan.program.clone().into_os_string()).chain(words.map(OsString::from)).collect()
    };
    let mut sandbox = Sandbox::new(set, plan.box_bytes)?;
    let user = load(&[share(working).to_string(), "--cold".into(), share(cold).to_string()]);
    let (mut orders, seconds) = talk(sandbox.start("user", &user, 0)?)?;
    let runtime = RuntimeDir::new(Some(sandbox_dir(&sandbox.path)));
    let daemon = (system == "ullage").then(|| start_daemon(plan, &mut sandbox, &runtime)).transpose()?;
    order(&mut orders, "work")?;
    std::thread::sleep(plan.prime);
    order(&mut orders, "rest")?;
    let before: Vec<Second> = seconds.try_iter().collect();

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
    std::thread::sleep(plan.away);
    let donated_bytes = sandbox.usage(if system == "ullage" { "ullage.contributed" } else { "hog" });
    let _while_away = seconds.try_iter().count();
    order(&mut orders, "work")?;
    let back = collect(&seconds, plan.back);
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
    })
}

fn sandbox_dir(path: &Path) -> PathBuf {
    std::env::temp_dir().join(path.file_name().unwrap_or_default())
}

fn start_daemon(plan: &Plan, sandbox: &mut Sandbox, runtime: &RuntimeDir) -> Result<i32> {
    let mut command: Vec<OsString> = vec![plan.program.clone().into(), "memory".into(), "--runtime-dir".into()];
    command.extend([runtime.path().into(), "daemon".into(), "--box".into(), sandbox.path.clone().into()]);
    command.push(format!("--speed-up={}", plan.speed_up).into());
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

fn talk(child: &mut Child) -> Result<(Orders, Receiver<Second>)> {
    let missing = || Error::Invalid("the load has no pipes".into());
    let (input, output) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if let Ok(second) = serde_json::from_str(&line)
                && sender.send(second).is_err()
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

/// Seconds as they come; one that takes longer than a second counts for as long as it took.
fn collect(seconds: &Receiver<Second>, time: Duration) -> Vec<Second> {
    let until = Instant::now() + time;
    let mut found = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        found.extend(seconds.recv_timeout(left));
    }
    found
}
