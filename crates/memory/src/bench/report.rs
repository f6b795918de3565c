//! Tables and charts from the records (figures 6, 7 and 8).

use super::away::{Record, SETS, SYSTEMS};
use crate::error::{Error, Result};
use plotters::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// What a miss costs by the paper's reckoning, in seconds.
const MISS_S: f64 = 0.0025;

/// Reads records; a line cut short is left out.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).map_err(Error::io("reading", path))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

type Measure = fn(&Record) -> f64;

fn average_faults(record: &Record) -> f64 {
    record.back.iter().map(|second| second.faults as f64).sum::<f64>() / record.back.len().max(1) as f64
}

fn most_faults(record: &Record) -> f64 {
    record.back.iter().map(|second| second.faults as f64).fold(0.0, f64::max)
}

fn slow_down(record: &Record) -> f64 {
    100.0 * average_faults(record) * MISS_S
}

fn slowest_ms(record: &Record) -> f64 {
    record.back.iter().map(|second| second.slowest_us as f64 / 1e3).fold(0.0, f64::max)
}

fn lost_operations(record: &Record) -> f64 {
    let per_s = |seconds: &[super::load::Second]| {
        seconds.iter().map(|second| second.operations as f64).sum::<f64>() / seconds.len().max(1) as f64
    };
    let full = per_s(record.before.get(record.before.len() / 2..).unwrap_or(&record.before));
    100.0 * (1.0 - per_s(&record.back) / full.max(1e-9))
}

fn donated_mib(record: &Record) -> f64 {
    record.donated_bytes as f64 / f64::from(1 << 20)
}

fn cpu_percent(record: &Record) -> f64 {
    record.cost.fast_cpu_percent
}

fn rss_mb(record: &Record) -> f64 {
    record.cost.rss_bytes as f64 / 1e6
}

fn evicted_mib(record: &Record) -> f64 {
    record.evicted.iter().sum::<u64>() as f64 * crate::PAGE as f64 / f64::from(1 << 20)
}

/// Pages evicted although the working set has them: those in front of the position it ends at.
fn evicted_needed_percent(record: &Record) -> f64 {
    let Some((_, working, cold)) = SETS.iter().find(|set| set.0 == record.set) else { return 0.0 };
    let needed = (working / (working + cold) * record.evicted.len() as f64) as usize;
    let wrong: u64 = record.evicted.iter().take(needed).sum();
    100.0 * wrong as f64 / (record.evicted.iter().sum::<u64>() as f64).max(1.0)
}

fn of_oracle(record: &Record) -> f64 {
    record.donated_bytes as f64 / record.oracle_bytes.max(1) as f64
}

const TABLES: [(&str, &str, Measure); 11] = [
    ("Average faults/s after coming back (figure 6)", "figure6.svg", average_faults),
    ("Maximum faults in one second (figure 7)", "figure7.svg", most_faults),
    ("Slow-down by misses in percent: average faults/s × 2.5 ms, the paper's reckoning", "", slow_down),
    ("Operations lost in percent, against the seconds before the break", "", lost_operations),
    ("Slowest operation in ms", "", slowest_ms),
    ("Memory donated in MiB (figure 8)", "figure8.svg", donated_mib),
    ("Donated, as a share of what an oracle gives", "", of_oracle),
    ("Opaque memory evicted by the end of the break in MiB", "", evicted_mib),
    ("Of it from the working set, in percent", "", evicted_needed_percent),
    ("Cost of the controller in percent of a CPU", "", cpu_percent),
    ("Memory of the controller in MB", "", rss_mb),
];

/// Writes `tables.md` and the charts into a directory.
pub fn write(records: &[Record], directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(Error::io("creating", directory))?;
    let mut text = String::from("Median (least–most) of the trials.\n");
    for (title, chart, measure) in TABLES {
        text.push_str(&table(records, title, measure));
        if !chart.is_empty() {
            let svg =
                bars(records, title, measure).map_err(|error| Error::Invalid(format!("drawing {chart}: {error}")))?;
            keep(directory, chart, &svg)?;
        }
    }
    keep(directory, "tables.md", &text)?;
    keep(directory, "summary.json", &summary(records))?;
    if let Some(svg) = super::figure3::svg(records)? {
        keep(directory, "figure3.svg", &svg)?;
    }
    let timeline = directory.join("timeline-medium.jsonl");
    if timeline.exists() {
        keep(directory, "figure9.svg", &crate::timeline::svg(&crate::timeline::read(&timeline)?)?)?;
    }
    Ok(())
}

fn keep(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(Error::io("writing", path))
}

