//! The report for a person at a terminal.

use super::{Report, Series};
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;

/// Everything found, as text.
pub fn table_of(report: &Report) -> String {
    let environment = &report.environment;
    let mut text = format!(
        "Linux {}, {} CPUs ({}), load {:.1}, {} pairs, seed {}{}\n",
        environment.kernel,
        environment.cpus,
        environment.cpu,
        environment.load,
        report.options.runs,
        report.options.seed,
        if report.options.quick { ", quick form" } else { "" },
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "workload",
        "metric",
        "system",
        "median",
        "baseline",
        "ratio",
        "interval",
        "quartiles",
        "slowest",
        "reach",
    ]);
    for series in &report.series {
        table.add_row(row(series));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}");
    if let Some(coverage) = report.series.iter().filter_map(|s| s.ratio.as_ref()).map(|r| r.interval.coverage).next() {
        let _ = writeln!(
            text,
            "ratio: median over pairs of system ÷ {}; interval: holds the true median with probability {:.1} %; \
             slowest: slowest run ÷ median",
            report.baseline(),
            coverage * 100.0
        );
    }
    for series in report.series.iter().filter(|s| !s.messages.is_empty()) {
        let counts: Vec<String> = series.messages.iter().map(|(kind, count)| format!("{kind} {count:.2}")).collect();
        let _ = writeln!(
            text,
            "messages per {} ({} on {}): {}",
            series.operation,
            series.workload,
            series.system,
            counts.join(", ")
        );
    }
    for skipped in &report.skipped {
        let what = skipped.workload.as_deref().unwrap_or("everything");
        let _ = writeln!(text, "left out: {what} on {}: {}", skipped.system, skipped.reason);
    }
    text
}

fn row(series: &Series) -> Vec<String> {
    let show = |value| series.unit.show(value);
    let summary = &series.summary;
    let worst =
        if series.unit.more_is_better() { summary.median / summary.smallest } else { summary.largest / summary.median };
    let (ratio, interval, quartiles) = series.ratio.as_ref().map_or_else(Default::default, |r| {
        (
            format!("{:.2}", r.median),
            format!("{:.2}–{:.2}", r.interval.low, r.interval.high),
            format!("{:.2}–{:.2}", r.lower_quartile, r.upper_quartile),
        )
    });
    let reach = match (series.reach, series.reached()) {
        (Some(reach), Some(reached)) => {
            let sign = if series.unit.more_is_better() { '≥' } else { '≤' };
            format!("{sign} {reach} {}", if reached { "yes" } else { "NO" })
        }
        _ => String::new(),
    };
    vec![
        series.workload.clone(),
        series.metric.clone(),
        series.system.clone(),
        show(summary.median),
        series.baseline_summary.as_ref().map_or_else(String::new, |b| show(b.median)),
        ratio,
        interval,
        quartiles,
        format!("{worst:.2}"),
        reach,
    ]
}
