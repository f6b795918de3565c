//! The report as a picture: one line per workload and metric, one mark per system, on a logarithmic scale; a short
//! black bar is what the project wants to reach.

use super::{Report, Series};
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: i32 = 960;
const LEFT: i32 = 250;
const RIGHT: i32 = 70;
const TOP: i32 = 70;
const LINE: i32 = 18;
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Draws the ratios with their confidence intervals; what ran alone is not in it.
pub fn svg_of(report: &Report) -> Result<String> {
    let series: Vec<&Series> = report.series.iter().filter(|s| s.ratio.is_some()).collect();
    let mut lines: Vec<String> = Vec::new();
    let mut systems: Vec<&str> = Vec::new();
    for one in &series {
        if !lines.contains(&label(one)) {
            lines.push(label(one));
        }
        if !systems.contains(&one.system.as_str()) {
            systems.push(&one.system);
        }
    }
    let mut text = String::new();
    let height = TOP + LINE * (lines.len() as i32 + 3);
    let scale = Scale::around(&series);
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
        draw(&area, report, &series, &lines, &systems, &scale).map_err(|error| anyhow!("draw: {error}"))?;
    }
    Ok(text)
}

fn label(series: &Series) -> String {
    let throughput = if series.unit.more_is_better() { " (throughput)" } else { "" };
    format!("{} {}{throughput}", series.workload, series.metric)
}

/// Where a ratio lies on the picture.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Holds all intervals, and 1.
    fn around(series: &[&Series]) -> Self {
        let ratios = || series.iter().filter_map(|s| s.ratio.as_ref());
        let low = ratios().map(|r| r.interval.low).fold(0.8, f64::min);
        let wanted = series.iter().filter_map(|s| s.reach).fold(2.0, f64::max);
        let high = ratios().map(|r| r.interval.high).fold(wanted, f64::max);
        Self { low: low * 0.95, high: high * 1.05 }
    }

    fn x(&self, ratio: f64) -> i32 {
        let share = (ratio / self.low).ln() / (self.high / self.low).ln();
        LEFT + (share * f64::from(WIDTH - LEFT - RIGHT)) as i32
    }

    /// Round figures within the scale.
    fn ticks(&self) -> Vec<f64> {
        let rounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0];
        rounds.into_iter().filter(|t| (self.low..=self.high).contains(t)).collect()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    area: &Area,
    report: &Report,
    series: &[&Series],
    lines: &[String],
    systems: &[&str],
    scale: &Scale,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let font = ("sans-serif", 15).into_font();
    let small = font.color(&BLACK);
    let right = small.pos(Pos::new(HPos::Right, VPos::Center));
    let centre = small.pos(Pos::new(HPos::Center, VPos::Center));
    let left = small.pos(Pos::new(HPos::Left, VPos::Center));
    let baseline = report.baseline();
    let environment = &report.environment;
    let title = format!(
        "Multiples of {baseline}: time (less is better) or throughput; median of {} pairs and its confidence interval \
         (Linux {}, {} CPUs)",
        report.options.runs, environment.kernel, environment.cpus
    );
    area.draw(&Text::new(title, (10, 16), left.clone()))?;
    let mut x = 10;
    for (system, colour) in systems.iter().zip(COLOURS.iter().cycle()) {
        area.draw(&Circle::new((x + 5, 38), 5, colour.filled()))?;
        area.draw(&Text::new((*system).to_owned(), (x + 15, 38), left.clone()))?;
        x += 40 + 8 * system.chars().count() as i32;
    }
    let bottom = TOP + LINE * (lines.len() as i32 + 1);
    for tick in scale.ticks() {
        let colour = if (tick - 1.0).abs() < 1e-9 { BLACK.mix(0.7) } else { BLACK.mix(0.15) };
        area.draw(&PathElement::new([(scale.x(tick), TOP - 6), (scale.x(tick), bottom)], colour))?;
        area.draw(&Text::new(tick.to_string(), (scale.x(tick), bottom + 10), centre.clone()))?;
    }
    for (number, line) in lines.iter().enumerate() {
        let middle = TOP + LINE * number as i32 + LINE / 2;
        area.draw(&Text::new(line.clone(), (LEFT - 12, middle), right.clone()))?;
        for one in series.iter().filter(|s| label(s) == *line) {
            let Some(ratio) = &one.ratio else { continue };
            let at = systems.iter().position(|s| *s == one.system).unwrap_or(0);
            let colour = COLOURS[at % COLOURS.len()];
            // Systems side by side, so that equal ones do not hide each other.
            let y = middle + (at as i32 * 2 - systems.len() as i32 + 1) * 2;
            let ends = [(scale.x(ratio.interval.low), y), (scale.x(ratio.interval.high), y)];
            area.draw(&PathElement::new(ends, colour.stroke_width(2)))?;
            area.draw(&Circle::new((scale.x(ratio.median), y), 4, colour.filled()))?;
            if let Some(reach) = one.reach {
                let x = scale.x(reach);
                area.draw(&PathElement::new([(x, middle - 7), (x, middle + 7)], BLACK.stroke_width(3)))?;
            }
        }
    }
    area.present()?;
    Ok(())
}
