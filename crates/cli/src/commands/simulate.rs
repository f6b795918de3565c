//! `ullage simulate`: clusters with faults, the paper's study, and the administrator's plan.

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use ullage_sim::faults;
use ullage_sim::study::{AdvicePlan, Scale, names, study};

/// The last of as many seeds as anybody may want after any that may be the first is a number still.
const SEEDS: u64 = u64::MAX / 2;

/// The least part of the paper's hour that has epochs worth the name.
const LEAST: f64 = 0.01;

fn part(text: &str) -> Result<f64, String> {
    let known = text.parse().ok().filter(|part| (LEAST..=1000.0).contains(part));
    known.ok_or_else(|| format!("write a part of an hour, {LEAST} to 1000"))
}

/// Simulate banks, clients and storage servers with the code that ships.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["faults", "study", "plan"])))]
#[command(after_help = "Examples:
  ullage simulate --faults --seeds 10000           whole clusters with faults, invariants checked at every step
  ullage simulate --faults --seed 4711 --verbose   replay one seed, with all messages
  ullage simulate --study out/ --runs 3            the paper's figures as SVG and JSON
  ullage simulate --plan plan.toml                 which epoch length and policy?")]
pub struct Simulate {
    /// Whole clusters with faults: every seed is a run.
    #[arg(long)]
    faults: bool,
    /// How many seeds to run, with --faults.
    #[arg(long, default_value_t = 200, conflicts_with_all = ["study", "plan"], value_parser = clap::value_parser!(u64).range(1..=SEEDS))]
    seeds: u64,
    /// The first seed (--faults), or the seed of the first run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEEDS))]
    seed: u64,
    /// Print every message of the one seed given by --seed: on standard error with --json.
    #[arg(long, conflicts_with_all = ["study", "plan", "seeds"])]
    verbose: bool,
    /// Regenerate the paper's figures into this directory.
    #[arg(long, value_name = "DIR")]
    study: Option<PathBuf>,
    /// Only this figure, such as figure-06 or sweep-k.
    #[arg(long, conflicts_with_all = ["faults", "plan"], value_parser = PossibleValuesParser::new(names()))]
    figure: Option<String>,
    /// Runs of each point of the study; the paper has 10.
    #[arg(long, default_value_t = 10, conflicts_with_all = ["faults", "plan"], value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The part of the paper's hour that is simulated; epochs and the measured time shrink with it.
    #[arg(long, default_value_t = 1.0, conflicts_with_all = ["faults", "plan"], value_parser = part)]
    time: f64,
    /// The same for the scientific workload.
    #[arg(long, default_value_t = 1.0, conflicts_with_all = ["faults", "plan"], value_parser = part)]
    scientific_time: f64,
    /// Threads.
    #[arg(long, default_value_t = 2, conflicts_with = "plan")]
    threads: usize,
    /// Answer: with the clients, quotas and failure times in this file, which epoch length and policy?
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Output as JSON.
    #[arg(long)]
    json: bool,
}

