//! Medians and what can honestly be said about them from few runs.

use serde::Serialize;

/// Bounds of a median that need no assumption about the distribution: two of the samples themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// The probability that the true median lies between them; below 0.95 when there are fewer than six samples.
    pub coverage: f64,
}

/// What a series of samples says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many samples.
    pub runs: usize,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// First quartile.
    pub lower_quartile: f64,
    /// Third quartile.
    pub upper_quartile: f64,
    /// Confidence interval of the median.
    pub interval: Interval,
    /// Smallest sample.
    pub smallest: f64,
    /// Largest sample.
    pub largest: f64,
}

impl Summary {
    /// Summarises `samples`; `None` when there are none or one is not a number.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|s| s.is_nan()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            runs: sorted.len(),
            median: quantile(&sorted, 0.5),
            lower_quartile: quantile(&sorted, 0.25),
            upper_quartile: quantile(&sorted, 0.75),
            interval: median_interval(&sorted, 0.95),
            smallest: sorted[0],
            largest: sorted[sorted.len() - 1],
        })
    }

    /// Distance between the quartiles.
    pub fn spread(&self) -> f64 {
        self.upper_quartile - self.lower_quartile
    }
}

/// The value below which a share `q` of the sorted samples lies, interpolated linearly.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// The narrowest symmetric pair of order statistics that holds the median with at least `wanted` probability, or the
/// extremes with whatever they give.
///
/// The number of samples below the true median is binomial(n, ½), so the k-th smallest and k-th largest enclose it with
/// probability 1 − 2·P(B < k).
fn median_interval(sorted: &[f64], wanted: f64) -> Interval {
    let n = sorted.len();
    let mut best = Interval { low: sorted[0], high: sorted[n - 1], coverage: 1.0 - 2.0 * 0.5f64.powi(n as i32) };
    // The logarithm of P(B = k - 1): of many samples the first of these are too small for a number.
    let mut logarithm = n as f64 * 0.5f64.ln();
    let mut below = 0.0;
    for k in 1..=n / 2 {
        below += logarithm.exp();
        logarithm += ((n - k + 1) as f64 / k as f64).ln();
        let coverage = 1.0 - 2.0 * below;
        if coverage < wanted {
            break;
        }
        best = Interval { low: sorted[k - 1], high: sorted[n - k], coverage };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    #[test]
    fn known_figures() {
        let summary = Summary::of(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((summary.median, summary.lower_quartile, summary.upper_quartile), (3.0, 2.0, 4.0));
        assert_eq!((summary.smallest, summary.largest, summary.runs), (1.0, 5.0, 5));
        assert!((summary.interval.coverage - 0.9375).abs() < 1e-12, "five samples cannot give 95 %");
        assert_eq!(Summary::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn interval_is_the_one_in_the_tables() {
        // Textbook values of the sign-test interval: n = 6 gives (1, 6), n = 10 gives (2, 9), n = 20 gives (6, 15).
        for (n, k) in [(6, 1), (10, 2), (20, 6), (50, 18)] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&sorted, 0.95);
            assert_eq!((interval.low, interval.high), (f64::from(k), f64::from(n + 1 - k)), "n = {n}");
            assert!(interval.coverage >= 0.95);
        }
    }

    /// Regression: from 1075 samples on it was their middle alone, with a probability that was no number.
    #[test]
    fn an_interval_of_many_samples_is_about_as_wide_as_the_normal_one() {
        for n in [1_000, 1_074, 1_075, 5_000, 100_000] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&sorted, 0.95);
            let expected = 1.96 * f64::from(n).sqrt();
            assert!((interval.high - interval.low - expected).abs() < 3.0, "n = {n}: {interval:?}");
            assert!((0.95..0.96).contains(&interval.coverage), "n = {n}: {interval:?}");
        }
    }

    #[test]
    fn one_sample_claims_nothing() {
        let summary = Summary::of(&[2.0]).unwrap();
        assert_eq!(summary.interval, Interval { low: 2.0, high: 2.0, coverage: 0.0 });
    }

    #[test]
    fn interval_covers_the_true_median_as_often_as_it_says() {
        let mut random = Random::new(11);
        let mut held = 0;
        for _ in 0..4000 {
            // Skewed on purpose: times are. The median of u² for uniform u is ¼.
            let samples: Vec<f64> = (0..12).map(|_| (random.below(1 << 32) as f64 / 2f64.powi(32)).powi(2)).collect();
            let interval = Summary::of(&samples).unwrap().interval;
            held += usize::from(interval.low <= 0.25 && 0.25 <= interval.high);
        }
        assert!(held > 3780, "{held} of 4000 intervals held the median");
    }

    proptest! {
        #[test]
        fn a_summary_is_ordered_and_ignores_the_order_of_runs(mut samples in prop::collection::vec(0.0..1e6f64, 1..40)) {
            let summary = Summary::of(&samples).unwrap();
            prop_assert!(summary.smallest <= summary.interval.low && summary.interval.low <= summary.median);
            prop_assert!(summary.median <= summary.interval.high && summary.interval.high <= summary.largest);
            prop_assert!(summary.lower_quartile <= summary.median && summary.median <= summary.upper_quartile);
            samples.reverse();
            prop_assert_eq!(summary, Summary::of(&samples).unwrap());
        }
    }
}
