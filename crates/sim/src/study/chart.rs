//! Charts as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

/// A point with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Abscissa.
    pub x: f64,
    /// Mean.
    pub y: f64,
    /// Half-width of the interval.
    pub ci: f64,
}

/// One line of a chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// In order of x.
    pub points: Vec<Point>,
}

/// A chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below it.
    pub x: String,
    /// Beside it.
    pub y: String,
    /// The top of the y axis, if saturated points shall not set it.
    pub top: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
}

const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

impl Chart {
    /// As SVG text.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, (760, 440)).into_drawing_area()).map_err(|e| e.to_string())?;
        Ok(text)
    }

    fn draw<'a>(
        &self,
        area: DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let all = || self.lines.iter().flat_map(|line| line.points.iter()).filter(|point| point.y.is_finite());
        let right = all().map(|point| point.x).fold(0.0, f64::max).max(1e-9);
        let left = all().map(|point| point.x).fold(right, f64::min);
        let highest = all().map(|point| point.y + point.ci).fold(0.0, f64::max).max(1e-9);
        let top = self.top.map_or(highest * 1.1, |top| top.min(highest * 1.1));
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d(left.min(right * 0.9)..right * 1.02, 0.0..top)?;
        chart.configure_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(WHITE).draw()?;
        for (number, line) in self.lines.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            let shown: Vec<&Point> = line.points.iter().filter(|point| point.y.is_finite() && point.y <= top).collect();
            chart.draw_series(LineSeries::new(shown.iter().map(|point| (point.x, point.y)), color.stroke_width(2)))?;
            for point in shown {
                let (low, high) = ((point.y - point.ci).max(0.0), (point.y + point.ci).min(top));
                chart.draw_series([PathElement::new(vec![(point.x, low), (point.x, high)], color)])?;
                chart.draw_series([Circle::new((point.x, point.y), 2, color.filled())])?;
            }
            let style = TextStyle::from(("sans-serif", 13)).color(&color).pos(Pos::new(HPos::Left, VPos::Top));
            area.draw(&Text::new(line.name.clone(), (90, 44 + 17 * number as i32), style))?;
        }
        area.present()
    }
}