/// The tables as JSON: `measure -> system -> set -> [least, median, most]`, and the number of trials.
fn summary(records: &[Record]) -> String {
    let mut measures = serde_json::Map::new();
    for (title, _, measure) in TABLES {
        let mut systems = serde_json::Map::new();
        for system in SYSTEMS {
            let sets: serde_json::Map<_, _> = SETS
                .iter()
                .filter_map(|(set, ..)| Some((*set, spread(records, system, set, measure)?)))
                .map(|(set, (least, median, most))| (set.to_owned(), serde_json::json!([least, median, most])))
                .collect();
            if !sets.is_empty() {
                systems.insert(system.to_owned(), sets.into());
            }
        }
        measures.insert(title.to_owned(), systems.into());
    }
    let trials: serde_json::Map<_, _> = SYSTEMS
        .iter()
        .map(|system| {
            ((*system).to_owned(), (records.iter().filter(|r| r.system == *system).count() / SETS.len()).into())
        })
        .collect();
    format!("{:#}\n", serde_json::json!({ "version": 1, "trials": trials, "measures": measures }))
}

/// Least, median and most; `None` without trials. The median of an even number lies between the two in the middle.
fn spread(records: &[Record], system: &str, set: &str, measure: Measure) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> = records.iter().filter(|r| r.system == system && r.set == set).map(measure).collect();
    values.sort_by(f64::total_cmp);
    let median = values.get((values.len().max(1) - 1) / 2)?.midpoint(*values.get(values.len() / 2)?);
    Some((*values.first()?, median, *values.last()?))
}

fn table(records: &[Record], title: &str, measure: Measure) -> String {
    let mut text = format!("\n### {title}\n\n| system | small | medium | large |\n|---|---|---|---|\n");
    for system in SYSTEMS {
        let cells = SETS.map(|(set, ..)| match spread(records, system, set, measure) {
            None => "–".to_owned(),
            Some((least, median, most)) => format!("{median:.2} ({least:.2}–{most:.2})"),
        });
        let _never_fails = writeln!(text, "| {system} | {} |", cells.join(" | "));
    }
    text
}

fn bars(records: &[Record], title: &str, measure: Measure) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let colours = [0x77_7777, 0xb0_3030, 0xd0_7030, 0xd0_b050, 0x90_b050, 0x50_a070, 0x30_60b0_u32];
    let colour = |index: usize| {
        let value = colours.get(index).copied().unwrap_or(0);
        RGBColor((value >> 16) as u8, (value >> 8) as u8, value as u8)
    };
    let medians = |system: &str, set: &str| spread(records, system, set, measure);
    let top =
        SYSTEMS.iter().flat_map(|system| SETS.map(|(set, ..)| medians(system, set).map_or(0.0, |spread| spread.2)));
    let top = top.fold(0.0, f64::max).max(1.0) * 1.1;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (900, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..SETS.len() as f64, 0.0..top)?;
        let name = |at: &f64| SETS.get(*at as usize).map_or(String::new(), |set| set.0.to_owned());
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(4)
            .x_label_formatter(&name)
            .x_label_offset(120)
            .draw()?;
        for (index, system) in SYSTEMS.iter().enumerate() {
            let width = 0.9 / SYSTEMS.len() as f64;
            let filled = colour(index).filled();
            let found: Vec<(f64, (f64, f64, f64))> = SETS
                .iter()
                .enumerate()
                .filter_map(|(at, (set, ..))| Some((at as f64 + 0.05 + width * index as f64, medians(system, set)?)))
                .collect();
            chart
                .draw_series(
                    found
                        .iter()
                        .map(|(x, (_, median, _))| Rectangle::new([(*x, 0.0), (x + width * 0.9, *median)], filled)),
                )?
                .label(*system)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], filled));
            let middle = |x: f64| x + width * 0.45;
            chart.draw_series(
                found
                    .iter()
                    .map(|(x, (least, _, most))| PathElement::new([(middle(*x), *least), (middle(*x), *most)], BLACK)),
            )?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        root.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: of two trials the worse one was shown as the median.
    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let record = |donated_bytes| Record {
            system: "none".into(),
            set: "small".into(),
            away_s: 1.0,
            back: Vec::new(),
            before: Vec::new(),
            donated_bytes,
            oracle_bytes: 1,
            cost: crate::runtime::Cost::default(),
            evicted: Vec::new(),
            load: 0.0,
        };
        let spread = |donated: &[u64]| {
            let records: Vec<Record> = donated.iter().copied().map(record).collect();
            spread(&records, "none", "small", |record| record.donated_bytes as f64)
        };
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[7]), Some((7.0, 7.0, 7.0)));
        assert_eq!(spread(&[7, 1]), Some((1.0, 4.0, 7.0)));
        assert_eq!(spread(&[9, 1, 2]), Some((1.0, 2.0, 9.0)));
        assert_eq!(spread(&[9, 1, 2, 4]), Some((1.0, 3.0, 9.0)));
    }
}
