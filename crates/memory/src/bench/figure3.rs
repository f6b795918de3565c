//! The paper's figure 3: from where in the LRU queue pages were evicted, as SVG.

use super::away::Record;
use crate::error::{Error, Result};
use plotters::prelude::*;

/// The systems and the set shown: the kernel's own choice beside ours.
const SHOWN: [(&str, RGBColor); 2] =
    [("unlimited", RGBColor(0xb0, 0x30, 0x30)), ("ullage", RGBColor(0x30, 0x60, 0xb0))];
const SET: &str = "medium";

/// Draws the mean over all trials; `None` where no record tells.
pub(super) fn svg(records: &[Record]) -> Result<Option<String>> {
    let means: Vec<_> =
        SHOWN.iter().filter_map(|&(system, colour)| Some((system, colour, mean(records, system)?))).collect();
    if means.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    draw(&means, &mut text).map_err(|error| Error::Invalid(format!("drawing figure 3: {error}")))?;
    Ok(Some(text))
}

/// Percent of the user's pages in each twentieth that were evicted by the end of the break.
fn mean(records: &[Record], system: &str) -> Option<Vec<f64>> {
    let found: Vec<&Record> = records
        .iter()
        .filter(|record| record.system == system && record.set == SET && !record.evicted.is_empty())
        .collect();
    let bins = found.first()?.evicted.len();
    let sum = |bin: usize| found.iter().filter_map(|record| record.evicted.get(bin)).sum::<u64>() as f64;
    Some((0..bins).map(|bin| sum(bin) / found.len() as f64 * crate::PAGE as f64 / f64::from(1 << 20)).collect())
}

fn draw(means: &[(&str, RGBColor, Vec<f64>)], out: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let bins = means.iter().map(|(.., mean)| mean.len()).max().unwrap_or(1) as f64;
    let top = means.iter().flat_map(|(.., mean)| mean).copied().fold(1.0, f64::max) * 1.2;
    let root = SVGBackend::with_string(out, (900, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Pages evicted during the break by LRU position (figure 3), medium set", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..100.0, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("LRU position, percent of the user's memory (0: used last)")
        .y_desc("MiB")
        .light_line_style(WHITE)
        .draw()?;
    let width = 100.0 / bins;
    for (index, (system, colour, mean)) in means.iter().enumerate() {
        let (filled, offset) = (colour.filled(), width * (0.05 + 0.45 * index as f64));
        let bar = |(bin, value): (usize, &f64)| {
            let left = bin as f64 * width + offset;
            Rectangle::new([(left, 0.0), (left + width * 0.42, *value)], filled)
        };
        chart
            .draw_series(mean.iter().enumerate().map(bar))?
            .label(*system)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], filled));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).draw()?;
    root.present()?;
    Ok(())
}
