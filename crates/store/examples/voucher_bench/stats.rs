//! Medians and spreads.

use serde::Serialize;

/// Some measurements of one thing.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

/// Median, and the middle half (first and third quartile).
pub fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get(((values.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN);
    Spread { median: at(0.5), low: at(0.25), high: at(0.75), count: values.len() }
}
