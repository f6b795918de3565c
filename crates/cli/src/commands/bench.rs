//! `ullage bench`: ullage beside native ext4 and other stacked file systems.

use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_bench::{Options, catalogue, table_of, write_files};

/// Measure ullage beside native ext4 and other stacked file systems.
///
/// Every workload runs on a fresh ext4 and on each system over that same ext4, in interleaved pairs; reported is the
/// median of the ratios within pairs, with its confidence interval. Needs root.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
#[command(after_help = "\
Examples:
  ullage bench --list
  ullage bench --quick --workload postmark
  ullage bench --system native --system ullage --system 'ullage:--transport=fuser' --workload metarates
  ullage bench --runs 20 --name release")]
pub struct Bench {
    /// A system: native, ullage, null (ullage over a null pool), mergerfs or bindfs, with :ARGUMENTS for more of its
    /// own; the first is what the others are compared with [default: all five]
    #[arg(long = "system", value_name = "KIND[:ARGS]")]
    systems: Vec<String>,
    /// A workload or a group of them [default: all]
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Pairs per workload and system, after a warm-up that is thrown away [default: 9, or 2 with --quick]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// The short form, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Decides the order within pairs and what the workloads do
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for the image of the ext4 that all stand on
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work: PathBuf,
    /// Size of that image, in MiB [default: 8192, or 2048 with --quick]
    #[arg(long, value_name = "MIB")]
    image_size: Option<u64>,
    /// Size of the file that the workload io reads and writes, in MiB [default: 256, or 16 with --quick]
    #[arg(long, value_name = "MIB")]
    file_size: Option<u64>,
    /// The ullage to measure [default: this one]
    #[arg(long, value_name = "PATH")]
    ullage: Option<PathBuf>,
    /// Further arguments for every `ullage up`
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    extra_up: Option<String>,
    /// Directory for NAME.json and NAME.svg
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
    /// What the files are called
    #[arg(long, value_name = "NAME", default_value = "bench")]
    name: String,
    /// Show the workloads and stop
    #[arg(long)]
    list: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Be a worker process of a running bench
    #[arg(long, hide = true)]
    worker: bool,
}

impl Bench {
    /// Measures and reports; fails when nothing could be measured.
    pub fn run(self) -> Result<ExitCode> {
        if self.worker {
            return ullage_bench::run_worker().map(|()| ExitCode::SUCCESS);
        }
        if self.list {
            list(self.json);
            return Ok(ExitCode::SUCCESS);
        }
        ullage_bench::make_place(&self.out, &self.name)?;
        ullage_bench::install_cleanup(&ullage_daemon::end_signals())?;
        let report = ullage_bench::run(&self.resolve()?, &|line| whisper!("{line}"))?;
        // Shown first: it may have taken hours, and there may be no room for the files any more.
        if self.json {
            say!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            crate::output::text(&table_of(&report));
        }
        for path in write_files(&report, &self.out, &self.name)?.iter().filter(|_| !self.json) {
            say!("written: {}", path.display());
        }
        Ok(if report.series.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn resolve(&self) -> Result<Options> {
        let this = std::env::current_exe()?;
        let mut systems = self.systems.clone();
        if systems.is_empty() {
            systems = ["native", "ullage", "null", "mergerfs", "bindfs"].map(str::to_owned).to_vec();
        }
        let short = |full, short| if self.quick { short } else { full };
        Ok(Options {
            systems,
            extra_up: self.extra_up.iter().flat_map(|extra| extra.split_whitespace()).map(str::to_owned).collect(),
            workloads: self.workloads.clone(),
            runs: self.runs.unwrap_or(short(9, 2)),
            quick: self.quick,
            seed: self.seed,
            work: self.work.clone(),
            image_bytes: self.image_size.unwrap_or(short(8192, 2048) as u64) << 20,
            file_bytes: self.file_size.unwrap_or(short(256, 16) as u64) << 20,
            program: self.ullage.clone().unwrap_or_else(|| this.clone()),
            helper: vec![this.into(), "bench".into(), "--worker".into()],
        })
    }
}

fn list(json: bool) {
    let all: Vec<(String, String)> = catalogue().iter().map(|w| (w.name(), w.about())).collect();
    if json {
        let rows: Vec<_> = all.iter().map(|(name, about)| serde_json::json!({"name": name, "about": about})).collect();
        say!("{:#}", serde_json::Value::from(rows));
    } else {
        for (name, about) in all {
            say!("{name:24} {about}");
        }
    }
}
