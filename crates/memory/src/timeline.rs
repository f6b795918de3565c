//! The paper's figure 9: memory in use and limits over time, as SVG.

use crate::error::{Error, Result};
use crate::runtime::{RuntimeDir, TimelinePoint};
use plotters::prelude::*;
use std::path::Path;

/// Bytes in the unit of the axis.
const MIB: f64 = (1 << 20) as f64;

/// Reads the points written by the daemon; a line cut short by a kill is left out.
pub fn read(path: &Path) -> Result<Vec<TimelinePoint>> {
    Ok(points(&std::fs::read_to_string(path).map_err(Error::io("reading", path))?))
}

/// The same of the controller that runs in a directory.
pub fn read_of(runtime: &RuntimeDir) -> Result<Vec<TimelinePoint>> {
    Ok(points(&runtime.read_timeline()?))
}

fn points(text: &str) -> Vec<TimelinePoint> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Draws the points; of a timeline that several controllers continued, those of the last.
pub fn svg(points: &[TimelinePoint]) -> Result<String> {
    let restart = points.windows(2).rposition(|pair| matches!(pair, [one, next] if next.at_s < one.at_s));
    let points = points.get(restart.map_or(0, |at| at + 1)..).unwrap_or_default();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(Error::Invalid("the timeline is empty: let the controller run for some seconds".into()));
    };
    let mut text = String::new();
    draw(points, first.at_s, last.at_s.max(first.at_s + 1.0), &mut text)
        .map_err(|error| Error::Invalid(format!("the chart cannot be drawn: {error}")))?;
    Ok(text)
}

type Series = (&'static str, RGBColor, fn(&TimelinePoint) -> u64);

fn draw(
    points: &[TimelinePoint],
    from: f64,
    to: f64,
    out: &mut String,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(out, (900, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = points.iter().map(|point| point.total).max().unwrap_or(1) as f64 / MIB * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .caption("Memory in use and limits", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(from..to, 0.0..top)?;
    chart.configure_mesh().x_desc("seconds").y_desc("MiB").light_line_style(WHITE).draw()?;
    let series: [Series; 5] = [
        ("all memory", RGBColor(120, 120, 120), |point| point.total),
        ("opaque", RGBColor(0, 90, 180), |point| point.opaque),
        ("opaque limit", RGBColor(120, 180, 240), |point| point.opaque_limit),
        ("contributed", RGBColor(200, 80, 0), |point| point.contributed),
        ("contributed limit", RGBColor(250, 180, 110), |point| point.contributed_limit),
    ];
    for (name, colour, value) in series {
        let line = points.iter().map(|point| (point.at_s, value(point).min(point.total) as f64 / MIB));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_becomes_an_svg_with_its_five_lines() {
        let points: Vec<_> = (0..20)
            .map(|at| TimelinePoint {
                at_s: f64::from(at),
                total: 1 << 30,
                opaque: 300 << 20,
                ..TimelinePoint::default()
            })
            .collect();
        let text = svg(&points).unwrap();
        assert!(text.starts_with("<svg") && text.contains("contributed limit"));
        let again: Vec<_> = points.iter().chain(&points).copied().collect();
        assert_eq!(svg(&again).unwrap(), text, "of two runs the last is drawn");
        assert!(svg(&[]).unwrap_err().to_string().contains("empty"));
    }
}