impl Simulate {
    /// Runs it.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(directory) = &self.study {
            return self.run_study(directory);
        }
        if let Some(file) = &self.plan {
            return self.run_plan(file);
        }
        Ok(self.run_faults())
    }

    fn run_faults(&self) -> ExitCode {
        // Standard output is for the report alone when a program reads it.
        let say: fn(&str) = if self.json { |line| whisper!("{line}") } else { |line| say!("{line}") };
        let setup = faults::Setup { say: self.verbose.then_some(say), ..faults::Setup::default() };
        let count = if self.verbose { 1 } else { self.seeds };
        let threads = if self.verbose { 1 } else { self.threads };
        let done = AtomicU64::new(0);
        let totals = [const { AtomicU64::new(0) }; 7];
        let breaches = faults::campaign(self.seed, count, threads, &setup, &|_, result| {
            let finished = done.fetch_add(1, Ordering::Relaxed) + 1;
            if let Ok(outcome) = result {
                let values = [
                    outcome.steps,
                    outcome.crashes,
                    outcome.restored,
                    outcome.lost,
                    outcome.rebuilt,
                    outcome.overspent,
                    outcome.found,
                ];
                for (total, value) in totals.iter().zip(values) {
                    total.fetch_add(value, Ordering::Relaxed);
                }
            }
            if finished.is_multiple_of(500) && !self.json {
                whisper!("{finished} seeds");
            }
        });
        let total = |at: usize| totals[at].load(Ordering::Relaxed);
        let last = self.seed + (count - 1);
        if self.json {
            let list: Vec<_> = breaches
                .iter()
                .map(|b| serde_json::json!({"seed": b.seed, "second": b.second, "what": b.what}))
                .collect();
            let report = serde_json::json!({
                "version": 1, "first_seed": self.seed, "seeds": count, "steps": total(0), "crashes": total(1),
                "restored": total(2), "lost": total(3), "rebuilt": total(4), "overspent": total(5),
                "found": total(6), "breaches": list,
            });
            say!("{report}");
        } else {
            for breach in &breaches {
                say!("{breach}\n  replay: ullage simulate --faults --seed {} --verbose", breach.seed);
            }
            say!(
                "seeds {} to {last}: {} breaches; {} steps, each checked; {} crashes, {} stores set back, {} lost, {} banks \
                 rebuilt, {} vouchers overspent, {} findings",
                self.seed,
                breaches.len(),
                total(0),
                total(1),
                total(2),
                total(3),
                total(4),
                total(5),
                total(6)
            );
        }
        ExitCode::from(u8::from(!breaches.is_empty()))
    }

    fn run_study(&self, directory: &std::path::Path) -> Result<ExitCode> {
        std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        let scale = Scale {
            runs: self.runs,
            time: self.time,
            scientific_time: self.scientific_time,
            threads: self.threads,
            seed: self.seed,
        };
        if !self.json {
            say!("seed {}", self.seed);
        }
        let mut verdicts = serde_json::Map::new();
        study(scale, self.figure.as_deref(), &mut |figure| {
            ensure!(figure.says_something(), "too little is simulated for {}; raise --time", figure.name);
            if self.json {
                verdicts.insert(figure.name.to_string(), figure.verdict.clone().into());
            } else {
                say!("{}: {}", figure.name, figure.verdict);
            }
            let written = figure.chart.svg().map_err(anyhow::Error::msg).and_then(|svg| {
                let with_scale = serde_json::json!({"version": 1, "scale": scale, "figure": figure});
                std::fs::write(directory.join(format!("{}.svg", figure.name)), svg)?;
                std::fs::write(
                    directory.join(format!("{}.json", figure.name)),
                    format!("{}\n", serde_json::to_string_pretty(&with_scale)?),
                )?;
                Ok(())
            });
            written.with_context(|| format!("write into {}", directory.display()))
        })?;
        if self.json {
            say!("{}", serde_json::json!({"version": 1, "seed": self.seed, "verdicts": verdicts}));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_plan(&self, file: &std::path::Path) -> Result<ExitCode> {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let advice = AdvicePlan::parse(&text)?.advise(self.seed);
        if self.json {
            let report = serde_json::json!({"version": 1, "seed": self.seed, "advice": advice});
            say!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            say!("seed {}\n", self.seed);
            say!(
                "{:>8} {:>12} {:>18} {:>10} {:>12} {:>11}  against",
                "epoch s",
                "named in s",
                "cheat bound B",
                "simulated",
                "messages/s",
                "latency ms"
            );
            for c in &advice.candidates {
                say!(
                    "{:>8} {:>12} {:>18.0} {:>10} {:>12.2} {:>11.3}  {}{}",
                    c.epoch,
                    c.named_within,
                    c.cheat_bound,
                    c.simulated_users,
                    c.messages,
                    c.latency_ms,
                    c.against.join("; "),
                    if c.bridges_outage { "" } else { " (a store away that long holds quota up)" }
                );
            }
            say!("\nsimulated: so many users, at as few banks as have as many each; messages are those of all users");
            match advice.epoch {
                Some(epoch) => say!(
                    "\nepoch {epoch} s, X = {}, K = {}, policy {}: {}",
                    advice.expiry,
                    advice.reconcile,
                    advice.policy,
                    advice.because
                ),
                None => say!("\nno epoch length satisfies this plan: see what is against each"),
            }
        }
        Ok(ExitCode::from(u8::from(advice.epoch.is_none())))
    }
}
