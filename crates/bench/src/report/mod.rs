//! What a run found, and the forms it is shown in.

mod files;
mod reach;
mod svg;
mod table;

pub use files::{make_place, write_files};
pub use svg::svg_of;
pub use table::table_of;

use crate::environment::Environment;
use crate::measurement::{Measurement, Unit};
use crate::options::Options;
use crate::statistics::Summary;
use crate::system::MessageCounts;
use crate::workload::{Context as Needs, Workload};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of this form; raised when a field changes its meaning.
    pub version: u32,
    /// Where and when.
    pub environment: Environment,
    /// What was asked for.
    pub options: Options,
    /// One for every workload, metric and system.
    pub series: Vec<Series>,
    /// What was left out, and why.
    pub skipped: Vec<Skipped>,
}

/// Something that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Which system.
    pub system: String,
    /// Which workload; none when the system could not run at all.
    pub workload: Option<String>,
    /// Why.
    pub reason: String,
}

/// One metric of one workload on one system, beside the baseline's samples of the same pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The workload's name.
    pub workload: String,
    /// Which part of it.
    pub metric: String,
    /// What the figures count.
    pub unit: Unit,
    /// The system under test.
    pub system: String,
    /// What it is compared with; none when it ran alone.
    pub baseline: Option<String>,
    /// Its figures, in the order they were taken.
    pub samples: Vec<f64>,
    /// The baseline's, pair by pair.
    pub baseline_samples: Vec<f64>,
    /// What the samples say.
    pub summary: Summary,
    /// What the baseline's say.
    pub baseline_summary: Option<Summary>,
    /// What the ratios within pairs say: the system's figure divided by the baseline's.
    pub ratio: Option<Summary>,
    /// What the project wants the ratio's median to be: at most this for times, at least this for throughput.
    pub reach: Option<f64>,
    /// What one operation is called.
    pub operation: &'static str,
    /// Requests of each kind per operation in the last run; free of noise. Told with the first metric only.
    pub messages: BTreeMap<String, f64>,
}

impl Report {
    /// Nothing found yet.
    pub fn new(environment: Environment, options: Options) -> Self {
        Self { version: 1, environment, options, series: Vec::new(), skipped: Vec::new() }
    }

    /// What the others are compared with: the first system that could run.
    pub fn baseline(&self) -> &str {
        self.series.iter().find_map(|series| series.baseline.as_deref()).unwrap_or("baseline")
    }

    /// Notes that something is left out, and says so.
    pub(crate) fn skip(&mut self, progress: &dyn Fn(&str), system: &str, workload: Option<String>, reason: String) {
        progress(&format!("left out: {} on {system}: {reason}", workload.as_deref().unwrap_or("everything")));
        self.skipped.push(Skipped { system: system.to_owned(), workload, reason });
    }
}

type Taken = (String, Vec<Vec<Measurement>>, Option<MessageCounts>);

impl Series {
    /// The series of one workload from the runs of one system, or of the baseline and a system.
    pub(crate) fn of(
        workload: &dyn Workload,
        needs: &Needs,
        sides: impl IntoIterator<Item = Taken>,
    ) -> Result<Vec<Self>> {
        let mut sides: Vec<Taken> = sides.into_iter().collect();
        let (system, runs, messages) = sides.pop().context("no system was measured")?;
        let baseline = sides.pop();
        // What is wanted are multiples of that alone.
        let native = baseline.as_ref().is_some_and(|(name, ..)| name == "native");
        let (operations, operation) = workload.operations(needs);
        let mut all = Vec::new();
        for (number, shape) in runs.first().context("no run was kept")?.iter().enumerate() {
            let pick = |runs: &[Vec<Measurement>]| -> Vec<f64> { runs.iter().map(|run| run[number].value).collect() };
            let samples = pick(&runs);
            let baseline_samples = baseline.as_ref().map(|(_, runs, _)| pick(runs)).unwrap_or_default();
            let ratios: Vec<f64> = samples.iter().zip(&baseline_samples).map(|(mine, base)| mine / base).collect();
            ensure!(
                samples.iter().chain(&ratios).all(|f| f.is_finite()),
                "a figure of {} is no number",
                workload.name()
            );
            let per_operation = |count: u64| count as f64 / operations as f64;
            let counts = messages.iter().filter(|_| number == 0).flatten();
            all.push(Self {
                workload: workload.name(),
                metric: shape.metric.clone(),
                unit: shape.unit,
                summary: Summary::of(&samples).context("no samples")?,
                baseline_summary: Summary::of(&baseline_samples),
                ratio: Summary::of(&ratios),
                reach: native.then(|| reach::reach(&system, &workload.name(), &shape.metric)).flatten(),
                system: system.clone(),
                baseline: baseline.as_ref().map(|(name, _, _)| name.clone()),
                samples,
                baseline_samples,
                operation,
                messages: counts.map(|(kind, count)| (kind.clone(), per_operation(*count))).collect(),
            });
        }
        Ok(all)
    }

    /// Whether the median ratio is where the project wants it; none when nothing was asked.
    pub fn reached(&self) -> Option<bool> {
        let (ratio, reach) = (self.ratio.as_ref()?.median, self.reach?);
        Some(if self.unit.more_is_better() { ratio >= reach } else { ratio <= reach })
    }
}

#[cfg(test)]
mod tests;
